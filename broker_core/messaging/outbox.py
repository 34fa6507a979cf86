"""Sends of a connection that name an address each time: producers are kept for the addresses used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .producer import Producer
from .sending import Sendable

if TYPE_CHECKING:
    from .connection import Connection
    from .session import Session

#: Addresses whose producer, with a link of its own, is kept while nobody sends to them.
MAX_IDLE_PRODUCERS = 64


class Outbox:
    """A session of a connection for `Connection.send`, opened with the first one. For any number of threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._idle: OrderedDict[str, Producer] = OrderedDict()  # the one that was used last at the end
        self._used: dict[str, tuple[Producer, int]] = {}  # and by how many calls

    def send(self, address: str, message: Sendable) -> None:
        """Send a message, and wait for its confirmation. Raises the error of a refusal."""
        with self._producer(address) as producer:
            producer.send(message, synchronous=True)

    @contextmanager
    def _producer(self, address: str) -> Iterator[Producer]:
        with self._lock:
            producer, users = self._used.get(address) or (self._idle_or_new(address), 0)
            self._used[address] = producer, users + 1
        try:
            yield producer
        finally:
            with self._lock:
                producer, users = self._used.pop(address)
                if users > 1:
                    self._used[address] = producer, users - 1
                elif not producer.failed:
                    self._keep(address, producer)

    def _idle_or_new(self, address: str) -> Producer:
        if address in self._idle:
            return self._idle.pop(address)
        if self._session is None:
            self._session = self._connection.session()
        return self._session.producer(address)

    def _keep(self, address: str, producer: Producer) -> None:
        self._idle[address] = producer
        if len(self._idle) > MAX_IDLE_PRODUCERS:
            self._idle.popitem(last=False)[1].detach()  # all that it sent is confirmed
