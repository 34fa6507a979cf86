"""A pipeline for asyncio: a send waits on a thread only while the window is full."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..public import Public
from .composing import Fields, Sendable
from .pipeline import Pipeline
from .producer import Confirmation

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .connection import Connection

_T = TypeVar("_T")


class CallRunner(Protocol):
    """The part of an AsyncConnection that runs calls on threads."""

    @property
    def connection(self) -> Connection: ...

    async def wait(self, call: Callable[[], _T]) -> _T: ...

    async def opened(self, call: Callable[[], Pipeline]) -> Pipeline: ...


class AsyncPipeline(Public):
    """Sends messages without waiting for each confirmation, inside `async with`. Made by `AsyncQueue.pipeline`."""

    _internal = "put"

    def __init__(self, connection: CallRunner, address: str, window: int) -> None:
        self._connection = connection
        self._open = partial(Pipeline, address=address, window=window)
        self._pipeline: Pipeline | None = None

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline for threads, with the counts and the errors.

        Raises:
            RuntimeError: Before `async with`.
        """
        if self._pipeline is None:
            raise RuntimeError("this pipeline is not open: use `async with`")
        return self._pipeline

    async def send(self, body: Sendable | None = None, **fields: Unpack[Fields]) -> Confirmation:
        """Send one message: see `Pipeline.send`. Waits only while the window is full.

        Args:
            body: As of `AsyncConnection.send`.
            **fields: As of `AsyncConnection.send`.

        Returns:
            Confirmation, whose `error` is this message's own.
        """
        return await self.put(self.pipeline.payload(body, fields))

    async def put(self, payload: bytes) -> Confirmation:
        pipeline = self.pipeline
        if pipeline.producer.has_room(len(payload)):
            return pipeline.put(payload)
        return await self._connection.wait(partial(pipeline.put, payload))

    async def flush(self) -> None:
        """Wait until every message is confirmed.

        Raises:
            NotAllSent: As of `Pipeline.flush`.
        """
        await self._connection.wait(self.pipeline.flush)

    async def __aenter__(self) -> AsyncPipeline:
        self._pipeline = await self._connection.opened(partial(self._open, self._connection.connection))
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._connection.wait(partial(self.pipeline.__exit__, *error))


async def iterate(items: Any) -> AsyncIterator[Any]:
    if hasattr(items, "__aiter__"):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
