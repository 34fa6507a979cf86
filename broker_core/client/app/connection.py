"""The connection of an application."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from ... import errors
from ...amqp import Message
from .. import amqp
from ..credentials import Credentials
from ..durations import Duration
from ..public import Public
from .administration import Administration, RedriveResult
from .composing import Fields, Sendable, message_of
from .executors import Pool
from .modes import AcknowledgeMode
from .producer_pool import ProducerPool
from .queues import PEEKED, Queue
from .received import ReceivedMessage
from .requests import OpenRequest, Requester
from .server import ServerConnection, to_penstock_error, unless_failed
from .servers import Environment, Servers
from .session import Session

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

_LOG = logging.getLogger(__name__)


class Connection(Public):
    """A connection of an application, made by `connect`. Any number of threads may use it, each with its own sessions.

    When the server is lost, the client connects to the next one, as `Backoff` plans, and calls wait. Delivery is at least once:
    - Unconfirmed sends are repeated, with the same message ids.
    - Unsettled messages are delivered again. Settling an old delivery raises PeerError.
    - A transaction is rolled back. Its commit raises RolledBack.

    Attributes:
        client_id: Container id at the broker.
        timeout_s: Seconds that each wait for the broker takes at most.
        url: URL of the server in use; None without one.
    """

    _attributes = "client_id timeout_s url"
    _internal = "begin_request check wait_for current_server on_current_server wall_ms new_message_id report forget open"

    def __init__(
        self,
        servers: Servers,
        environment: Environment,
        *,
        client_id: str,
        token: str,
        credentials: Credentials,
        timeout_s: float,
        callback_threads: int,
        on_error: Callable[[Exception], None] | None,
    ) -> None:
        self.client_id = client_id
        self._token = token
        self.timeout_s = timeout_s
        self.changed = threading.Condition(threading.RLock())
        self.pool = Pool(callback_threads)
        self.clock = environment.clock
        self.url: str | None = None
        self._servers = servers
        self._wall = environment.wall
        self._on_error = on_error
        self._server: ServerConnection | None = None
        self._sessions: list[Session] = []
        self._producers = ProducerPool(self.session)
        self._requester = Requester(self.session, self._producers)
        self._administration = Administration(credentials, timeout_s)
        self._failure: errors.PenstockError | None = None
        self._closing = threading.Event()
        self._ids = count(1)

    # --- for the application

    def queue(self, address: str) -> Queue:
        """Return a queue or an exchange to send to and receive from. Sends no request to the broker.

        Args:
            address: A queue, an exchange, or `exchange/routing-key`.
        """
        return Queue(self, address)

    def send(self, address: str, body: Sendable | None = None, **fields: Unpack[Fields]) -> None:
        """Send one message, and return when the broker has confirmed it.

        Args:
            address: A queue, an exchange, or `exchange/routing-key`.
            body: Octets, text, or a whole `Message`.
            **fields: `json` instead of a body, `subject`, `properties`, `delay` and `ttl` in seconds or as `timedelta`,
                and so on: see `penstock.broker_core.client.app.composing.composed`.

        Raises:
            InvalidRequest: The arguments contradict each other, or cannot be written in AMQP.
            PenstockError: The broker refuses the message, or does not confirm it in time.

        Example:
            connection.send("orders", json={"id": 7}, subject="new", delay=30)
        """
        message = message_of(body, fields)
        with self._producers.producer(address) as producer:
            producer.send(message, synchronous=True)

    def request(
        self, address: str, body: Sendable | None = None, *, timeout: Duration, **fields: Unpack[Fields]
    ) -> ReceivedMessage:
        """Send a request, and return the reply. Any number of threads may wait for replies.

        The request expires with its time limit, unless it has its own `ttl`. The consumer replies with `message.reply`, on a
        temporary queue that ends with the connection.

        Args:
            address: As of `send`.
            body: As of `send`.
            timeout: Seconds, or a `timedelta`, until the reply must have come.
            **fields: As of `send`, except `reply_to` and `correlation_id`.

        Returns:
            The reply, which is settled.

        Raises:
            NoReply: No reply came in time. The request may have been processed.
            PeerError: The connection was lost meanwhile, likewise.
            PenstockError: The broker refuses the request.

        Example:
            price = connection.request("prices", json={"item": 7}, timeout=5).json()
        """
        return self.begin_request(address, message_of(body, fields, "timeout"), timeout).wait()

    def declare(self, queue: str, *, type: str = "fifo", **options: Any) -> bool:
        """Create a queue. Does nothing if it exists with the same type and options.

        Args:
            queue: Its name.
            type: `fifo`, `priority` or `lastvalue`.
            **options: Options of the queue, by their names in docs/queues.md.

        Returns:
            Whether it was created.

        Raises:
            InvalidRequest: An unknown option, or an invalid value.
            AlreadyExists: The queue has another type or other options.
            PenstockError: The broker refuses, or is not Penstock.

        Example:
            connection.declare("orders", maxMessages=100_000, deadLetterQueue="orders-dead")
        """
        return self._administration.declare(self._url_in_use(), queue, type, options)

    def delete(self, queue: str, *, force: bool = False) -> int:
        """Delete a queue.

        Args:
            queue: Its name.
            force: Whether to delete it even with messages, consumers or leases.

        Returns:
            Number of messages that were deleted with it.

        Raises:
            NotFound: The queue does not exist.
            InUse: It has messages, consumers or leases.
            PenstockError: The broker refuses, or is not Penstock.
        """
        return self._administration.delete(self._url_in_use(), queue, force=force)

    def peek(self, queue: str, *, limit: int = PEEKED, selector: str | None = None) -> list[ReceivedMessage]:
        """Return the first waiting messages of a queue, and leave them in it.

        Args:
            queue: Its name.
            limit: Largest number of messages.
            selector: Only messages that match, such as `"colour = 'red' AND size > 5"`.

        Raises:
            NotFound: The queue does not exist.
            PenstockError: The broker refuses, or the connection was lost meanwhile.
        """
        return self.queue(queue).peek(limit=limit, selector=selector)

    def redrive(self, queue: str, *, limit: int | None = None, selector: str | None = None) -> RedriveResult:
        """Return dead letters to the queues that they came from.

        Args:
            queue: The dead-letter queue.
            limit: Largest number of messages. None: all.
            selector: As of `peek`.

        Raises:
            NotFound: The queue does not exist.
            PenstockError: The broker refuses, or is not Penstock.
        """
        return self._administration.redrive(self._url_in_use(), queue, limit, selector)

    def _url_in_use(self) -> str:
        with self.changed:
            self.current_server()
            assert self.url is not None
            return self.url

    def session(self, mode: AcknowledgeMode = AcknowledgeMode.AUTO) -> Session:
        """Return a new session, for one thread at a time; close it, or use `with`.

        Args:
            mode: Side that acknowledges messages, and when.

        Raises:
            PeerError: No server answers in time.
        """
        with self.changed:
            session = Session(self, mode)
            self.on_current_server(session.attach)
            self._sessions.append(session)
        return session

    def close(self, *, flush: bool = True) -> None:
        """Close every session, then the connection; `with` does so.

        Args:
            flush: Whether to wait for confirmations; see `Session.close`.

        Raises:
            PenstockError: The first error of a session.
        """
        failure: errors.PenstockError | None = None
        # A busy session's callback may wait for another session, whose end releases it.
        for session in sorted(self._sessions, key=lambda session: session.callbacks.busy):
            try:
                session.close(flush=flush)
            except errors.PenstockError as error:
                failure = failure or error
        with self.changed:
            self._closing.set()
            self._failure = self._failure or errors.PeerError("this connection is closed")
            self.pool.close()
            self._administration.close()
            server, self._server, self.url = self._server, None, None
            self.changed.notify_all()
        if server is not None:
            server.close()
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(flush=kind is None)

    # --- for its parts, under the lock

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def wait_for(self, done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until `done()`, over reconnects; return False after `timeout_s`."""
        return self.changed.wait_for(unless_failed(done, self.check), timeout_s)

    def current_server(self) -> ServerConnection:
        """Return the server in use; during a reconnect, wait for one."""
        if not self.wait_for(lambda: self._server is not None, self.timeout_s):
            raise errors.PeerError(f"no broker has answered within {self.timeout_s:g} s at any of {self._servers}")
        assert self._server is not None
        return self._server

    def begin_request(self, address: str, message: Message, timeout: Duration) -> OpenRequest:
        return self._requester.begin(address, message, timeout)

    def on_current_server(self, action: Callable[[ServerConnection], object]) -> None:
        """Run `action` on the server in use. If it is lost meanwhile, repeat with the next one."""
        while True:
            server = self.current_server()
            try:
                action(server)
            except errors.PenstockError:
                self.check()
                if self._server is server and not server.failed:
                    raise
                self.wait_for(partial(self._has_left, server), self.timeout_s)
            else:
                return

    def _has_left(self, server: ServerConnection) -> bool:
        return self._server is not server

    def wall_ms(self) -> int:
        return int(self._wall() * 1000)

    def new_message_id(self) -> str:
        return f"{self.client_id}:{self._token}:{next(self._ids)}"

    def report(self, error: Exception) -> None:
        """Log an error that no call can raise, and pass it to `on_error` on a thread of the pool."""
        _LOG.warning("%s", error, exc_info=None if isinstance(error, errors.PenstockError) else error)
        if self._on_error is not None:
            with self.changed, suppress(RuntimeError):  # no thread can be started: the log has it
                self.pool.submit(partial(self._on_error, error))

    def forget(self, session: Session) -> None:
        if session in self._sessions:
            self._sessions.remove(session)

    def open(self) -> None:
        self._use(*self._servers.first())

    def _use(self, connection: amqp.Connection, url: str) -> None:
        """Move all sessions to a connection. Closes it and raises if it is lost meanwhile."""
        try:
            server = ServerConnection(connection, self.changed, self._run_timers, self._lost)
        except BaseException:
            connection.close()
            raise
        try:
            with self.changed:
                self.check()
                try:
                    for session in list(self._sessions):
                        session.attach(server)
                    server.check()
                    self.check()  # the application may have closed it meanwhile
                except Exception as error:
                    self._interrupt(to_penstock_error(error))
                    raise
                self._server, self.url = server, url
                self.changed.notify_all()
        except BaseException:
            server.close()
            raise

    def _run_timers(self) -> float | None:
        """Send due acknowledgements and waiting messages. Return the seconds until more are due."""
        now = self.clock()
        left = []
        for session in self._sessions:
            for producer in session.producers:
                producer.resend()
        for consumer in [consumer for session in self._sessions for consumer in session.consumers]:
            if consumer.acknowledgements.due(now):
                consumer.session.ledger.flush(consumer)
            elif consumer.acknowledgements.deadline is not None:
                left.append(consumer.acknowledgements.deadline - now)
        return min(left, default=None)

    def _lost(self, server: ServerConnection, error: errors.PenstockError) -> None:
        """Runs on the pump's thread."""
        try:
            final = self._reconnect(server, error)
        except Exception as failure:  # otherwise the waiting calls would never end
            final = to_penstock_error(failure)
        if final is not None:
            self._fail(final)

    def _reconnect(self, server: ServerConnection, error: errors.PenstockError) -> errors.PenstockError | None:
        with self.changed:
            if server is not self._server or self._closing.is_set():
                return None
            lost, self._server, self.url = self.url, None, None
            assert lost is not None
            self._interrupt(error)
            self.changed.notify_all()
        self.report(error)
        return self._servers.reconnect(lost, error, self._closing, self._use)

    def _interrupt(self, error: errors.PenstockError) -> None:
        for session in self._sessions:
            session.lost(error)

    def _fail(self, error: errors.PenstockError) -> None:
        with self.changed:
            self._failure = self._failure or error
            self.changed.notify_all()
            for consumer in [consumer for session in self._sessions for consumer in session.consumers]:
                consumer.wake()
            for producer in [producer for session in self._sessions for producer in session.producers]:
                producer.fail(error)
        self.report(error)
