"""Commands of one caller, run under the broker's lock. The AMQP plane takes the lock once per commit loop, and waits for the disk
afterwards, through the journal's listener."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .. import errors
from ..engine import BrokerState, Decision, apply, decide
from ..engine import commands as c
from ..engine.columns.rowset import RowSet
from ..engine.commands import EndNode
from ..engine.decide.decision import need_queue
from ..engine.events import codec
from ..journal import Journal
from ..messages.payloads import Stored, store
from ..reading.recent import Recent
from ..reading.slices import BlockSlice, data_loss, names_of, slice_of
from .attributes import attributes_of
from .blocked_producers import BlockedProducers
from .ticker import Ticker

if TYPE_CHECKING:
    from ..messages.encoding.arriving import ArrivedMessages

log = logging.getLogger("penstock")

R = TypeVar("R")


class Answer(NamedTuple):
    """The reply to a command, or its refusal, and the log position that either waits for."""

    reply: Any
    error: errors.PenstockError | None
    end: int


class ArrivalListeners:
    """A listener is called with the name of a queue in which messages became AVAILABLE, or that was deleted. The calling
    thread has the broker's lock, so it must not block or call the service. Exceptions are logged.
    """

    def __init__(self, lock: threading.Lock) -> None:
        self.count = 0  # how often messages became AVAILABLE
        self._came = threading.Condition(lock)
        self._listeners: tuple[Callable[[str], None], ...] = ()

    def add(self, callback: Callable[[str], None]) -> None:
        with self._came:
            self._listeners = (*self._listeners, callback)

    def remove(self, callback: Callable[[str], None]) -> None:
        with self._came:
            self._listeners = tuple(listener for listener in self._listeners if listener != callback)

    # Called under the lock
    def notify(self, queues: Iterable[str]) -> None:
        for queue in queues:
            self.count += 1
            for callback in self._listeners:
                try:
                    callback(queue)
                except Exception:
                    log.exception("a listener for arrivals failed at queue %r", queue)

    def wake(self) -> None:
        self._came.notify_all()

    def wait(self, seen: int, timeout_s: float) -> bool:
        """Wait until `count` differs from `seen`. Returns False after `timeout_s` seconds."""
        with self._came:
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


class Turn:
    """`with service.turn() as turn`: the with-block holds the broker's lock.

    It must not wait for the disk, nor call other methods of the service, which mostly take the lock. The records of a turn are
    one group of the log: after a crash the group is complete or missing.

    With `hurry=False` the turn forces no sync: an outcome that the receiver has settled needs none. A caller that needs a sync
    without `journal.wait` calls `journal.hurry` after the turn.
    """

    def __init__(self, parts: TurnParts, *, hurry: bool) -> None:
        self.state, self._journal, self._clock, self._lock, self._arrivals = parts[:5]
        self._recent, self._ticker, self._blocked = parts[5:]
        self._hurry = hurry
        self._seen = 0
        self._appended = False
        self.end = 0
        self.logged = 0  # of the last record

    def __enter__(self) -> Turn:
        self._lock.acquire()
        try:
            self._now, self._seen = self._clock(), self._arrivals.count
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Raise StorageError if the journal has failed, even if the with-block caught it."""
        try:
            if self._arrivals.count != self._seen:
                self._arrivals.wake()
            self._ticker.look()
            self._blocked.look()
        except BaseException as error_:  # otherwise waiting callers would wait for ever
            self._journal.fail(error_)
        finally:
            try:
                if self._appended:  # last: an event that cannot be applied should not be on the disk
                    self._journal.complete(hurry=self._hurry)
            finally:
                self._lock.release()
        self._check()

    def _check(self) -> None:
        if self._journal.failure is not None:
            raise errors.StorageError(str(self._journal.failure)) from self._journal.failure

    def execute(self, command: c.Command[R]) -> tuple[R, int]:
        """Return the reply and the log position that it waits for before it is revealed; 0 if it need not wait.

        A PenstockError concerns this command alone: nothing has changed, and the turn can continue. A refusal waits for
        `turn.end`. After a StorageError, no reply of the turn may leave.

        Any other exception after an event was logged, or has begun to change the state, fails the journal. Memory may then differ
        from the log, so the broker stops.
        """
        self._check()
        try:
            decision = decide(self.state, command, self._now)
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
                apply(self.state, event, position if event.journaled else 0)
            if decision.effects.wakes:
                self._arrivals.notify(decision.effects.wakes)
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

    def slices(self, queue_name: str, rows: RowSet) -> list[BlockSlice]:
        """Return slices, without outcomes, of AVAILABLE or ACQUIRED rows, which are in memory and never removed by retention.
        Raises DataLoss for other rows that have left memory."""
        queue = need_queue(self.state, queue_name)
        slices = []
        for number, part in rows.items():
            block = queue.blocks.get(number)
            if block is None:
                raise data_loss(queue_name, number, "left memory")
            slices.append(slice_of(block, part, names_of(queue), self._recent, outcomes=False, hold=self._journal.hold()))
        return slices

    # These handle a refusal as a value, and raise only StorageError

    def carry_out(self, command: c.Command[Any]) -> Answer:
        return self.answer(lambda: self.execute(command))

    def enqueue(self, queue: str, arrived: ArrivedMessages, *, whole: bool = False) -> Answer:
        return self._store(partial(c.Enqueue, durable=arrived.durable, whole=whole), queue, arrived)

    def enqueue_immediate(
        self, queue: str, arrived: ArrivedMessages, offers: Sequence[c.Offer], budgets: Sequence[int]
    ) -> Answer:
        """Offer *immediate* messages to links. The reply is `Delivered`."""
        immediate = partial(c.EnqueueImmediate, durable=arrived.durable, offers=offers, budgets=budgets)
        return self._store(immediate, queue, arrived)

    def post(self, transaction: int, queue: str, arrived: ArrivedMessages) -> Answer:
        return self._store(partial(c.Post, transaction), queue, arrived)

    def _store(self, command: Callable[..., c.Command[Any]], queue: str, arrived: ArrivedMessages) -> Answer:
        stored = store(arrived.payload, arrived.mask)

        def execute() -> tuple[Any, int]:
            attributes = attributes_of(stored.payload, need_queue(self.state, queue).rules, self.wall_ms)
            return self.execute(command(queue, arrived.rows, arrived.sizes, stored, attributes=attributes))

        return self.answer(execute)

    def answer(self, execute: Callable[[], tuple[Any, int]]) -> Answer:
        """Return the reply or the refusal. Raises StorageError."""
        try:
            reply, end = execute()
        except errors.StorageError:
            raise
        except errors.PenstockError as error:
            return Answer(None, error, self._journal.end)  # the reason may not be durable yet
        return Answer(reply, None, end)

    @property
    def wall_ms(self) -> int:
        return max(self._now.wall, self.state.time) // 1000


def _buffers(payload: Any) -> Sequence[Any]:
    if payload is None:
        return ()
    if isinstance(payload, Stored):
        return payload.buffers
    return payload if isinstance(payload, list) else [payload]
