"""The interface of stores. A folder as a store is in folders.py, object stores are in buckets.py; urls.py opens either.

A store holds objects by name (`a/b-c`): whole or absent, never changed after they were put. A store may fail at any request,
with `StoreError`, and then it is not known whether that was carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ..errors import PeerError
from ..journal.disk import Buffer


class StoreError(PeerError):
    """A request to a store that failed, or whose answer was lost. The same request may be made again."""


class NoSuchObject(StoreError):
    """An object, or the whole bucket, that is not there."""


class Store(Protocol):
    """Objects below one URL. Any thread may call; every method may raise StoreError."""

    url: str

    def create(self, name: str, data: Sequence[Buffer]) -> bool:
        """Put an object if there is none of that name; False, without a change, where there is one."""

    def put(self, name: str, data: Iterable[bytes]) -> None:
        """Put an object, in place of one of that name."""

    def get(self, name: str) -> bytes:
        """Return a whole object. Raises NoSuchObject."""

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return bytes of an object, `length` of them unless it ends before. Raises NoSuchObject."""

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with a folder's name, `prefix`, sorted."""

    def delete(self, name: str) -> None:
        """Delete an object; nothing happens where there is none."""
