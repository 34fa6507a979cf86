"""The short way for asyncio: what may wait is awaited, and nothing blocks the event loop.

    async with penstock.connect_async("amqp://127.0.0.1:5672") as connection:
        await connection.send("orders", json={"id": 7})
        async for message in connection.queue("orders").receive(timeout=5):
            print(message.json())                       # accept(), reject(), release() and retry() do not wait

It is the client for threads below: its own thread reads from the broker, and wakes the loop when messages have come. What has to
wait for the broker's answer does so on a bounded pool of threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from ..amqp.connection import TIMEOUT_S
from .backoff import Backoff
from .composing import Fields, composed
from .consumer import PREFETCH, Consumer
from .modes import AcknowledgeMode
from .opening import DEFAULT_BACKOFF, connect
from .queues import Connection
from .received import ReceivedMessage
from .sending import Sendable
from .session import Session

if TYPE_CHECKING:
    from typing_extensions import Unpack  # in typing from 3.11 on

#: Sends and other calls of one connection that wait for the broker at once; more wait for a thread.
WAITING_CALLS = 32

_T = TypeVar("_T")
_C = TypeVar("_C", Connection, Session)


class AsyncConnection:
    """A connection for one event loop, made by `connect_async`; open inside `async with`, or after `open`.

    Example:
        async with penstock.connect_async("amqp://127.0.0.1:5672") as connection:
            await connection.send("orders", json={"id": 7})
    """

    def __init__(self, make: Callable[[], Connection]) -> None:
        self._make = make
        self._pool = ThreadPoolExecutor(WAITING_CALLS, thread_name_prefix="penstock-async")
        self._connection: Connection | None = None

    @property
    def connection(self) -> Connection:
        """The connection for threads below.

        Raises:
            RuntimeError: Before `open`.
        """
        if self._connection is None:
            raise RuntimeError("this connection is not open: use `async with`, or await open()")
        return self._connection

    async def open(self) -> AsyncConnection:
        """Connect; `async with` does so.

        Returns:
            This connection.

        Raises:
            PenstockError: As of `penstock.connect`.
        """
        self._connection = await self._opened(self._make)
        return self

    def queue(self, address: str) -> AsyncQueue:
        """Return a queue, or an exchange, to send to and to go through. Nothing is asked of the broker.

        Args:
            address: A queue, an exchange, or `exchange/routing-key`.
        """
        return AsyncQueue(self, address)

    async def send(self, address: str, body: Sendable | None = None, **fields: Unpack[Fields]) -> None:
        """Send one message, and return when the broker has confirmed it.

        Args:
            address: A queue, an exchange, or `exchange/routing-key`.
            body: As of `Connection.send`.
            **fields: As of `Connection.send`.

        Raises:
            PenstockError: As of `Connection.send`.
        """
        message = composed(body, **fields)
        await self.wait(lambda: self.connection.send(address, message))

    async def close(self) -> None:
        """Close the connection; what was received and not settled goes back."""
        try:
            if self._connection is not None:
                await self.wait(self._connection.close)
        finally:
            self._pool.shutdown(wait=False)

    async def wait(self, call: Callable[[], _T]) -> _T:
        """Run a call that may wait on a thread, such as one of a `Session` or `Consumer`.

        Args:
            call: Called without arguments.

        Returns:
            What the call returns.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    async def _opened(self, make: Callable[[], _C]) -> _C:
        """Run a call that opens something. What it opens after this task was cancelled is closed: nobody else knows of it."""
        made = self._pool.submit(make)
        try:
            return await asyncio.wrap_future(made)
        except asyncio.CancelledError:
            made.add_done_callback(self._abandoned)
            raise

    def _abandoned(self, made: Future[_C]) -> None:
        if not made.cancelled() and made.exception() is None:
            with suppress(RuntimeError):  # the connection is closed, and what belongs to it
                self._pool.submit(made.result().close)

    async def __aenter__(self) -> AsyncConnection:
        return await self.open()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


class AsyncQueue:
    """A queue or an exchange of a broker, made by `AsyncConnection.queue`. It holds nothing.

    Attributes:
        connection: Connection that it belongs to.
        address: Address that it was made with.
    """

    def __init__(self, connection: AsyncConnection, address: str) -> None:
        self.connection = connection
        self.address = address

    async def send(self, body: Sendable | None = None, **fields: Unpack[Fields]) -> None:
        """Send a message, and return when the broker has confirmed it.

        Args:
            body: As of `Connection.send`.
            **fields: As of `Connection.send`.

        Raises:
            PenstockError: As of `Connection.send`.
        """
        await self.connection.send(self.address, body, **fields)

    async def receive(
        self,
        *,
        timeout: float | None = None,
        limit: int | None = None,
        selector: str | None = None,
        prefetch: int = PREFETCH,
    ) -> AsyncIterator[ReceivedMessage]:
        """Go through the messages, one at a time, in their order. They are accepted when those of `Queue.receive` are.

        A loop that ends early by `break` gives its last message back when the iterator is closed: `contextlib.aclosing` does so
        at once, the event loop a moment later.

        Args:
            timeout: Seconds without a message after which the loop ends. None: it goes on for ever.
            limit: The loop ends after so many messages.
            selector: Only messages that match, such as `"colour = 'red' AND size > 5"`.
            prefetch: Messages that wait here at most.

        Yields:
            The messages.

        Raises:
            PenstockError: The broker refuses, or the connection is lost for good.

        Example:
            async for message in connection.queue("orders").receive(timeout=5):
                print(message.json())
        """
        wait = self.connection.wait
        opened = partial(self.connection.connection.session, AcknowledgeMode.INDIVIDUAL)
        session = await self.connection._opened(opened)
        try:
            window = prefetch if limit is None else min(prefetch, limit)
            consumer = await wait(partial(session.consumer, self.address, prefetch=window, selector=selector))
            arrived = _wakes(consumer)
            seen = 0
            while limit is None or seen < limit:
                arrived.clear()
                message = consumer.receive(0)
                if message is None:
                    if not await _set_within(arrived, timeout):
                        return
                    continue
                yield message
                seen += 1
                if message.outcome is None:
                    session.accept_if_held(message)
        finally:
            if not session.closed:  # with its connection, whose threads may be gone by now
                await wait(session.close)


def _wakes(consumer: Consumer) -> asyncio.Event:
    """Return an event of this loop that is set whenever something has come for the consumer, its end included."""
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(arrived.set)

    consumer.on_arrival = wake
    return arrived


async def _set_within(event: asyncio.Event, timeout_s: float | None) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except asyncio.TimeoutError:
        return False
    return True


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
    """Make a connection for asyncio, to be opened by `async with`.

    Args:
        urls: As of `penstock.connect`, and so are the others.
        user: User name.
        password: The user's password.
        ca_file: PEM file of the authority that signed the broker's certificate. None: those of the system.
        cert_file: PEM file of a client certificate to log in with.
        key_file: PEM file of its key. None: it is in `cert_file`.
        client_id: Container id at the broker. None: a new one.
        timeout_s: Seconds that each wait for the broker takes at most.
        reconnect: When to try which server after a loss. None: a loss is final.
        on_error: Gets errors that no call can raise, on a thread of the client.

    Returns:
        A connection that is not open yet.
    """
    made = partial(connect, urls, user, password, ca_file=ca_file, cert_file=cert_file, key_file=key_file)
    return AsyncConnection(partial(made, client_id=client_id, timeout_s=timeout_s, reconnect=reconnect, on_error=on_error))
