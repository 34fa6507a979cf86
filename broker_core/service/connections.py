"""Connections over all planes, which operators list and close."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection
from typing import Any, Protocol

STARVED_S = 5.0  # after a failure to accept a connection
SLOW_S = 60.0  # a slow consumer settles nothing for longer, without credit or capacity, while messages wait

log = logging.getLogger("penstock")


class ConnectionSource(Protocol):
    """The connections of one plane. Called from any thread but the plane's loop, without the broker's lock."""

    def connections(self) -> list[dict[str, Any]]:
        """Return `id` (unique in one life of the broker), `protocol`, `user`, `peer`, `container`, `tls`, `since` (microseconds
        since 1970), `sessions`, `slow`, `links` of each."""

    def consumers(self, queue: str, holders: Collection[int]) -> list[dict[str, Any]]:
        """Return these consumers of a queue, by their numbers in the engine: their links as in `connections`, without groups, and
        `connection` (its id), `user`, `peer`, `container`, `holder`, `obstacle`, and `behind` (holders with precedence)."""

    def slow_consumers(self) -> Counter[str]:
        """By queue: see `SLOW_S`."""

    def close_connection(self, identifier: str, reason: str) -> bool:
        """Send the peer the reason. False if there is no such id."""


class Connections:
    """The connections of one broker."""

    def __init__(self) -> None:
        self._sources: tuple[ConnectionSource, ...] = ()
        self.few_files: str | None = None  # how the limit of open files restricts the connections
        self._starved: dict[str, float] = {}  # by protocol, the last failure to accept a connection

    def cannot_accept(self, protocol: str, reason: str) -> None:
        """Note that no file descriptor was left. For any thread. Each shortage is logged once."""
        now = time.monotonic()
        if now - self._starved.get(protocol, -STARVED_S) >= STARVED_S:
            log.error("%s: no connection can be accepted: %s. New connections wait, the existing ones continue", protocol, reason)
        self._starved[protocol] = now

    def starved(self) -> list[str]:
        now = time.monotonic()
        return sorted(protocol for protocol, then in list(self._starved.items()) if now - then < STARVED_S)

    def register(self, source: ConnectionSource) -> None:
        self._sources = (*self._sources, source)

    def remove(self, source: ConnectionSource) -> None:
        self._sources = tuple(known for known in self._sources if known is not source)

    def all(self) -> list[dict[str, Any]]:
        connections = [connection for source in self._sources for connection in source.connections()]
        return sorted(connections, key=lambda connection: (connection["since"], connection["id"]))

    def consumers(self, queue: str, holders: Collection[int]) -> list[dict[str, Any]]:
        return [consumer for source in self._sources for consumer in source.consumers(queue, holders)]

    def slow(self) -> Counter[str]:
        """Raises ResourceLimit when a plane does not answer, or stops."""
        return sum((source.slow_consumers() for source in self._sources), Counter[str]())

    def close(self, identifier: str, reason: str) -> bool:
        """As `ConnectionSource.close_connection`."""
        return any(source.close_connection(identifier, reason) for source in self._sources)
