"""Bitmaps of what matches: by selector and block, within a budget; and what a search sees of them.

What is known is a prefix of each block, which grows as the block does, and never changes.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from ..engine.columns.rowset import BLOCK_ROWS

if TYPE_CHECKING:
    from ..engine.model.queue import Queue

MAX_BYTES = 64 << 20  # of all bitmaps together: 8 KiB for 64 Ki messages, so some 500 million messages under one selector
ENTRY_BYTES = 400  # what a bitmap takes besides its bits

_NONE = np.zeros(BLOCK_ROWS, np.bool_)
_Key = tuple[str, int, int]  # selector, queue incarnation, block


class MatchBitmap(NamedTuple):
    """The first `rows` rows of a block. No bits at all: none of them matches."""

    rows: int
    bits: bytes

    def array(self) -> npt.NDArray[np.bool_]:
        """Unpack to one bool for each row."""
        if not self.bits:
            return _NONE[: self.rows]
        return np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.rows, bitorder="little").view(np.bool_)

    def extended(self, values: npt.NDArray[np.bool_]) -> MatchBitmap:
        """Return this bitmap with more rows behind it."""
        rows = self.rows + len(values)
        if not self.bits and not values.any():
            return MatchBitmap(rows, b"")
        return MatchBitmap(rows, np.packbits(np.concatenate([self.array(), values]), bitorder="little").tobytes())


_NOTHING = MatchBitmap(0, b"")


class View:
    """Matches of one selector in one queue, as far as they are known: `engine.search.Matching`.

    For one command, or several of one request: what they have seen stays known to them."""

    def __init__(self, cache: Cache, text: str, queue: Queue) -> None:
        self._cache, self._text, self._queue = cache, text, queue
        self._seen: dict[int, MatchBitmap] = {}

    def known(self, queue: Queue, block: int) -> npt.NDArray[np.bool_]:
        """Return the known prefix of a block; nothing where the queue is another one by now."""
        if queue is not self._queue:  # it was deleted and declared again since
            return _NONE
        return self.bitmap(block).array()

    def bitmap(self, block: int) -> MatchBitmap:
        """All that is known of a block."""
        return self.saw(block, self._cache.get(self._text, self._queue, block))

    def saw(self, block: int, bitmap: MatchBitmap) -> MatchBitmap:
        """Keep the longer of two bitmaps of a block, one of which extends the other; return it."""
        seen = self._seen.get(block, _NOTHING)
        if bitmap.rows > seen.rows:
            seen = self._seen[block] = bitmap
        return seen


class Cache:
    """Only ever asked under the broker's lock."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bitmaps: OrderedDict[_Key, MatchBitmap] = OrderedDict()
        self._incarnations: WeakKeyDictionary[Queue, int] = WeakKeyDictionary()  # a queue declared again is another
        self._numbers = itertools.count()
        self.bytes = 0

    def _key(self, text: str, queue: Queue, block: int) -> _Key:
        number = self._incarnations.get(queue)
        if number is None:
            number = self._incarnations[queue] = next(self._numbers)
        return text, number, block

    def get(self, text: str, queue: Queue, block: int) -> MatchBitmap:
        """Return the bitmap of a selector and a block; an empty one where none is kept."""
        key = self._key(text, queue, block)
        found = self._bitmaps.get(key)
        if found is None:
            return _NOTHING
        self._bitmaps.move_to_end(key)
        return found

    def put(self, text: str, queue: Queue, block: int, bitmap: MatchBitmap) -> None:
        """Keep a bitmap; drop the least recently used ones beyond the budget."""
        key = self._key(text, queue, block)
        before = self._bitmaps.pop(key, None)
        if before is not None:
            self.bytes -= len(before.bits) + ENTRY_BYTES
        self._bitmaps[key] = bitmap
        self.bytes += len(bitmap.bits) + ENTRY_BYTES
        while self.bytes > self._max_bytes:
            _, gone = self._bitmaps.popitem(last=False)
            self.bytes -= len(gone.bits) + ENTRY_BYTES
