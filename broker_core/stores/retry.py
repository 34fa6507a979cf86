"""A store for commands, which repeats failed requests. The broker's copier repeats its requests itself, without end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from .objects import Buffer, NoSuchObject, ObjectStore, StoreError

RETRY_FIRST_S, RETRY_MOST_S = 0.2, 30.0

T = TypeVar("T")


def retry_after(attempts: int) -> float:
    return min(RETRY_MOST_S, RETRY_FIRST_S * 2.0 ** min(attempts - 1, 16))


class RetryingStore:
    """An `ObjectStore` that repeats a failed request for `limit_s` seconds. `on_trouble` is called with the first failure.

    After a failure, `create` may find its own object, which `Chain` recognizes. `put` is not repeated, because its data can be
    read only once; its caller uses `repeat`.
    """

    def __init__(self, store: ObjectStore, limit_s: float, on_trouble: Callable[[StoreError], None]) -> None:
        self.url = store.url
        self._store, self._limit_s, self._on_trouble = store, limit_s, on_trouble
        self._in_trouble = False

    def repeat(self, request: Callable[[], T]) -> T:
        """Repeat `request` while it raises StoreError, but not after NoSuchObject."""
        attempts, deadline = 0, time.monotonic() + self._limit_s
        while True:
            try:
                result = request()
            except NoSuchObject:
                raise
            except StoreError as error:
                attempts += 1
                if time.monotonic() >= deadline:
                    raise
                if not self._in_trouble:  # several threads may fail, and one reports it
                    self._in_trouble = True
                    self._on_trouble(error)
            else:
                self._in_trouble = False
                return result
            time.sleep(min(retry_after(attempts), max(0.0, deadline - time.monotonic())))

    def create(self, name: str, data: Sequence[Buffer]) -> bool:
        return self.repeat(partial(self._store.create, name, data))

    def put(self, name: str, data: Iterable[bytes]) -> None:
        self._store.put(name, data)

    def get(self, name: str) -> bytes:
        return self.repeat(partial(self._store.get, name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.repeat(partial(self._store.get_range, name, start, length))

    def names(self, prefix: str) -> list[str]:
        return self.repeat(partial(self._store.names, prefix))

    def delete(self, name: str) -> None:
        self.repeat(partial(self._store.delete, name))
