"""Connections of clients, over all planes: listed and closed by operators. A plane registers itself; this knows no protocol."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

STARVED_S = 5.0  # after which a plane that could not accept a connection counts as able to again
SLOW_S = 60.0  # a consumer that settles nothing for longer, and can be sent nothing more while messages wait, is slow

log = logging.getLogger("penstock")


class ConnectionSource(Protocol):
    """A plane, as far as its connections go. Called from any thread but its own loop's, and without the broker's lock."""

    def connections(self) -> list[dict[str, Any]]:
        """Describe the connections: `id` (unique in one life of the broker), `protocol`, `user`, `peer`, `container`, `tls`,
        `since` (microseconds since 1970), `sessions`, `slow`, `links`."""

    def slow_consumers(self) -> Counter[str]:
        """Count slow consumers by queue: see `SLOW_S`."""

    def close_connection(self, identifier: str, reason: str) -> bool:
        """Close a connection, and tell its peer why. False where there is none of this id."""


class Connections:
    """The connections of one broker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._sources: tuple[ConnectionSource, ...] = ()
        self._clock = clock
        self._starved: dict[str, float] = {}  # by protocol, when a connection could not be accepted last

    def cannot_accept(self, protocol: str, reason: str) -> None:
        """Note that a plane could not accept a connection, for want of a file descriptor. Any thread may call it, any number of
        times: the log gets one line per shortage.
        """
        now = self._clock()
        if now - self._starved.get(protocol, -STARVED_S) >= STARVED_S:
            log.error("%s: no connection can be accepted: %s. New connections wait, the existing ones continue", protocol, reason)
        self._starved[protocol] = now

    def starved(self) -> list[str]:
        """Return the protocols whose planes could not accept a connection within the last `STARVED_S` seconds."""
        now = self._clock()
        return sorted(protocol for protocol, then in list(self._starved.items()) if now - then < STARVED_S)

    def register(self, source: ConnectionSource) -> None:
        """Add the connections of a plane."""
        self._sources = (*self._sources, source)

    def remove(self, source: ConnectionSource) -> None:
        """Take a plane out that stops."""
        self._sources = tuple(each for each in self._sources if each is not source)

    def all(self) -> list[dict[str, Any]]:
        """Describe every connection, the oldest first."""
        found = [each for source in self._sources for each in source.connections()]
        return sorted(found, key=lambda each: (each["since"], each["id"]))

    def slow(self) -> Counter[str]:
        """Count slow consumers by queue. Raises ResourceLimit when a plane does not answer, or stops."""
        found: Counter[str] = Counter()
        for source in self._sources:
            found += source.slow_consumers()
        return found

    def close(self, identifier: str, reason: str) -> bool:
        """Close a connection, and tell its peer why. Returns False if no plane has this id."""
        return any(source.close_connection(identifier, reason) for source in self._sources)
