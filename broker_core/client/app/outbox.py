"""Sends of a connection that name an address each time: producers are kept for the addresses used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ... import errors
from .producer import Producer
from .sending import Sendable

if TYPE_CHECKING:
    from .connection import Connection
    from .session import Session

#: Addresses whose producer, with a link of its own, is kept while nobody sends to them.
MAX_IDLE_PRODUCERS = 64


@dataclass(eq=False)
class _Used:
    """A producer that calls use, or will use once the first of them has attached it."""

    attached: Future[Producer] = field(default_factory=Future)
    calls: int = 0

    @property
    def failed(self) -> bool:
        return self.attached.done() and (self.attached.exception() is not None or self.attached.result().failed)


class Outbox:
    """A session of a connection for `Connection.send`, opened with the first one. For any number of threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()  # held for a moment, never while the broker is waited for
        self._opening = threading.Lock()
        self._session: Session | None = None
        self._idle: OrderedDict[str, Producer] = OrderedDict()  # the one that was used last at the end
        self._used: dict[str, _Used] = {}

    def send(self, address: str, message: Sendable) -> None:
        """Send a message, and wait for its confirmation. Raises the error of a refusal."""
        with self._producer(address) as producer:
            producer.send(message, synchronous=True)

    @contextmanager
    def _producer(self, address: str) -> Iterator[Producer]:
        idle: Producer | None = None
        with self._lock:
            used = self._used.get(address)
            first = used is None or used.failed
            if used is None or first:
                used = self._used[address] = _Used()
                idle = self._idle.pop(address, None)
            used.calls += 1
        try:
            if first:
                self._attach(address, used, idle)
            yield used.attached.result()
        finally:
            if first and not used.attached.done():
                used.attached.set_exception(errors.PeerError(f"the call that attached to {address!r} was interrupted: try again"))
            with self._lock:
                used.calls -= 1
                if used.calls == 0:
                    self._give_back(address, used)

    def _attach(self, address: str, used: _Used, idle: Producer | None) -> None:
        """Attach a producer for whoever waits for this address; sends to others go on meanwhile."""
        try:
            if idle is not None and idle.failed:  # while nobody used it: its queue was deleted, say
                idle.detach()
                idle = None
            used.attached.set_result(idle or self._opened().producer(address))
        except Exception as error:
            used.attached.set_exception(error)

    def _opened(self) -> Session:
        with self._opening:  # a session is needed for every address
            if self._session is None:
                self._session = self._connection.session()
            return self._session

    def _give_back(self, address: str, used: _Used) -> None:
        if self._used.get(address) is used:
            del self._used[address]
        if used.attached.exception() is not None:
            return
        producer = used.attached.result()
        if producer.failed:
            producer.detach()
            return
        self._idle[address] = producer
        if len(self._idle) > MAX_IDLE_PRODUCERS:
            self._idle.popitem(last=False)[1].detach()  # all that it sent is confirmed
