"""A turn: what one caller does with the broker while nobody else does anything, and who hears of it.

A plane with a thousand links takes the lock once for all that one turn of its loop brought, and waits for the disk afterwards,
without a thread of its own: by the journal's listener.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .. import errors
from ..engine import BrokerState, Decision, apply, decide
from ..engine import commands as c
from ..engine.commands import EndNode
from ..engine.decide.decision import need_queue
from ..engine.events import codec
from ..journal import Journal
from ..messages.payloads import Stored, store
from ..reading.recent import Recent
from .attributes import attributes_of
from .blocked_producers import BlockedProducers
from .locked_view import LockedView
from .ticker import Ticker

if TYPE_CHECKING:
    from ..engine.columns.attributes import Attributes
    from ..messages.encoding.arriving import ArrivedMessages
    from ..messages.payloads import Payload

log = logging.getLogger("penstock")

R = TypeVar("R")


class Answer(NamedTuple):
    """Answer to a command: its reply, or the error that refuses it, and the log position that either waits for."""

    reply: Any
    error: errors.PenstockError | None
    end: int


class ArrivalListeners:
    """Tells who waits for messages. Everything here is called under the broker's lock."""

    def __init__(self, lock: threading.Lock) -> None:
        self.count = 0  # how often messages became AVAILABLE
        self._came = threading.Condition(lock)
        self._listeners: tuple[Callable[[str], None], ...] = ()

    def add(self, callback: Callable[[str], None]) -> None:
        """Add a listener: it is called with the name of each queue that has news."""
        self._listeners = (*self._listeners, callback)

    def remove(self, callback: Callable[[str], None]) -> None:
        """Remove a listener."""
        self._listeners = tuple(other for other in self._listeners if other != callback)

    def tell(self, queues: Iterable[str]) -> None:
        """Tell the listeners of these queues. What a listener raises is logged."""
        for queue in queues:
            self.count += 1
            for callback in self._listeners:
                try:
                    callback(queue)
                except Exception:
                    log.exception("a listener for arrivals failed at queue %r", queue)

    def wake(self) -> None:
        """Wake those in `wait`: once a turn."""
        self._came.notify_all()

    def wait(self, seen: int, timeout_s: float) -> bool:
        """Wait until more came than `seen`; False after `timeout_s` seconds without."""
        return self._came.wait_for(lambda: self.count != seen, max(0.0, timeout_s))


class TurnParts(NamedTuple):
    """The parts of a broker that its turns use."""

    state: BrokerState
    journal: Journal
    clock: Callable[[], c.Now]
    lock: threading.Lock
    arrivals: ArrivalListeners
    recent: Recent
    ticker: Ticker
    blocked: BlockedProducers
    view: LockedView


class Turn:
    """`with service.turn() as turn`: the broker's lock is held in between. Nothing here waits for the disk, and nothing in the
    with-block may: no other method of the service is called there (most take the same lock). What a turn has put into the log is
    one group of it: after a crash all of that is there, or nothing.

    With `hurry=False` nothing forces a sync: an outcome that its receiver has settled, say, need not cost one of its own. A
    caller that needs one, and does not call `journal.wait`, calls `journal.hurry` once, after the turn.

    A caller that has executed something tells nobody of it before the journal is durable up to the position that `execute`
    returned.
    """

    def __init__(self, parts: TurnParts, *, hurry: bool) -> None:
        self._state, self._journal, self._clock, self._lock, self._arrivals = parts[:5]
        self._recent, self._ticker, self._blocked, self.view = parts[5:]
        self._hurry = hurry
        self._seen = 0
        self._appended = False
        self.end = 0
        self.logged = 0  # log position of the last record

    def __enter__(self) -> Turn:
        self._lock.acquire()
        try:
            self._now, self._seen = self._clock(), self._arrivals.count
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """StorageError where the journal has failed, whatever was caught in the with-block."""
        try:
            if self._arrivals.count != self._seen:
                self._arrivals.wake()
            self._ticker.look()
            self._blocked.look()
        except BaseException as mistake:  # who waits would wait for ever
            self._journal.fail(mistake)
        finally:
            try:
                if self._appended:  # not before: what cannot be applied had better not be on the disk at the next start
                    self._journal.complete(hurry=self._hurry)
            finally:
                self._lock.release()
        self._check()

    def _check(self) -> None:
        if self._journal.failure is not None:
            raise errors.StorageError(str(self._journal.failure)) from self._journal.failure

    @property
    def state(self) -> BrokerState:
        """To look at, within the with-block."""
        return self._state

    def execute(self, command: c.Command[R]) -> tuple[R, int]:
        """Execute a command. Returns its reply, and the log position that the reply waits for: 0 when it promises nothing and can
        leave at once.

        A PenstockError concerns this command alone: it changed nothing, and the turn can go on. A refusal is an answer too, and
        waits for `turn.end`, which is the log position of what the last command was decided on and left. A StorageError says
        that the journal has failed: no answer of the turn may leave any more.

        Whatever else is raised once an event is in the log, or has begun to change the state, fails the journal: the state in
        memory may not be what the log says, so nobody may hear of it, and the broker stops.
        """
        self._check()
        try:
            decision = decide(self._state, command, self._now)
            if decision.events:
                self._log_and_apply(decision)
        finally:
            self.end = self._journal.end
        return decision.reply, self.end if decision.waits else 0

    def _log_and_apply(self, decision: Decision[Any]) -> None:
        began, position, at = False, 0, ""
        try:
            for event, payload in decision.events:
                at = f"event {event.kind!r}"
                if event.journaled:
                    meta, buffers = codec.encode(event), _buffers(payload)
                    position = self._journal.append(meta, buffers, hurry=False, more=True).position
                    self._appended, self.logged = True, position
                    at += f" at position {position}"
                began = True
                if event.journaled and isinstance(payload, Stored):
                    self._recent.add(position, payload.payload)
                apply(self._state, event, position if event.journaled else 0)
            if decision.effects.wakes:
                self._arrivals.tell(decision.effects.wakes)
            for node in decision.effects.may_end:
                at = f"the end of {node!r}"
                self.execute(EndNode(node))
        except errors.StorageError:
            raise  # the journal has failed, or is closed
        except BaseException as error:
            if not began:
                raise
            log.critical("%s could not be applied", at, exc_info=error)
            self._journal.fail(errors.StorageError(f"{at} could not be applied: {type(error).__name__}: {error}"))
            self._check()

    # --- commands of a caller to whom a refusal is an answer like another

    def carry_out(self, command: c.Command[Any]) -> Answer:
        """Execute a command. Raises StorageError, and no other PenstockError."""
        return self.answer(lambda: self.execute(command))

    def enqueue(self, queue: str, found: ArrivedMessages) -> Answer:
        """Enqueue messages that have come from AMQP, at least one: the reply is `Appended`. Raises StorageError."""
        stored = store(found.payload, found.mask)
        return self.answer(
            lambda: self.execute(
                c.Enqueue(queue, found.rows, found.sizes, stored, found.durable, self._attributes(queue, stored.payload))
            )
        )

    def enqueue_immediate(self, queue: str, found: ArrivedMessages, offers: Sequence[c.Offer], budgets: Sequence[int]) -> Answer:
        """Let links take *immediate* messages, at least one: the reply is `Delivered`. Raises StorageError."""
        stored = store(found.payload, found.mask)
        return self.answer(
            lambda: self.execute(
                c.EnqueueImmediate(
                    queue,
                    found.rows,
                    found.sizes,
                    stored,
                    found.durable,
                    self._attributes(queue, stored.payload),
                    offers,
                    budgets,
                )
            )
        )

    def post(self, transaction: int, queue: str, found: ArrivedMessages) -> Answer:
        """Stage such messages, to be in the queue if the transaction commits. Raises StorageError."""
        stored = store(found.payload, found.mask)
        return self.answer(
            lambda: self.execute(
                c.Post(transaction, queue, found.rows, found.sizes, stored, self._attributes(queue, stored.payload))
            )
        )

    def answer(self, execute: Callable[[], tuple[Any, int]]) -> Answer:
        """Return what `execute` does, which executes commands of this turn, or why it is refused. Raises StorageError."""
        try:
            reply, end = execute()
        except errors.StorageError:
            raise
        except errors.PenstockError as error:
            return Answer(None, error, self._journal.end)  # what refuses it may be in no log yet that is durable
        return Answer(reply, None, end)

    def _attributes(self, queue_name: str, payload: Payload) -> Attributes:
        """Read what a queue has to know of messages that arrive now."""
        return attributes_of(payload, need_queue(self._state, queue_name).rules, self.wall_ms)

    @property
    def wall_ms(self) -> int:
        """Milliseconds since 1970, never before what an event has said."""
        return max(self._now.wall, self._state.time) // 1000


def _buffers(payload: Any) -> Sequence[Any]:
    if payload is None:
        return ()
    if isinstance(payload, Stored):
        return payload.buffers
    return payload if isinstance(payload, list) else [payload]
