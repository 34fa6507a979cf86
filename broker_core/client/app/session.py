"""A session: a line of work with its own acknowledge mode, its callbacks one after another, and perhaps a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ... import amqp, errors
from ...amqp import LocalProtocolError, serial
from ...amqp.deliveries import Delivery
from ...amqp.states import LinkState
from . import modes
from .callbacks import Callbacks
from .consumer import PREFETCH, Callback, Consumer
from .ledger import Ledger
from .modes import AcknowledgeMode
from .producer import WINDOW_OCTETS, Producer
from .received import ACCEPTED, Outcome, ReceivedMessage
from .source_link import SourceLink, SourceOptions
from .transactions import RolledBack, Transaction
from .wire import NoAnswer, Wire

if TYPE_CHECKING:
    from .connection import Connection


class Session:
    """A session, made by `Connection.session`. One thread at a time: its callbacks, or the application's own, not both at once.

    A call that waits goes on waiting over a reconnect; it raises the connection's failure once that is final.
    """

    def __init__(self, connection: Connection, mode: AcknowledgeMode) -> None:
        self.connection = connection
        self.changed = connection.changed
        self.mode = mode
        self.transacted = mode is AcknowledgeMode.TRANSACTED
        self.wire: Wire | None = None
        self.machine: amqp.Session | None = None
        self.consumers: list[Consumer] = []
        self.producers: list[Producer] = []
        self.ledger = Ledger(self, mode)
        self.callbacks = Callbacks(self)
        self._transaction = Transaction(self)
        self._numbers = 0
        self._closed = False

    # --- for the application

    def producer(self, address: str, *, window_octets: int = WINDOW_OCTETS, send_timeout_s: float | None = None) -> Producer:
        """Make a producer for one address.

        Args:
            address: A queue, an exchange, or `exchange/routing-key`.
            window_octets: Octets of its messages that are unconfirmed at most.
            send_timeout_s: Seconds that a send takes at most. None: the connection's time limit.

        Returns:
            A producer, which ends with the session.

        Raises:
            PenstockError: The broker refuses: NotFound, NotAllowed and so on.
        """
        made = Producer(self, address, window_octets, self.connection.timeout_s if send_timeout_s is None else send_timeout_s)
        self._add(made)
        return made

    def consumer(
        self,
        *addresses: str,
        prefetch: int = PREFETCH,
        selector: str | None = None,
        no_local: bool = False,
        browse: bool = False,
        exclusive: bool = False,
        priority: int | None = None,
        callback: Callback | None = None,
        gather_s: float = modes.ACKNOWLEDGE_DELAY_S,
    ) -> Consumer:
        """Make a consumer of one or several sources, which take turns.

        Args:
            *addresses: Queues or exchanges.
            prefetch: Messages that wait here at most, of all sources together; 0 means explicit pull.
            selector: Only messages that match.
            no_local: Whether to leave out messages that this connection has sent.
            browse: Whether to look only: it takes nothing.
            exclusive: Whether to admit no other consumer.
            priority: Of several consumers that could get a message, the highest gets it.
            callback: As of `Consumer.listen`.
            gather_s: Seconds that an acknowledgement waits at most, in the mode dups-ok.

        Returns:
            A consumer, which ends with the session.

        Raises:
            PenstockError: The broker refuses: NotFound, NotAllowed and so on.
        """
        made = Consumer(self, addresses, prefetch, SourceOptions(selector, no_local, browse, exclusive, priority), gather_s)
        self._add(made)
        if callback is not None:
            made.listen(callback)
        return made

    def recover(self) -> None:
        """Return all unacknowledged messages to their queues; they come again, oldest first, with their delivery counted.

        Raises:
            InvalidRequest: The session has transactions: use `rollback`.
        """
        if self.transacted:
            raise errors.InvalidRequest("a transacted session is rolled back, not recovered")
        with self.changed, self.callbacks.paused():
            self.check()
            self.ledger.requeue_everything()

    def commit(self) -> None:
        """Commit everything sent and received since the last commit, all or nothing.

        Raises:
            RolledBack: Nothing of it happened.
            InDoubt: The connection was lost meanwhile: all of it happened, or nothing.
            InvalidRequest: The session has no transactions.
        """
        with self.changed:
            self._check_transacted()
            self._transaction.commit()

    def rollback(self) -> None:
        """Discard the sends; return what was received to its queue. It comes again, oldest first, with its delivery counted.

        Raises:
            InvalidRequest: The session has no transactions.
        """
        with self.changed, self.callbacks.paused():
            self._check_transacted()
            self._transaction.rollback()

    def close(self, *, flush: bool = True) -> None:
        """Close the session, return its unacknowledged messages, roll back its transaction.

        Waits for a running callback, and runs the callbacks of outcomes that are still due.

        Args:
            flush: Whether to wait for confirmations first.

        Raises:
            PenstockError: The first refusal of an asynchronous send that was not reported yet.
        """
        try:
            with self.changed, self.callbacks.paused():
                if not self._closed:
                    self._closed = True
                    self._end(flush)
        finally:
            self.callbacks.run_outcomes()

    def _end(self, flush: bool) -> None:
        try:
            if self.transacted:
                self._transaction.rollback(resume=False)
            elif flush:
                for producer in list(self.producers):
                    producer.flush()
        finally:
            self._leave()

    def _leave(self) -> None:
        with suppress(errors.PenstockError):
            self.ledger.requeue_everything(resume=False)
        for producer in list(self.producers):
            producer.detach()
        if self.wire is not None and self.machine is not None:
            self.wire.end(self.machine)
        self.wire = self.machine = None
        self.connection.forget(self)
        for consumer in self.consumers:
            consumer.wake()
        self.changed.notify_all()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(flush=kind is None)

    @property
    def closed(self) -> bool:
        """True after `close`, of the session or of its connection."""
        return self._closed

    # --- for its parts, under the lock

    def check(self) -> None:
        """Raise the connection's final error, or InvalidRequest after `close`."""
        self.connection.check()
        if self._closed:
            raise errors.InvalidRequest("this session is closed")

    def _check_transacted(self) -> None:
        self.check()
        if not self.transacted:
            raise errors.InvalidRequest("this session has no transaction: make it with AcknowledgeMode.TRANSACTED")

    def _add(self, part: Consumer | Producer) -> None:
        """Attach a producer or consumer, now and on each new connection."""
        with self.changed:
            self.check()
            self.connection.on_current_wire(lambda wire: self._attach_one(part))
            if isinstance(part, Consumer):
                self.consumers.append(part)
            else:
                self.producers.append(part)

    def _attach_one(self, part: Consumer | Producer) -> None:
        if isinstance(part, Consumer):
            part.lost()
        part.attach()

    def current(self) -> tuple[Wire, amqp.Session]:
        """Return the current wire and AMQP session; wait for them during a reconnect."""
        self.connection.current_wire()
        assert self.wire is not None
        assert self.machine is not None
        return self.wire, self.machine

    def transaction_id(self) -> bytes:
        """Return the id of the current transaction; declare one if there is none. May wait, over reconnects."""
        if self._transaction.id is None:
            self.connection.on_current_wire(self._declare)
        return self._transaction.declared()

    def _declare(self, wire: Wire) -> None:
        self._transaction.declared()

    def is_current(self, transaction: bytes | None) -> bool:
        """Return True until `transaction`, by its id, has ended; None stands for work outside of transactions."""
        return transaction is None or self._transaction.id == transaction

    def mark_rollback_only(self, error: errors.PenstockError) -> None:
        """Make the current transaction's commit fail with `error` as its cause."""
        self._transaction.mark_rollback_only(error)

    def next_number(self) -> int:
        """Return the number of the next received message, from 1."""
        self._numbers += 1
        return self._numbers

    def acknowledge(self, message: ReceivedMessage, outcome: Outcome) -> None:
        """Settle a message, as `ReceivedMessage.acknowledge` says."""
        with self.changed:
            self.ledger.acknowledge(message, outcome)

    def accept_if_held(self, message: ReceivedMessage) -> None:
        """Accept a message, unless it was settled or its connection is lost: then the broker delivers it again."""
        with self.changed, suppress(errors.PeerError):
            self.ledger.acknowledge(message, ACCEPTED)

    def forget_producer(self, producer: Producer) -> None:
        """Remove a producer that is closed."""
        if producer in self.producers:
            self.producers.remove(producer)

    def flush(self) -> None:
        """Write what is ready to the socket."""
        if self.wire is not None:
            self.wire.flush()

    def dispose(self, deliveries: Sequence[Delivery], state: Any, *, settled: bool = True) -> None:
        """Send an outcome for deliveries, in their order.

        Deliveries that the broker has revoked, or whose link is gone, are left out.
        """
        machine = self.machine
        own = [
            each
            for each in deliveries
            if not (each.settled or each.remote_settled)
            and each.link.session is machine
            and each.link.state is LinkState.ATTACHED
        ]
        if not own or machine is None:
            return
        base = own[0].id
        own.sort(key=lambda delivery: serial.difference(delivery.id, base))
        with suppress(LocalProtocolError):  # the connection has just ended: the broker requeues them by itself
            machine.dispose(own, state, settled=settled)
        self.flush()

    def drain(self, links: list[SourceLink]) -> None:
        """Wait until no message is on its way on these links. A lost connection counts as drained."""
        wire = self.wire
        if wire is None:
            return
        wire.flush()
        if not self.connection.wait_for(lambda: self.wire is not wire or all(link.stopped for link in links), wire.timeout_s):
            raise wire.timeout_error("it does not drain", wire.timeout_s)

    # --- connections come and go

    def attach(self, wire: Wire) -> None:
        """Attach all producers and consumers on a new connection. Raises when that is lost again, or says nothing."""
        self.wire, self.machine = wire, wire.begin()
        parts: list[Consumer | Producer] = [*self.producers, *self.consumers]
        for part in parts:
            try:
                self._attach_one(part)
            except NoAnswer:
                raise  # a slow server refuses nothing: the next attempt may find it, or another, faster
            except errors.PenstockError as error:
                wire.check()
                part.fail(error)  # only this one ends

    def lost(self, error: errors.PenstockError) -> None:
        """Reset all parts: the connection is lost."""
        self.wire = self.machine = None
        self._transaction.lost(error)
        rolled_back = RolledBack(f"the transaction was rolled back: {error}")
        for consumer in self.consumers:
            consumer.lost()
        self.ledger.lost()
        for producer in self.producers:
            producer.lost(rolled_back)
