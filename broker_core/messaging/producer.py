"""Sending: waited for or not, and never more unconfirmed octets than the window.

Sent and not confirmed stays here, so that a new connection can send it again: at least once. The defaults are those of the
field: what is not persistent is not waited for; what is persistent is, outside a transaction; in a transaction nothing is, since
the commit waits for all of it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker_core import errors
from penstock.broker_core.amqp.performatives import TransactionalState
from penstock.broker_core.messaging.sending import Confirmation, Sendable, prepared
from penstock.broker_core.messaging.target_link import TargetLink, TooLarge

if TYPE_CHECKING:
    from penstock.broker_core.messaging.session import Session

#: Octets of messages sent by one producer and not confirmed, where nothing else is said.
WINDOW_OCTETS = 1024 * 1024


class Producer:
    """Made by `Session.producer`. `refused` counts messages that were not accepted; `unconfirmed_octets` fill the window."""

    def __init__(self, session: Session, address: str, window_octets: int, timeout_s: float) -> None:
        if window_octets < 1:
            raise errors.InvalidRequest("a producer's window is at least 1 octet")
        self.session = session
        self.address = address
        self.refused = 0
        self.unconfirmed_octets = 0
        self._window = window_octets
        self._timeout_s = timeout_s
        self._link: TargetLink | None = None
        self._failure: errors.PenstockError | None = None
        self._untold: errors.PenstockError | None = None
        self._sent = 0
        self._unconfirmed: dict[int, Confirmation] = {}  # by place, in order
        self._again: deque[int] = deque()  # those of them that the present connection has not seen yet

    def send(
        self,
        message: Sendable,
        *,
        persistent: bool | None = None,
        priority: int | None = None,
        ttl_ms: int | None = None,
        synchronous: bool | None = None,
        timeout_s: float | None = None,
        on_outcome: Callable[[Confirmation], None] | None = None,
    ) -> Confirmation:
        """Send one message. A synchronous send returns when the broker has confirmed it, an asynchronous one when it has left.

        `persistent` is the header's *durable* (True unless the message says otherwise); `synchronous` overrides the default (see
        the module); `on_outcome` makes it asynchronous and is called like the session's other callbacks. `timeout_s` bounds the
        whole call, with its wait for window and credit. Raises the error of a refusal (synchronous); PeerError when the time is
        over: the text says whether it was sent; ResourceLimit when it is larger than the broker takes.
        """
        session = self.session
        payload, durable = prepared(message, persistent, priority, ttl_ms, session.connection.new_message_id())
        if synchronous is None:
            synchronous = durable and not session.transacted
        awaited = synchronous and on_outcome is None
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        with session.changed:
            session.check()
            confirmation = self._send(payload, awaited, on_outcome, deadline)
            try:
                if awaited:
                    confirmation.wait(_left(deadline))
            finally:
                confirmation.awaited = False
        return confirmation

    def _send(
        self, payload: bytes, awaited: bool, callback: Callable[[Confirmation], None] | None, deadline: float
    ) -> Confirmation:
        size = len(payload)
        # One that is larger than the window goes alone.
        self.await_(
            lambda: (
                not (callback and self.session.lane.full)
                and (not self._unconfirmed or self.unconfirmed_octets + size <= self._window)
            ),
            _left(deadline),
            f"a message to {self.address!r} was not sent: {self.unconfirmed_octets:,} octets before it are not confirmed",
        )
        transaction = self.session.transaction_id() if self.session.transacted else None
        confirmation = Confirmation(self, payload, transaction, awaited, callback, self.session.changed)
        self.await_(
            lambda: self._link is not None and not self._again and self._link.ready,
            _left(deadline),
            f"a message to {self.address!r} was not sent: the broker gives no credit for it",
        )
        assert self._link is not None
        place, self._sent = self._sent, self._sent + 1
        self._unconfirmed[place] = confirmation
        self.unconfirmed_octets += size
        try:
            self._link.put(place, payload, None if transaction is None else TransactionalState(txn_id=transaction))
        except TooLarge:
            self._forget(place)
            raise
        return confirmation

    def await_(self, done: Callable[[], bool], timeout_s: float | None, what: str) -> None:
        """Waits under the lock, over reconnects. Raises what ended this producer, or PeerError for `what` after the time."""
        limit = self._timeout_s if timeout_s is None else timeout_s

        def met() -> bool:
            if not done():
                self.check()
                return False
            return True

        if not self.session.connection.wait_for(met, limit):
            raise errors.PeerError(f"{what} within the time limit; the broker may be overloaded, or out of disk or memory")

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent is confirmed. Raises the first refusal that nobody was told of yet."""
        with self.session.changed:
            what = f"{len(self._unconfirmed):,} messages to {self.address!r} are not confirmed"
            self.await_(lambda: not self._unconfirmed, timeout_s, what)
            untold, self._untold = self._untold, None
        if untold is not None:
            raise untold

    def close(self) -> None:
        """`flush`, then end the link."""
        try:
            self.flush()
        finally:
            self.leave()

    def leave(self) -> None:
        """End the link; what is not confirmed stays as it is, and nobody will know."""
        with self.session.changed:
            if self._failure is None:
                self.fail(errors.PeerError(f"this producer for {self.address!r} is closed"))
            if self._link is not None:
                self._link.leave()
            self.session.forget_producer(self)

    # --- for the session, under the lock

    def attach(self) -> None:
        """A link on the present connection; what was not confirmed on the last one is sent again, in order, before all else."""
        wire, machine = self.session.wire, self.session.machine
        assert wire is not None
        assert machine is not None
        link = TargetLink(wire, machine, self.address, self._settled, self.fail)
        self._again = deque(self._unconfirmed)
        self._link = link
        self.go_on()

    def go_on(self) -> None:
        """Send again what credit allows now. Never waits."""
        while self._again and self._link is not None and self._link.ready:
            place = self._again.popleft()
            if place in self._unconfirmed:
                try:
                    self._link.put(place, self._unconfirmed[place].payload)
                except TooLarge as error:  # for this server
                    confirmation = self._unconfirmed[place]
                    self._forget(place)
                    self._tell(confirmation, error)

    def lost(self, rolled_back: errors.PenstockError) -> None:
        """The connection is gone: what belongs to a transaction is gone with it, the rest is sent again."""
        self._link = None
        self._again.clear()
        self.roll_back(rolled_back)

    def roll_back(self, error: errors.PenstockError) -> None:
        """What was sent in a transaction is gone."""
        for place, confirmation in list(self._unconfirmed.items()):
            if confirmation.transaction is not None:
                self._forget(place)
                self._tell(confirmation, error)
        if self.session.transacted:
            self._untold = None  # who rolls back, or is told so, knows

    def fail(self, error: errors.PenstockError) -> None:
        """Nothing can be sent any more."""
        self._failure = self._failure or error
        for place, confirmation in list(self._unconfirmed.items()):
            self._forget(place)
            self._tell(confirmation, error)

    def _settled(self, place: int, state: object) -> None:
        confirmation = self._forget(place)
        if confirmation is None:
            return
        confirmation.settle(state)
        self._tell(confirmation, confirmation.error)

    def _tell(self, confirmation: Confirmation, error: errors.PenstockError | None) -> None:
        confirmation.error = error
        if error is not None:
            self.refused += 1
            if not confirmation.awaited and confirmation.callback is None:
                self._untold = self._untold or error
            if confirmation.transaction is not None:
                self.session.doom(error)
        if confirmation.callback is not None:
            self.session.lane.tell(confirmation)

    def _forget(self, place: int) -> Confirmation | None:
        confirmation = self._unconfirmed.pop(place, None)
        if confirmation is not None:
            self.unconfirmed_octets -= len(confirmation.payload)
        return confirmation


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
