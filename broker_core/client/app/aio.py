"""The client for asyncio.

    async with penstock.connect_async("amqp://127.0.0.1:5672") as connection:
        await connection.send("orders", json={"id": 7})

        async for message in connection.queue("orders").receive(timeout=5):
            print(message.json())                       # accept(), reject(), release() and retry() do not wait

A thread of the client for threads reads from the broker and wakes the loop. Calls that wait for the broker run on a bounded pool.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ..amqp.connection import TIMEOUT_S
from ..durations import Duration, seconds
from ..public import Public
from .administration import RedriveResult
from .aio_pipeline import AsyncPipeline, iterate
from .backoff import Backoff
from .composing import Fields, Sendable, SimilarMessages, message_of
from .connection import Connection
from .consumer import PREFETCH, Consumer
from .modes import AcknowledgeMode
from .opening import DEFAULT_BACKOFF, connect
from .pipeline import WINDOW, Pipeline
from .queues import PEEKED
from .received import ReceivedMessage
from .session import Session

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Limit of one connection's calls that wait for the broker.
WAITING_CALLS = 32

_T = TypeVar("_T")
_C = TypeVar("_C", Connection, Session, Pipeline)


class AsyncConnection(Public):
    """A connection for one event loop, made by `connect_async`. It is open inside `async with`, or after `open`."""

    _internal = "opened"

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._pool = ThreadPoolExecutor(WAITING_CALLS, thread_name_prefix="penstock-async")
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The connection for threads.

        Raises:
            RuntimeError: Before `open`.
        """
        if self._connection is None:
            raise RuntimeError("this connection is not open: use `async with`, or await open()")
        return self._connection

    async def open(self) -> AsyncConnection:
        """Return this connection when it is open: see `penstock.connect`. `async with` does so."""
        self._connection = await self.opened(self._connect)
        return self

    def queue(self, address: str) -> AsyncQueue:
        """Return a queue or an exchange: see `Connection.queue`.

        Args:
            address: A queue, an exchange, or `exchange/routing-key`.
        """
        return AsyncQueue(self, address)

    async def send(self, address: str, body: Sendable | None = None, **fields: Unpack[Fields]) -> None:
        """Send one message: see `Connection.send`.

        Args:
            address: A queue, an exchange, or `exchange/routing-key`.
            body: Octets, text, or a whole `Message`.
            **fields: `json` instead of a body, and so on.
        """
        message = message_of(body, fields)
        await self.wait(lambda: self.connection.send(address, message))

    async def request(
        self, address: str, body: Sendable | None = None, *, timeout: Duration, **fields: Unpack[Fields]
    ) -> ReceivedMessage:
        """Return the reply to a request: see `Connection.request`. Any number of tasks may wait for replies.

        Args:
            address: A queue, an exchange, or `exchange/routing-key`.
            body: As of `send`.
            timeout: Seconds, or a `timedelta`, until the reply must have come.
            **fields: As of `send`.
        """
        message = message_of(body, fields, "timeout")
        request = await self.wait(partial(self.connection.begin_request, address, message, timeout))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(request.reply), request.seconds_left())
        except asyncio.TimeoutError as error:
            raise request.no_reply() from error

    async def reply(self, message: ReceivedMessage, body: Sendable | None = None, **fields: Unpack[Fields]) -> None:
        """Reply to a message without blocking the event loop: see `ReceivedMessage.reply`.

        Args:
            message: The request.
            body: As of `send`.
            **fields: As of `send`.
        """
        await self.wait(partial(message.reply, body, **fields))

    async def declare(self, queue: str, *, type: str = "fifo", **options: Any) -> bool:
        """Create a queue: see `Connection.declare`.

        Args:
            queue: Its name.
            type: `fifo`, `priority` or `lastvalue`.
            **options: Options of the queue, by their names in docs/queues.md.

        Returns:
            Whether it was created.
        """
        return await self.wait(partial(self.connection.declare, queue, type=type, **options))

    async def delete(self, queue: str, *, force: bool = False) -> int:
        """Delete a queue: see `Connection.delete`.

        Args:
            queue: Its name.
            force: Whether to delete it even with messages, consumers or leases.

        Returns:
            Number of messages that were deleted with it.
        """
        return await self.wait(partial(self.connection.delete, queue, force=force))

    async def peek(self, queue: str, *, limit: int = PEEKED, selector: str | None = None) -> list[ReceivedMessage]:
        """Return the first waiting messages of a queue: see `Connection.peek`.

        Args:
            queue: Its name.
            limit: Largest number of messages.
            selector: Only messages that match.
        """
        return await self.wait(partial(self.connection.peek, queue, limit=limit, selector=selector))

    async def redrive(self, queue: str, *, limit: int | None = None, selector: str | None = None) -> RedriveResult:
        """Return dead letters to the queues that they came from: see `Connection.redrive`.

        Args:
            queue: The dead-letter queue.
            limit: Largest number of messages. None: all.
            selector: Only messages that match.
        """
        return await self.wait(partial(self.connection.redrive, queue, limit=limit, selector=selector))

    async def close(self) -> None:
        """Close the connection. Unsettled messages return to their queues."""
        try:
            if self._connection is not None:
                await self.wait(self._connection.close)
        finally:
            self._pool.shutdown(wait=False)

    async def wait(self, call: Callable[[], _T]) -> _T:
        """Return the result of a call that may wait on a thread, such as one of a `Session` or `Consumer`.

        Args:
            call: Called without arguments.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def opened(self, call: Callable[[], _C]) -> _C:
        """Open a connection, session or pipeline. Close it if this task is cancelled meanwhile."""
        opening = self._pool.submit(call)
        try:
            return await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._close_abandoned)
            raise

    def _close_abandoned(self, opening: Future[_C]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            with suppress(RuntimeError):  # the connection is closed with all its sessions
                self._pool.submit(opening.result().close)

    async def __aenter__(self) -> AsyncConnection:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncQueue(Public):
    """A queue or an exchange of a broker, made by `AsyncConnection.queue`. It has no state.

    Attributes:
        connection: Connection that it belongs to.
        address: Its address.
    """

    _attributes = "address connection"

    def __init__(self, connection: AsyncConnection, address: str) -> None:
        self.connection = connection
        self.address = address

    async def send(self, body: Sendable | None = None, **fields: Unpack[Fields]) -> None:
        """Send a message: see `Connection.send`.

        Args:
            body: As of `AsyncConnection.send`.
            **fields: As of `AsyncConnection.send`.
        """
        await self.connection.send(self.address, body, **fields)

    async def send_many(
        self, bodies: Iterable[Sendable] | AsyncIterable[Sendable] | None = None, **fields: Unpack[Fields]
    ) -> int:
        """Send messages: see `Queue.send_many`.

        Args:
            bodies: Octets, texts, or whole messages, also from an asynchronous iterable, like the values of `json`.
            **fields: As of `AsyncConnection.send`, for every message.

        Returns:
            Number of messages.
        """
        series = SimilarMessages(bodies, fields)
        async with self.pipeline() as pipeline:
            async for item in iterate(series.items):
                await pipeline.put(pipeline.pipeline.next_of(series, item))
        return pipeline.pipeline.sent

    def pipeline(self, *, window: int = WINDOW) -> AsyncPipeline:
        """Return a pipeline: sends that do not wait for each confirmation. `async with` opens it.

        Args:
            window: Limit of unconfirmed messages.
        """
        return AsyncPipeline(self.connection, self.address, window)

    async def receive(
        self, *, timeout: Duration | None = None, limit: int | None = None, selector: str | None = None, prefetch: int = PREFETCH
    ) -> AsyncIterator[ReceivedMessage]:
        """Yield the messages in order: see `Queue.receive`.

        After a `break` the last message returns to the queue when the iterator is closed: immediately by `contextlib.aclosing`,
        otherwise a moment later.

        Args:
            timeout: Seconds, or a `timedelta`, without a message after which the loop ends. None: no limit.
            limit: Largest number of messages. None: no limit.
            selector: Only messages that match.
            prefetch: Largest number of messages that wait here.
        """
        timeout_s = None if timeout is None else seconds("timeout", timeout)
        wait = self.connection.wait
        open_session = partial(self.connection.connection.session, AcknowledgeMode.INDIVIDUAL)
        session = await self.connection.opened(open_session)
        try:
            window = prefetch if limit is None else min(prefetch, limit)
            consumer = await wait(partial(session.consumer, self.address, prefetch=window, selector=selector))
            arrived = _wakes(consumer)
            seen = 0
            while limit is None or seen < limit:
                arrived.clear()
                message = consumer.receive(0)
                if message is None:
                    try:
                        await asyncio.wait_for(arrived.wait(), timeout_s)
                    except asyncio.TimeoutError:
                        return
                    continue
                yield message
                seen += 1
                if message.outcome is None:
                    session.accept_if_held(message)
        finally:
            if not session.closed:  # by its connection, whose threads may have ended
                await wait(session.close)


def _wakes(consumer: Consumer) -> asyncio.Event:
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(arrived.set)

    consumer.on_arrival = wake
    return arrived


def connect_async(
    urls: str | Sequence[str],
    user: str | None = None,
    password: str | None = None,
    *,
    ca_file: str | None = None,
    cert_file: str | None = None,
    key_file: str | None = None,
    client_id: str | None = None,
    timeout_s: float = TIMEOUT_S,
    reconnect: Backoff | None = DEFAULT_BACKOFF,
    on_error: Callable[[Exception], None] | None = None,
) -> AsyncConnection:
    """Return a connection for asyncio, to be opened by `async with`: see `penstock.connect`.

    Args:
        urls: Addresses of the servers.
        user: User name.
        password: The user's password.
        ca_file: PEM file of the broker's authority.
        cert_file: PEM file of a client certificate to log in with.
        key_file: PEM file of its key.
        client_id: Container id at the broker.
        timeout_s: Seconds that each wait for the broker takes at most.
        reconnect: When to try which server after a loss. None: a loss is final.
        on_error: Receives the errors that no call can raise.
    """
    made = partial(connect, urls, user, password, ca_file=ca_file, cert_file=cert_file, key_file=key_file)
    return AsyncConnection(partial(made, client_id=client_id, timeout_s=timeout_s, reconnect=reconnect, on_error=on_error))
