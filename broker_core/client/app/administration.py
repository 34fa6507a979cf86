"""Requests about queues. They go to the Flight endpoint of the broker in use, with the same login."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import Unreachable
from ..credentials import Credentials

if TYPE_CHECKING:
    from ..flight import Client


class RedriveResult(NamedTuple):
    """Result of a redrive.

    Attributes:
        messages: Number of messages that are back in their queues.
        stayed: Number of messages that stayed: their queue is deleted or full, or has a newer value.
    """

    messages: int
    stayed: int


class Administration:
    """Requests of one connection, for any number of threads."""

    def __init__(self, credentials: Credentials, timeout_s: float) -> None:
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._client: Client | None = None

    def declare(self, url: str, queue: str, kind: str, options: dict[str, Any]) -> bool:
        return bool(self._call(url, "queue.declare", queue=queue, type=kind, options=options)["created"])

    def delete(self, url: str, queue: str, *, force: bool) -> int:
        answer = self._call(url, "queue.delete", queue=queue, force=force, ifEmpty=not force, ifUnused=not force)
        return int(answer["messages"])

    def redrive(self, url: str, queue: str, limit: int | None, selector: str | None) -> RedriveResult:
        answer = self._call(url, "queue.redrive", queue=queue, messages=limit, selector=selector)
        return RedriveResult(answer["redriven"], answer["stayed"])

    def _call(self, url: str, action: str, **fields: Any) -> dict[str, Any]:
        try:
            return self._client_of(url).call(action, **fields)
        except Unreachable:  # the next call discovers the new endpoint of a restarted broker
            return self._client_of(url).call(action, **fields)

    def _client_of(self, url: str) -> Client:
        from ..flight import Client  # imports pyarrow, which sending and receiving do not need

        with self._lock:
            if self._client is not None and self._client.url != url:
                self._client.close()  # of the server before a failover
                self._client = None
            if self._client is None:
                self._client = Client(url, self._credentials, timeout_s=self._timeout_s)
            return self._client

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None
