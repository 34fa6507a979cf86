"""A session and its transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from ... import amqp, errors
from ...amqp import LocalProtocolError, serial
from ...amqp.deliveries import Delivery
from ...amqp.states import LinkState
from ..amqp.failures import NoAnswer, no_answer
from ..public import Public
from . import modes
from .callbacks import Callbacks
from .consumer import PREFETCH, Callback, Consumer
from .ledger import Ledger
from .modes import AcknowledgeMode
from .producer import WINDOW_OCTETS, Producer
from .received import ACCEPTED, ReceivedMessage
from .server import ServerConnection
from .source_link import SourceLink, SourceOptions
from .transactions import RolledBack, Transaction

if TYPE_CHECKING:
    from .connection import Connection


class Session(Public):
    """A session, made by `Connection.session`, for one thread at a time: its callbacks, or the application's own thread.

    A call that waits continues to wait over a reconnect.

    Attributes:
        closed: Whether it, or its connection, was closed.
    """

    _attributes = "closed"
    _internal = "add check current transaction_id is_current accept_if_held flush dispose drain attach lost"

    def __init__(self, connection: Connection, mode: AcknowledgeMode) -> None:
        self.connection = connection
        self.changed = connection.changed
        self.mode = mode
        self.transacted = mode is AcknowledgeMode.TRANSACTED
        self.server: ServerConnection | None = None
        self.machine: amqp.Session | None = None
        self.consumers: list[Consumer] = []
        self.producers: list[Producer] = []
        self.ledger = Ledger(self, mode)
        self.callbacks = Callbacks(self)
        self.transaction = Transaction(self)
        self.numbers = count(1)  # of received messages
        self.closed = False

    # --- for the application

    def producer(self, address: str, *, window_octets: int = WINDOW_OCTETS, send_timeout_s: float | None = None) -> Producer:
        """Return a new producer for one address. It ends with the session.

        Args:
            address: A queue, an exchange, or `exchange/routing-key`.
            window_octets: Limit of unconfirmed octets.
            send_timeout_s: Seconds that a send takes at most. None: the connection's time limit.

        Raises:
            PenstockError: The broker refuses, for example with NotFound.
        """
        producer = Producer(self, address, window_octets, self.connection.timeout_s if send_timeout_s is None else send_timeout_s)
        self.add(producer)
        return producer

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
        """Return a new consumer of one or several sources, which take turns. It ends with the session.

        Args:
            *addresses: Queues or exchanges.
            prefetch: Largest number of messages that wait here. 0 means explicit pull.
            selector: Only messages that match.
            no_local: Whether to leave out messages that this connection has sent.
            browse: Whether to read the messages without taking them.
            exclusive: Whether to admit no other consumer.
            priority: The consumer with the highest priority that can take a message gets it.
            callback: As of `Consumer.listen`.
            gather_s: Seconds that an acknowledgement waits at most, in the mode dups-ok.

        Raises:
            PenstockError: As of `producer`.
        """
        if not addresses or prefetch < 0:
            raise errors.InvalidRequest("a consumer needs a source, and a prefetch of 0 (pull) or more messages")
        window = -(-prefetch // len(addresses))
        options = SourceOptions(window, selector, no_local, browse, exclusive, priority)
        consumer = Consumer(self, addresses, prefetch, options, gather_s)
        self.add(consumer)
        if callback is not None:
            consumer.listen(callback)
        return consumer

    def recover(self) -> None:
        """Return all unacknowledged messages to their queues. They come again, oldest first, with their delivery counted.

        Raises:
            InvalidRequest: The session has transactions: use `rollback`.
        """
        if self.transacted:
            raise errors.InvalidRequest("a transacted session is rolled back, not recovered")
        with self.changed, self.callbacks.paused():
            self.check()
            self.ledger.requeue_everything()

    def commit(self) -> None:
        """Commit all sends and messages since the last commit, or nothing.

        Raises:
            RolledBack: Nothing was committed.
            InDoubt: The connection was lost: everything was committed, or nothing.
            InvalidRequest: The session has no transactions.
        """
        with self.changed:
            self._check_transacted()
            self.transaction.commit()

    def rollback(self) -> None:
        """Discard the sends; return the received messages. They come again, oldest first, with their delivery counted.

        Raises:
            InvalidRequest: The session has no transactions.
        """
        with self.changed, self.callbacks.paused():
            self._check_transacted()
            self.transaction.rollback()

    def close(self, *, flush: bool = True) -> None:
        """Close the session, return its unacknowledged messages, roll back its transaction. Waits for a running callback.

        Args:
            flush: Whether to wait for confirmations first.

        Raises:
            PenstockError: The first refusal of an asynchronous send that was not reported yet.
        """
        try:
            with self.changed, self.callbacks.paused():
                if not self.closed:
                    self.closed = True
                    self._end(flush)
        finally:
            self.callbacks.run_outcomes()

    def _end(self, flush: bool) -> None:
        try:
            if self.transacted:
                self.transaction.rollback(resume=False)
            elif flush:
                for producer in list(self.producers):
                    producer.flush()
        finally:
            with suppress(errors.PenstockError):
                self.ledger.requeue_everything(resume=False)
            for producer in list(self.producers):
                producer.detach()
            if self.server is not None and self.machine is not None:
                self.server.end(self.machine)
            self.server = self.machine = None
            self.connection.forget(self)
            for consumer in self.consumers:
                consumer.wake()
            self.changed.notify_all()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(flush=kind is None)

    # --- for its parts, under the lock

    def check(self) -> None:
        self.connection.check()
        if self.closed:
            raise errors.InvalidRequest("this session is closed")

    def _check_transacted(self) -> None:
        self.check()
        if not self.transacted:
            raise errors.InvalidRequest("this session has no transaction: make it with AcknowledgeMode.TRANSACTED")

    def add(self, part: Consumer | Producer) -> None:
        with self.changed:
            self.check()
            self.connection.on_current_server(lambda _: part.attach())
            if isinstance(part, Consumer):
                self.consumers.append(part)
            else:
                self.producers.append(part)

    def current(self) -> tuple[ServerConnection, amqp.Session]:
        self.connection.current_server()
        assert self.server is not None
        assert self.machine is not None
        return self.server, self.machine

    def transaction_id(self) -> bytes:
        if self.transaction.id is None:
            self.connection.on_current_server(lambda _: self.transaction.declared())
        return self.transaction.declared()

    def is_current(self, transaction: bytes | None) -> bool:
        """Return False if a transaction has ended. None stands for work outside transactions."""
        return transaction is None or self.transaction.id == transaction

    def accept_if_held(self, message: ReceivedMessage) -> None:
        """Accept a message, unless it was settled or its connection was lost."""
        with self.changed, suppress(errors.PeerError):
            self.ledger.acknowledge(message, ACCEPTED)

    def flush(self) -> None:
        if self.server is not None:
            self.server.flush()

    def dispose(self, deliveries: Sequence[Delivery], state: Any, *, settled: bool = True) -> None:
        """Leaves out deliveries that the broker has revoked, or whose link has ended."""
        machine = self.machine
        own = [
            delivery
            for delivery in deliveries
            if not (delivery.settled or delivery.remote_settled)
            and delivery.link.session is machine
            and delivery.link.state is LinkState.ATTACHED
        ]
        if not own or machine is None:
            return
        base = own[0].id
        own.sort(key=lambda delivery: serial.difference(delivery.id, base))
        with suppress(LocalProtocolError):  # the connection has just ended, and the broker requeues them
            machine.dispose(own, state, settled=settled)
        self.flush()

    def drain(self, links: list[SourceLink]) -> None:
        """Wait until no message is on its way on these links. A lost connection counts as drained."""
        server = self.server
        if server is None:
            return
        server.flush()
        limit_s = server.timeout_s
        if not self.connection.wait_for(lambda: self.server is not server or all(link.stopped for link in links), limit_s):
            raise no_answer(server.name, limit_s, "it does not drain")

    def attach(self, server: ServerConnection) -> None:
        self.server, self.machine = server, server.begin()
        parts: list[Consumer | Producer] = [*self.producers, *self.consumers]
        for part in parts:
            try:
                part.attach()
            except NoAnswer:
                raise  # a slow server refuses nothing; the next one may be faster
            except errors.PenstockError as error:
                server.check()
                part.fail(error)  # only this one ends

    def lost(self, error: errors.PenstockError) -> None:
        self.server = self.machine = None
        self.transaction.lost(error)
        rolled_back = RolledBack(f"the transaction was rolled back: {error}")
        for consumer in self.consumers:
            consumer.lost()
        self.ledger.lost()
        for producer in self.producers:
            producer.lost(rolled_back)
