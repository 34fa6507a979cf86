"""The interface of stores.

A store holds objects by name (`a/b-c`). An object is whole or absent, and never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

import pyarrow as pa

from ..errors import PeerError

Buffer: TypeAlias = bytes | bytearray | memoryview | pa.Buffer


class StoreError(PeerError):
    """A request failed, or its answer was lost, so it may have been carried out. It may be repeated."""


class NoSuchObject(StoreError):
    """The object, or the whole bucket, does not exist."""


class ObjectStore(Protocol):
    """Objects below one URL. For any thread; every method may raise StoreError."""

    url: str

    def create(self, name: str, data: Sequence[Buffer]) -> bool:
        """Put an object if the name is free. Return False, without a change, if it is taken."""

    def put(self, name: str, data: Iterable[bytes]) -> None:
        """Put an object. Replace an existing one."""

    def get(self, name: str) -> bytes:
        """Return a whole object. Raises NoSuchObject."""

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return `length` bytes of an object, or fewer if it ends before. Raises NoSuchObject."""

    def names(self, prefix: str) -> list[str]:
        """Return the names in the folder `prefix`, sorted."""

    def delete(self, name: str) -> None:
        """Delete an object. Do nothing if it does not exist."""
