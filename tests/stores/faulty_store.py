"""A store in memory that fails as real ones do at the worst moment: the caller cannot tell whether a request was carried out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from penstock.broker_core.stores.objects import NoSuchObject, StoreError


class FaultyStore:
    """An `ObjectStore`. `objects` is its content; several stores may share one such dict, as writers share a bucket.

    `fail(call, name)` returns the error of a request before it is carried out, or None; `lose(call, name)` the error afterwards.
    `stop_at`: from the n-th request on, the process is off. With `stop_after` that request is carried out.
    """

    def __init__(self, objects: dict[str, bytes] | None = None, url: str = "faulty://store") -> None:
        self.objects = objects if objects is not None else {}
        self.url = url
        self.calls: Counter[str] = Counter()
        self.fail: Callable[[str, str], Exception | None] = lambda call, name: None
        self.lose: Callable[[str, str], Exception | None] = lambda call, name: None
        self.stop_at: int | None = None
        self.stop_after = False
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._steps = 0

    def _before(self, call: str, name: str) -> bool:
        """True: carry it out and then fail."""
        with self._lock:
            self.calls[call] += 1
            self._steps += 1
            if self.stopped.is_set():
                raise StoreError("the machine is off")
            if self._steps == self.stop_at:
                self.stopped.set()
                if not self.stop_after:
                    raise StoreError("the machine is off")
                return True
        error = self.fail(call, name)
        if error is not None:
            raise error
        return False

    def _after(self, call: str, name: str, off: bool) -> None:
        if off:
            raise StoreError("the machine is off")
        error = self.lose(call, name)
        if error is not None:
            raise error

    def create(self, name: str, data: Sequence[bytes]) -> bool:
        off = self._before("create", name)
        with self._lock:
            exists = name in self.objects
            if not exists:
                self.objects[name] = b"".join(data)
        self._after("create", name, off)
        return not exists

    def put(self, name: str, data: Iterable[bytes]) -> None:
        off = self._before("put", name)
        self.objects[name] = b"".join(data)
        self._after("put", name, off)

    def get(self, name: str) -> bytes:
        self._before("get", name)
        if name not in self.objects:
            raise NoSuchObject(name)
        return self.objects[name]

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.get(name)[start : start + length]

    def names(self, prefix: str) -> list[str]:
        self._before("names", prefix)
        return sorted(name for name in list(self.objects) if name.startswith(prefix))

    def delete(self, name: str) -> None:
        off = self._before("delete", name)
        self.objects.pop(name, None)
        self._after("delete", name, off)
