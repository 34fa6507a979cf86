"""A session: one line of work, with its own acknowledge mode, its callbacks one after another, and perhaps its transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import LocalProtocolError, serial
from penstock.broker_core.amqp.deliveries import Delivery
from penstock.broker_core.amqp.states import LinkState
from penstock.broker_core.messaging import modes
from penstock.broker_core.messaging.callbacks import Callbacks
from penstock.broker_core.messaging.consumer import PREFETCH, Callback, Consumer
from penstock.broker_core.messaging.ledger import Ledger
from penstock.broker_core.messaging.modes import AcknowledgeMode
from penstock.broker_core.messaging.producer import WINDOW_OCTETS, Producer
from penstock.broker_core.messaging.received import Outcome, ReceivedMessage
from penstock.broker_core.messaging.source_link import SourceLink, Terms
from penstock.broker_core.messaging.transactions import RolledBack, Transaction

if TYPE_CHECKING:
    from penstock.broker_core.messaging.connection import Connection
    from penstock.broker_core.messaging.wire import Wire


class Session:
    """Made by `Connection.session`. One thread at a time: its callbacks, or the application's own, not both side by side.

    What waits raises the connection's failure once that is final; a connection that is made anew is waited for.
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
        self.lane = Callbacks(self)
        self._transaction = Transaction(self)
        self._numbers = 0
        self._closed = False

    # --- for the application

    def producer(self, address: str, *, window_octets: int = WINDOW_OCTETS, send_timeout_s: float | None = None) -> Producer:
        """A producer for one address. At most `window_octets` of its messages are unconfirmed; `send_timeout_s` bounds a send
        (None: the connection's time limit). Raises the broker's refusal: NotFound, NotAllowed and so on.
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
        gather_s: float = modes.DELAY_S,
    ) -> Consumer:
        """A consumer of one source or several, which take turns; `prefetch` is for all of them together, 0 means explicit pull.

        `browse` looks at copies; `no_local` leaves out what this connection has sent; `exclusive`: no other consumer beside it;
        `priority`: of consumers that could have a message, the highest gets it; `gather_s`: how long dups-ok may keep an
        acknowledgement back. With `callback` see `Consumer.listen`.
        """
        made = Consumer(self, addresses, prefetch, Terms(selector, no_local, browse, exclusive, priority), gather_s)
        self._add(made)
        if callback is not None:
            made.listen(callback)
        return made

    def recover(self) -> None:
        """What was handed out and is not acknowledged goes back and comes again, from the oldest on, its delivery counted."""
        if self.transacted:
            raise errors.InvalidRequest("a transacted session is rolled back, not recovered")
        with self.changed, self.lane.held():
            self.check()
            self.ledger.give_back()

    def commit(self) -> None:
        """Everything sent and received since the last commit happens, or nothing. Raises RolledBack or InDoubt."""
        with self.changed:
            self._check_transacted()
            self._transaction.commit()

    def rollback(self) -> None:
        """Nothing of it happens: what was received goes back and comes again, from the oldest on, its delivery counted."""
        with self.changed, self.lane.held():
            self._check_transacted()
            self._transaction.rollback()

    def close(self, *, flush: bool = True) -> None:
        """What was sent is confirmed first (`flush`), what is not acknowledged goes back, a transaction is rolled back. A running
        callback is waited for, and those of outcomes have been called after this. Raises the first refusal of an asynchronous
        send that nobody was told of.
        """
        try:
            with self.changed, self.lane.held():
                if not self._closed:
                    self._closed = True
                    self._end(flush)
        finally:
            self.lane.finish()

    def _end(self, flush: bool) -> None:
        try:
            if self.transacted:
                self._transaction.rollback(go_on=False)
            elif flush:
                for producer in list(self.producers):
                    producer.flush()
        finally:
            self._leave()

    def _leave(self) -> None:
        with suppress(errors.PenstockError):
            self.ledger.give_back(go_on=False)
        for producer in list(self.producers):
            producer.leave()
        if self.wire is not None and self.machine is not None:
            self.wire.end(self.machine)
        self.wire = self.machine = None
        self.connection.forget(self)
        self.changed.notify_all()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(flush=kind is None)

    # --- for its parts, under the lock

    def check(self) -> None:
        self.connection.check()
        if self._closed:
            raise errors.InvalidRequest("this session is closed")

    def _check_transacted(self) -> None:
        self.check()
        if not self.transacted:
            raise errors.InvalidRequest("this session has no transaction: make it with AcknowledgeMode.TRANSACTED")

    def _add(self, part: Consumer | Producer) -> None:
        """Attached, and attached again with each new connection."""
        with self.changed:
            self.check()
            self.connection.persist(lambda wire: self._attach_one(part))
            if isinstance(part, Consumer):
                self.consumers.append(part)
            else:
                self.producers.append(part)

    def _attach_one(self, part: Consumer | Producer) -> None:
        if isinstance(part, Consumer):
            part.lost()
        part.attach()

    def present(self) -> tuple[Wire, amqp.Session]:
        """The connection that there is now, or as soon as there is one."""
        self.connection.present()
        assert self.wire is not None
        assert self.machine is not None
        return self.wire, self.machine

    def transaction_id(self) -> bytes:
        return self._transaction.declared()

    def doom(self, error: errors.PenstockError) -> None:
        self._transaction.doom(error)

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def acknowledge(self, message: ReceivedMessage, outcome: Outcome) -> None:
        with self.changed:
            self.ledger.acknowledge(message, outcome)

    def forget_producer(self, producer: Producer) -> None:
        if producer in self.producers:
            self.producers.remove(producer)

    def flush(self) -> None:
        if self.wire is not None:
            self.wire.flush()

    def dispose(self, deliveries: Sequence[Delivery], state: Any, *, settled: bool = True) -> None:
        """Tell the broker of deliveries, in their order; those that it has taken back, or whose link is gone, are left out."""
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
        with suppress(LocalProtocolError):  # the connection has just ended: they go back without us
            machine.dispose(own, state, settled=settled)
        self.flush()

    def drain(self, links: list[SourceLink]) -> None:
        """Wait until nothing is under way on these links; on a connection that is lost nothing is."""
        wire = self.wire
        if wire is None:
            return
        wire.flush()
        if not self.connection.wait_for(lambda: self.wire is not wire or all(link.stopped for link in links), wire.timeout_s):
            raise wire.overdue("it does not drain", wire.timeout_s)

    # --- connections come and go

    def attach(self, wire: Wire) -> None:
        """Everything of this session, on a new connection. Raises when that is lost again."""
        self.wire, self.machine = wire, wire.begin()
        parts: list[Consumer | Producer] = [*self.producers, *self.consumers]
        for part in parts:
            try:
                self._attach_one(part)
            except errors.PenstockError as error:
                wire.check()
                part.fail(error)  # this one cannot go on; the others do

    def lost(self, error: errors.PenstockError) -> None:
        """The connection is gone."""
        self.wire = self.machine = None
        self._transaction.lost(error)
        rolled_back = RolledBack(f"the transaction was rolled back: {error}")
        for consumer in self.consumers:
            consumer.lost()
        self.ledger.lost()
        for producer in self.producers:
            producer.lost(rolled_back)
