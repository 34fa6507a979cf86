"""Sending, synchronously or not, with a limit of unconfirmed octets.

A producer keeps a message until it is confirmed, to send it again on a new connection: at least once. As in JMS, a send of a
durable message waits for its confirmation, but inside a transaction, only the commit waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ... import errors
from ...amqp import Accepted
from ...amqp.performatives import TransactionalState
from ..amqp import failures
from ..public import Public
from .composing import Fields, Sendable, encoded, message_of
from .server import unless_failed
from .target_link import TargetLink, TooLarge

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .session import Session

#: Default limit of one producer.
WINDOW_OCTETS = 1024 * 1024
#: Messages that are written together.
CHUNK = 64


@dataclass(slots=True, eq=False, repr=False)
class Confirmation(Public):
    """Outcome of one message, made by `Producer.send`.

    Attributes:
        outcome: The broker's outcome, None until it comes. In a transaction it is provisional until the commit.
        error: Error of a refusal; None without one.
    """

    _attributes = "error outcome"
    _internal = "awaited callback payload settle transaction"

    _producer: Producer
    payload: bytes
    transaction: bytes | None
    awaited: bool  # a call waits for it, and will raise its error
    callback: Callable[[Confirmation], None] | None
    outcome: object | None = None
    error: errors.PenstockError | None = None

    @property
    def done(self) -> bool:
        """True if the broker has decided, or no outcome can come any more."""
        return self.outcome is not None or self.error is not None

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the outcome.

        Args:
            timeout_s: Seconds to wait at most. None: the producer's time limit.

        Raises:
            PeerError: No outcome came in time. It may come later.
            PenstockError: The broker has refused the message.
        """
        with self._producer.session.changed:
            self._producer.wait_until(lambda: self.done, timeout_s, f"a message to {self._producer.address!r} is not confirmed")
        if self.error is not None:
            raise self.error

    def settle(self, state: object | None) -> None:
        outcome = state.outcome if isinstance(state, TransactionalState) else state
        self.outcome = outcome
        if not isinstance(outcome, Accepted):
            self.error = failures.from_outcome(outcome, f"a message to {self._producer.address!r} was")


class Producer(Public):
    """A producer for one address, made by `Session.producer`.

    Attributes:
        address: Its address.
        refused: Number of messages that were not accepted.
        unconfirmed_octets: Octets that fill the window now.
    """

    _attributes = "address refused unconfirmed_octets"
    _internal = "wait_until detach attach resend lost roll_back fail"

    def __init__(self, session: Session, address: str, window_octets: int, timeout_s: float) -> None:
        if window_octets < 1:
            raise errors.InvalidRequest("a producer's window must be at least 1 octet")
        self.session = session
        self.address = address
        self.refused = 0
        self.unconfirmed_octets = 0
        self._window = window_octets
        self._timeout_s = timeout_s
        self._link: TargetLink | None = None
        self._failure: errors.PenstockError | None = None
        self._unreported: errors.PenstockError | None = None
        self._sent = 0
        self._unconfirmed: dict[int, Confirmation] = {}  # by sequence, in order
        self._to_resend: deque[int] = deque()  # not yet sent on the current connection

    def send(
        self,
        body: Sendable | None = None,
        *,
        synchronous: bool | None = None,
        timeout_s: float | None = None,
        on_outcome: Callable[[Confirmation], None] | None = None,
        **fields: Unpack[Fields],
    ) -> Confirmation:
        """Send one message. A synchronous send returns when the broker has confirmed it.

        Args:
            body: As of `Connection.send`.
            synchronous: Whether to wait. None: wait for a durable message outside a transaction.
            timeout_s: Seconds that the whole call takes at most. None: the producer's time limit.
            on_outcome: Called with the confirmation; makes the send asynchronous.
            **fields: As of `Connection.send`.

        Returns:
            Confirmation of this message.

        Raises:
            InvalidRequest: As of `Connection.send`.
            ResourceLimit: It is larger than the broker takes.
            PeerError: The time is over; the text states whether the message was sent.
            PenstockError: The broker has refused it (synchronous).
        """
        session = self.session
        message = message_of(body, fields, "synchronous", "timeout_s", "on_outcome")
        payload, durable = encoded(message, session.connection.new_message_id())
        if synchronous is None:
            synchronous = durable and not session.transacted
        awaited = synchronous and on_outcome is None
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        with session.changed:
            session.check()
            confirmation = self._send(payload, awaited, on_outcome, deadline)
            try:
                if awaited:
                    confirmation.wait(_seconds_left(deadline))
            finally:
                confirmation.awaited = False
        return confirmation

    def _send(
        self, payload: bytes, awaited: bool, callback: Callable[[Confirmation], None] | None, deadline: float
    ) -> Confirmation:
        size = len(payload)
        # A message larger than the window is sent alone.
        self.wait_until(
            lambda: (
                not (callback and self.session.callbacks.full)
                and (not self._unconfirmed or self.unconfirmed_octets + size <= self._window)
            ),
            _seconds_left(deadline),
            f"a message to {self.address!r} was not sent: {self.unconfirmed_octets:,} octets before it are not confirmed",
        )
        transaction = self._with_credit(deadline)
        confirmation = Confirmation(self, payload, transaction, awaited, callback)
        assert self._link is not None
        sequence, self._sent = self._sent, self._sent + 1
        self._unconfirmed[sequence] = confirmation
        self.unconfirmed_octets += size
        try:
            self._link.put(sequence, payload, None if transaction is None else TransactionalState(txn_id=transaction))
        except TooLarge:
            self._forget(sequence)
            raise
        return confirmation

    def _with_credit(self, deadline: float) -> bytes | None:
        """Wait until a message can be sent. Return its transaction, if any.

        If the transaction ends meanwhile, its id may belong to another one. The message then joins a new transaction, whose
        commit reports the rollback.
        """
        session = self.session
        while True:
            transaction = session.transaction_id() if session.transacted else None
            self.wait_until(
                lambda declared=transaction: not session.is_current(declared) or self._ready,  # type: ignore[misc]
                _seconds_left(deadline),
                f"a message to {self.address!r} was not sent: the broker gives no credit for it",
            )
            if session.is_current(transaction):
                return transaction

    @property
    def _ready(self) -> bool:
        return self._link is not None and not self._to_resend and self._link.ready

    def wait_until(self, done: Callable[[], bool], timeout_s: float | None, problem: str) -> None:
        limit = self._timeout_s if timeout_s is None else timeout_s
        if not self.session.connection.wait_for(unless_failed(done, self.check), limit):
            raise errors.PeerError(f"{problem} within the time limit; the broker may be overloaded, or out of disk or memory")

    @property
    def failed(self) -> bool:
        """True once nothing can be sent with it."""
        return self._failure is not None

    def check(self) -> None:
        """Raise the error that ended this producer, if any."""
        if self._failure is not None:
            raise self._failure

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every message is confirmed.

        Args:
            timeout_s: Seconds to wait at most. None: the producer's time limit.

        Raises:
            PeerError: Some messages are not confirmed in time.
            PenstockError: The first refusal that was not reported yet.
        """
        with self.session.changed:
            problem = f"{len(self._unconfirmed):,} messages to {self.address!r} are not confirmed"
            self.wait_until(lambda: not self._unconfirmed, timeout_s, problem)
            unreported, self._unreported = self._unreported, None
        if unreported is not None:
            raise unreported

    def close(self) -> None:
        """Flush, then detach the link.

        Raises:
            PenstockError: As of `flush`.
        """
        try:
            self.flush()
        finally:
            self.detach()

    def detach(self) -> None:
        """Detach the link without a flush; the outcomes of unconfirmed messages stay unknown."""
        with self.session.changed:
            if self._failure is None:
                self.fail(errors.PeerError(f"this producer for {self.address!r} is closed"))
            if self._link is not None:
                self._link.detach()
            if self in self.session.producers:
                self.session.producers.remove(self)

    # --- for the session, under the lock

    def attach(self) -> None:
        """The link sends the unconfirmed messages again, in order, before new ones."""
        server, machine = self.session.server, self.session.machine
        assert server is not None
        assert machine is not None
        link = TargetLink(server, machine, self.address, self._settled, self.fail)
        self._to_resend = deque(self._unconfirmed)
        self._link = link
        self.resend()

    def resend(self) -> None:
        while self._to_resend and self._link is not None and self._link.ready:
            chunk = list(islice(self._to_resend, CHUNK))
            sequences = [sequence for sequence in chunk if sequence in self._unconfirmed]
            done = self._resend(self._link, sequences)
            last = sequences[done - 1] if done else chunk[-1]
            while self._to_resend and self._to_resend[0] <= last:
                self._to_resend.popleft()

    def _resend(self, link: TargetLink, sequences: list[int]) -> int:
        payloads = [self._unconfirmed[sequence].payload for sequence in sequences]
        if not sequences:
            return 0
        if done := link.put_many(sequences, payloads):
            return done
        try:
            link.put(sequences[0], payloads[0])  # it takes several frames, or is too large here
        except TooLarge as error:
            self._end(sequences[0], error)
        return 1

    def lost(self, rolled_back: errors.PenstockError) -> None:
        self._link = None
        self._to_resend.clear()
        self.roll_back(rolled_back)

    def roll_back(self, error: errors.PenstockError) -> None:
        for sequence, confirmation in list(self._unconfirmed.items()):
            if confirmation.transaction is not None:
                self._end(sequence, error)
        if self.session.transacted:
            self._unreported = None  # the rollback reports it

    def fail(self, error: errors.PenstockError) -> None:
        self._failure = self._failure or error
        for sequence in list(self._unconfirmed):
            self._end(sequence, error)

    def _settled(self, sequence: int, state: object) -> None:
        if (confirmation := self._unconfirmed.get(sequence)) is not None:
            confirmation.settle(state)
            self._end(sequence, confirmation.error)

    def _end(self, sequence: int, error: errors.PenstockError | None) -> None:
        confirmation = self._forget(sequence)
        confirmation.error = error
        if error is not None:
            self.refused += 1
            if not confirmation.awaited and confirmation.callback is None:
                self._unreported = self._unreported or error
            if confirmation.transaction is not None:
                self.session.transaction.mark_rollback_only(error)
        if confirmation.callback is not None:
            self.session.callbacks.add_outcome(confirmation)

    def _forget(self, sequence: int) -> Confirmation:
        confirmation = self._unconfirmed.pop(sequence)
        self.unconfirmed_octets -= len(confirmation.payload)
        return confirmation


def _seconds_left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
