"""Sends of a connection that name an address each time: producers are kept for the addresses used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .producer import Producer
from .sending import Sendable

if TYPE_CHECKING:
    from .connection import Connection
    from .session import Session

#: Addresses whose producer, with a link of its own, is kept while nobody sends to them.
MAX_IDLE_PRODUCERS = 64


@dataclass(eq=False)
class _Used:
    producer: Producer
    calls: int = 0


class Outbox:
    """A session of a connection for `Connection.send`, opened with the first one. For any number of threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._idle: OrderedDict[str, Producer] = OrderedDict()  # the one that was used last at the end
        self._used: dict[str, _Used] = {}

    def send(self, address: str, message: Sendable) -> None:
        """Send a message, and wait for its confirmation. Raises the error of a refusal."""
        with self._producer(address) as producer:
            producer.send(message, synchronous=True)

    @contextmanager
    def _producer(self, address: str) -> Iterator[Producer]:
        with self._lock:
            used = self._used.get(address)
            if used is None or used.producer.failed:
                used = self._used[address] = _Used(self._idle_or_new(address))
            used.calls += 1
        try:
            yield used.producer
        finally:
            with self._lock:
                used.calls -= 1
                if used.calls == 0:
                    self._give_back(address, used)

    def _idle_or_new(self, address: str) -> Producer:
        producer = self._idle.pop(address, None)
        if producer is not None and producer.failed:  # while nobody used it: its queue was deleted, say
            producer.detach()
            producer = None
        if producer is None:
            if self._session is None:
                self._session = self._connection.session()
            producer = self._session.producer(address)
        return producer

    def _give_back(self, address: str, used: _Used) -> None:
        if self._used.get(address) is used:
            del self._used[address]
        if used.producer.failed:
            used.producer.detach()
            return
        self._idle[address] = used.producer
        if len(self._idle) > MAX_IDLE_PRODUCERS:
            self._idle.popitem(last=False)[1].detach()  # all that it sent is confirmed
