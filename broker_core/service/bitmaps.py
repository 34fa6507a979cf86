"""Bitmaps of matches, by selector and block, within a budget."""

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

MAX_BYTES = 64 << 20  # of all bitmaps: 8 KiB for 64 Ki messages, so about 500 million messages for one selector
ENTRY_BYTES = 400  # of a bitmap besides its bits

_NONE = np.zeros(BLOCK_ROWS, np.bool_)
_Key = tuple[str, int, int]


class MatchBitmap(NamedTuple):
    """The matches among the first `rows` rows of a block. No bits: no match."""

    rows: int
    bits: bytes

    def array(self) -> npt.NDArray[np.bool_]:
        if not self.bits:
            return _NONE[: self.rows]
        return np.unpackbits(np.frombuffer(self.bits, np.uint8), count=self.rows, bitorder="little").view(np.bool_)

    def extended(self, values: npt.NDArray[np.bool_]) -> MatchBitmap:
        rows = self.rows + len(values)
        if not self.bits and not values.any():
            return MatchBitmap(rows, b"")
        return MatchBitmap(rows, np.packbits(np.concatenate([self.array(), values]), bitorder="little").tobytes())


_NOTHING = MatchBitmap(0, b"")


class View:
    """The known matches of one selector in one queue, with the bitmaps that one request reads: `engine.search.Matching`."""

    def __init__(self, cache: Cache, text: str, queue: Queue) -> None:
        self._cache, self._text, self._queue = cache, text, queue
        self._seen: dict[int, MatchBitmap] = {}

    def known(self, queue: Queue, block: int) -> npt.NDArray[np.bool_]:
        if queue is not self._queue:  # deleted and declared again since
            return _NONE
        return self.bitmap(block).array()

    def bitmap(self, block: int) -> MatchBitmap:
        return self.saw(block, self._cache.get(self._text, self._queue, block))

    def saw(self, block: int, bitmap: MatchBitmap) -> MatchBitmap:
        """Keep and return the longer of two bitmaps of a block. One extends the other."""
        seen = self._seen.get(block, _NOTHING)
        if bitmap.rows > seen.rows:
            seen = self._seen[block] = bitmap
        return seen


class Cache:
    """The bitmaps of all selectors, without the least recently used ones beyond the budget. Used under the broker's lock."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bitmaps: OrderedDict[_Key, MatchBitmap] = OrderedDict()
        self._incarnations: WeakKeyDictionary[Queue, int] = WeakKeyDictionary()  # declared again, it is another
        self._numbers = itertools.count()
        self.bytes = 0

    def _key(self, text: str, queue: Queue, block: int) -> _Key:
        number = self._incarnations.get(queue)
        if number is None:
            number = self._incarnations[queue] = next(self._numbers)
        return text, number, block

    def get(self, text: str, queue: Queue, block: int) -> MatchBitmap:
        key = self._key(text, queue, block)
        bitmap = self._bitmaps.get(key)
        if bitmap is None:
            return _NOTHING
        self._bitmaps.move_to_end(key)
        return bitmap

    def put(self, text: str, queue: Queue, block: int, bitmap: MatchBitmap) -> None:
        key = self._key(text, queue, block)
        before = self._bitmaps.pop(key, None)
        if before is not None:
            self.bytes -= len(before.bits) + ENTRY_BYTES
        self._bitmaps[key] = bitmap
        self.bytes += len(bitmap.bits) + ENTRY_BYTES
        while self.bytes > self._max_bytes:
            _, gone = self._bitmaps.popitem(last=False)
            self.bytes -= len(gone.bits) + ENTRY_BYTES
