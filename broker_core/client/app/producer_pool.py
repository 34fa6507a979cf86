"""Producers for sends that name an address each time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from ... import errors
from .producer import Producer
from .session import Session

#: The last used ones stay open, with their links.
MAX_IDLE_PRODUCERS = 64


@dataclass(eq=False)
class _Use:
    """A producer in use, which the first of its `calls` attaches."""

    attached: Future[Producer] = field(default_factory=Future)
    calls: int = 0

    @property
    def has_failed(self) -> bool:
        return self.attached.done() and (self.attached.exception() is not None or self.attached.result().failed)


class ProducerPool:
    """Producers of one session, which `open_session` opens at first use. For any number of threads."""

    def __init__(self, open_session: Callable[[], Session]) -> None:
        self._open_session = open_session
        self._lock = threading.Lock()  # never while a thread waits for the broker
        self._opening = threading.Lock()
        self._session: Session | None = None
        self._idle: OrderedDict[str, Producer] = OrderedDict()  # the last used at the end
        self._uses: dict[str, _Use] = {}

    @contextmanager
    def producer(self, address: str) -> Iterator[Producer]:
        idle: Producer | None = None
        with self._lock:
            use = self._uses.get(address)
            is_first = use is None or use.has_failed
            if use is None or is_first:
                use = self._uses[address] = _Use()
                idle = self._idle.pop(address, None)
            use.calls += 1
        try:
            if is_first:
                self._attach(address, use, idle)
            yield use.attached.result()
        finally:
            if is_first and not use.attached.done():
                use.attached.set_exception(errors.PeerError(f"the call that attached to {address!r} was interrupted: try again"))
            with self._lock:
                use.calls -= 1
                if use.calls == 0:
                    self._give_back(address, use)

    def _attach(self, address: str, use: _Use, idle: Producer | None) -> None:
        try:
            if idle is not None and idle.failed:  # its queue may have been deleted while it was idle
                idle.detach()
                idle = None
            use.attached.set_result(idle or self._opened().producer(address))
        except Exception as error:
            use.attached.set_exception(error)

    def _opened(self) -> Session:
        with self._opening:
            if self._session is None:
                self._session = self._open_session()
            return self._session

    def _give_back(self, address: str, use: _Use) -> None:
        if self._uses.get(address) is use:
            del self._uses[address]
        if use.attached.exception() is not None:
            return
        producer = use.attached.result()
        if producer.failed:
            producer.detach()
            return
        self._idle[address] = producer
        if len(self._idle) > MAX_IDLE_PRODUCERS:
            self._idle.popitem(last=False)[1].detach()  # all that it sent is confirmed
