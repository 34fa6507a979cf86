"""Broker connections that later tasks of a process use again: connecting takes as long as reading a small batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ...broker_core.client.flight import Client
from ..access import BrokerAccess

MOST_IDLE = 4  # a worker runs one task at a time, perhaps of several queries
IDLE_S = 30.0  # then an idle connection is closed: a firewall may have dropped it silently
AGE_S = 600.0  # then a connection is replaced, so that certificates and names are resolved again


class _Idle(NamedTuple):
    access: BrokerAccess
    client: Client
    made: float
    left: float


class ConnectionPool:
    """At most `most` idle connections, each lent to one task at a time for an equal `BrokerAccess`.

    If this module is shipped by value, every task gets a new pool without idle connections.
    """

    def __init__(self, most: int = MOST_IDLE, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []

    def __reduce__(self) -> tuple[type[ConnectionPool], tuple[int]]:
        return ConnectionPool, (0,)

    def __len__(self) -> int:
        return len(self._idle)

    @contextmanager
    def lent(self, access: BrokerAccess) -> Iterator[Client]:
        """The connection is kept if the task ends without an error.

        Use it for idempotent requests: the broker may have closed it.
        """
        idle = self._take(access)
        client, made = (access.client(), self._clock()) if idle is None else (idle.client, idle.made)
        try:
            yield client
        except BaseException:  # also of a killed task, which may leave a stream unread
            client.close()
            raise
        self._keep(_Idle(access, client, made, self._clock()))

    def _take(self, access: BrokerAccess) -> _Idle | None:
        with self._lock:
            gone = self._outdated()
            match = next((idle for idle in reversed(self._idle) if idle.access == access), None)
            if match is not None:
                self._idle.remove(match)
        _close(gone)
        return match

    def _keep(self, idle: _Idle) -> None:
        with self._lock:
            self._idle.append(idle)
            gone = self._outdated()
            while len(self._idle) > self._most:
                gone.append(self._idle.pop(0))
        _close(gone)

    def _outdated(self) -> list[_Idle]:
        now = self._clock()
        gone = [idle for idle in self._idle if now - idle.left > IDLE_S or now - idle.made > AGE_S]
        self._idle = [idle for idle in self._idle if idle not in gone]
        return gone


def _close(gone: list[_Idle]) -> None:
    for idle in gone:
        idle.client.close()


CONNECTIONS = ConnectionPool()
