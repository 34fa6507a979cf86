"""A store for commands: a request that fails is made again for a while. The broker's copier waits by itself, without an end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from ..journal.disk import Buffer
from .stores import NoSuchObject, Store, StoreError

RETRY_FIRST_S, RETRY_MOST_S = 0.2, 30.0

T = TypeVar("T")


def retry_after(attempts: int) -> float:
    """Return the seconds to wait after so many failures one after the other."""
    return min(RETRY_MOST_S, RETRY_FIRST_S * 2.0 ** min(attempts - 1, 16))


class PatientStore:
    """A `Store` that makes each request again for `limit_s` seconds while it fails; `said` is told of the first failure.

    After a failure `create` may find the object that it has put itself: `Chain` knows its own. `put` is made once, since its data
    may be read once: who calls it has `patiently`.
    """

    def __init__(self, store: Store, limit_s: float, said: Callable[[StoreError], None]) -> None:
        self.url = store.url
        self._store, self._limit_s, self._said = store, limit_s, said
        self._in_trouble = False

    def patiently(self, request: Callable[[], T]) -> T:
        """Return the result of `request`, made again while it raises StoreError. An object that is not there stays away."""
        attempts, deadline = 0, time.monotonic() + self._limit_s
        while True:
            try:
                found = request()
            except NoSuchObject:
                raise
            except StoreError as error:
                attempts += 1
                if time.monotonic() >= deadline:
                    raise
                if not self._in_trouble:  # several threads may ask: one of them says it
                    self._in_trouble = True
                    self._said(error)
            else:
                self._in_trouble = False
                return found
            time.sleep(min(retry_after(attempts), max(0.0, deadline - time.monotonic())))

    def create(self, name: str, data: Sequence[Buffer]) -> bool:
        """Put an object if there is none of that name."""
        return self.patiently(partial(self._store.create, name, data))

    def put(self, name: str, data: Iterable[bytes]) -> None:
        """Put an object, in place of one of that name; once."""
        self._store.put(name, data)

    def get(self, name: str) -> bytes:
        """Return a whole object."""
        return self.patiently(partial(self._store.get, name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return bytes of an object."""
        return self.patiently(partial(self._store.get_range, name, start, length))

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with a folder's name."""
        return self.patiently(partial(self._store.names, prefix))

    def delete(self, name: str) -> None:
        """Delete an object."""
        self.patiently(partial(self._store.delete, name))
