"""Row sets: the messages of one queue that an event, a reply or a batch contains.

Each block of 64 Ki sequence numbers has ranges or a bitmap: the smaller form. A bitmap covers the rows from its first to
its last. Scattered rows in memory stay numbers (`Listed`), because the code that works with them needs numbers.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .series import Rows

BLOCK_BITS = 16
BLOCK_ROWS = 1 << BLOCK_BITS  # persisted: the place of a sequence number depends on it
_RANGE_BYTES = 4  # two 16-bit numbers

Ranges = npt.NDArray[np.int32]  # [[start, stop), …] of rows
Ints = npt.NDArray[Any]


class Bitmap(NamedTuple):
    """Rows of a block as bits."""

    start: int
    bits: npt.NDArray[np.uint8]


class Listed:
    """Rows as numbers, and their short form once it was needed. More than `_FEW` rows are stored in two bytes each."""

    __slots__ = ("_packed", "_rows")

    def __init__(self, rows: Ints) -> None:
        self._rows: Ints = rows if len(rows) <= _FEW else rows.astype(np.uint16)
        self._packed: Ranges | Bitmap | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> int:
        return int(self._rows[index])

    def rows(self) -> Ints:
        return self._rows.astype(np.int64, copy=False)

    def packed(self) -> Ranges | Bitmap:
        if self._packed is None:
            self._packed = _compress(self._rows)
        return self._packed


Part = slice | Listed | Ranges | Bitmap
_FEW = BLOCK_ROWS // 64
_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def _part(rows: Rows) -> Part:
    if isinstance(rows, slice):
        return rows
    if int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return Listed(rows)


def _compress(rows: Ints) -> Ranges | Bitmap:
    apart = rows[1:] - rows[:-1] != 1  # in their small type, which is faster
    start = int(rows[0])
    width = int(rows[-1]) - start + 1
    if (np.count_nonzero(apart) + 1) * _RANGE_BYTES <= -(-width // 8):
        breaks = np.flatnonzero(apart)
        ranges = np.empty((len(breaks) + 1, 2), np.int32)
        ranges[0, 0], ranges[1:, 0] = rows[0], rows[breaks + 1]
        ranges[:-1, 1], ranges[-1, 1] = rows[breaks], rows[-1]
        ranges[:, 1] += 1  # the rows' own type could overflow
        return ranges
    mask = np.zeros(width, np.uint8)
    mask[(rows - rows[0]).astype(np.intp, copy=False)] = 1
    return Bitmap(start, np.packbits(mask, bitorder="little"))


def _expand(part: Part) -> Rows:
    if isinstance(part, slice):
        return part
    if isinstance(part, Listed):
        return part.rows()
    if isinstance(part, Bitmap):
        bits: Ints = np.flatnonzero(np.unpackbits(part.bits, bitorder="little").view(np.bool_)) + part.start
        return bits
    lengths = part[:, 1] - part[:, 0]
    offsets = np.repeat(part[:, 0] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths)
    rows: Ints = np.arange(int(lengths.sum())) + offsets
    return rows


def _count(part: Part) -> int:
    if isinstance(part, slice):
        return int(part.stop - part.start)
    if isinstance(part, Listed):
        return len(part)
    if isinstance(part, Bitmap):
        return int(np.bitwise_count(part.bits).sum(dtype=np.int64))
    return int((part[:, 1] - part[:, 0]).sum(dtype=np.int64))


def _at(part: Part, index: int) -> int:
    if isinstance(part, slice):
        return int(part.start) + index
    return part[index] if isinstance(part, Listed) else int(as_array(_expand(part))[index])


class RowSet:
    """An immutable set of sequence numbers of one queue, in order."""

    __slots__ = ("_parts", "count")

    def __init__(self, parts: dict[int, Part] | None = None) -> None:
        self._parts = parts or {}
        self.count = 0
        for part in self._parts.values():
            self.count += _count(part)

    @classmethod
    def of(cls, parts: Iterable[tuple[int, Rows]]) -> RowSet:
        """The pairs of block and rows are in ascending order. Empty ones are left out."""
        return cls({b: _part(rows) for b, rows in parts if row_count(rows)})

    @classmethod
    def of_sequences(cls, sequences: npt.NDArray[np.int64]) -> RowSet:
        """`sequences` ascend strictly."""
        if len(sequences) < 2:
            return cls.single(int(sequences[0])) if len(sequences) else cls()
        numbers = sequences >> BLOCK_BITS
        if numbers[0] == numbers[-1]:
            return cls({int(numbers[0]): _part(sequences & (BLOCK_ROWS - 1))})
        edges = np.flatnonzero(np.diff(numbers)) + 1
        parts = np.split(sequences & (BLOCK_ROWS - 1), edges)
        return cls({int(n): _part(rows) for n, rows in zip(numbers[[0, *edges]], parts, strict=True)})

    @classmethod
    def range(cls, first: int, stop: int) -> RowSet:
        parts: list[tuple[int, Rows]] = []
        while first < stop:
            block, row = first >> BLOCK_BITS, first & (BLOCK_ROWS - 1)
            end = min(BLOCK_ROWS, row + stop - first)
            parts.append((block, slice(row, end)))
            first += end - row
        return cls.of(parts)

    @classmethod
    def single(cls, sequence: int) -> RowSet:
        row = sequence & (BLOCK_ROWS - 1)
        return cls({sequence >> BLOCK_BITS: slice(row, row + 1)})

    def __len__(self) -> int:
        return self.count

    def __bool__(self) -> bool:
        return self.count > 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowSet) and np.array_equal(self.sequences(), other.sequences())

    __hash__ = None  # type: ignore[assignment]  # never a key

    def __contains__(self, sequence: int) -> bool:
        rows = self.rows(sequence >> BLOCK_BITS)
        row = sequence & (BLOCK_ROWS - 1)
        return rows is not None and (row in range(rows.start, rows.stop) if isinstance(rows, slice) else row in rows)

    def __repr__(self) -> str:
        return f"RowSet({self.count} rows in blocks {sorted(self._parts)})"

    def items(self) -> Iterator[tuple[int, Rows]]:
        for block in sorted(self._parts):
            yield block, _expand(self._parts[block])

    @property
    def blocks(self) -> list[int]:
        return sorted(self._parts)

    def rows(self, block: int) -> Rows | None:
        part = self._parts.get(block)
        return None if part is None else _expand(part)

    def sequences(self) -> npt.NDArray[np.int64]:
        parts = [as_array(rows) + (block << BLOCK_BITS) for block, rows in self.items()]
        return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)

    @property
    def first(self) -> int:
        block = min(self._parts)
        return (block << BLOCK_BITS) + _at(self._parts[block], 0)

    @property
    def last(self) -> int:
        block = max(self._parts)
        part = self._parts[block]
        return (block << BLOCK_BITS) + _at(part, _count(part) - 1)

    def between(self, first: int, last: int) -> RowSet:
        """`last` is included."""
        parts: dict[int, Part] = {}
        for block in sorted(self._parts):
            base = block << BLOCK_BITS
            if first <= base and base + BLOCK_ROWS - 1 <= last:
                parts[block] = self._parts[block]
            elif base <= last and first < base + BLOCK_ROWS:
                part = self._parts[block]
                rows = clip(_expand(part), first - base, last - base + 1)
                if row_count(rows):
                    parts[block] = part if row_count(rows) == _count(part) else _part(rows)
        return RowSet(parts)

    def minus(self, excluded: RowSet) -> RowSet:
        parts: list[tuple[int, Rows]] = []
        for block, rows in self.items():
            gone = excluded.rows(block)
            parts.append((block, rows if gone is None else exclude(rows, gone)))
        return RowSet.of(parts)

    def plus(self, added: RowSet) -> RowSet:
        parts = dict(self._parts)
        for block, rows in added.items():
            mine = self.rows(block)
            parts[block] = _part(rows if mine is None else np.union1d(as_array(mine), as_array(rows)))
        return RowSet(parts)

    def split(self, parts: int) -> list[tuple[int, int, int]]:
        """Return at most `parts` ranges (first, last, count) of equal count, in order: a batch always has the same tasks."""
        if not self.count:
            return []
        parts = max(1, min(parts, self.count))
        marks = [self.count * i // parts for i in range(parts + 1)]
        blocks = sorted(self._parts)
        ends = np.cumsum([_count(self._parts[block]) for block in blocks])
        edges = []
        for mark in marks[:-1]:
            at = int(np.searchsorted(ends, mark, side="right"))
            index = mark - (int(ends[at - 1]) if at else 0)
            edges.append((blocks[at] << BLOCK_BITS) + _at(self._parts[blocks[at]], index))
        lasts = [edge - 1 for edge in edges[1:]] + [self.last]
        return [(edges[i], lasts[i], marks[i + 1] - marks[i]) for i in range(parts)]

    def packed(self) -> RowSet:
        return RowSet({block: part.packed() if isinstance(part, Listed) else part for block, part in self._parts.items()})

    def to_json(self) -> dict[str, Any]:
        """Ranges are a flat list of row numbers, a bitmap is `start:base64`."""
        return {str(block): _json(part) for block, part in self._parts.items()}

    def to_text(self) -> str:
        """Return `to_json` as text. The general encoder is slow for long bitmaps and for single ranges."""
        parts = (f'"{block}":{_text(part)}' for block, part in self._parts.items())
        return f"{{{','.join(parts)}}}"

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> RowSet:
        parts: dict[int, Part] = {}
        for block, part in data.items():
            if isinstance(part, str):
                start, _, bits = part.partition(":")
                parts[int(block)] = Bitmap(int(start), np.frombuffer(base64.b64decode(bits), np.uint8))
            elif len(part) == 2:
                parts[int(block)] = slice(*part)
            else:
                parts[int(block)] = np.array(part, np.int32).reshape(-1, 2)
        return cls(parts)


def _json(part: Part) -> list[int] | str:
    if isinstance(part, slice):
        return [part.start, part.stop]
    if isinstance(part, Listed):
        part = part.packed()
    if isinstance(part, Bitmap):
        return f"{part.start}:{base64.b64encode(part.bits.tobytes()).decode()}"
    flat: list[int] = part.reshape(-1).tolist()
    return flat


def _text(part: Part) -> str:
    if isinstance(part, slice):
        return f"[{part.start},{part.stop}]"
    form = _json(part)
    return f'"{form}"' if isinstance(form, str) else _JSON.encode(form)  # base64 has nothing to escape


def as_array(rows: Rows) -> Ints:
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def row_count(rows: Rows) -> int:
    return max(0, rows.stop - rows.start) if isinstance(rows, slice) else len(rows)


def clip(rows: Rows, start: int, stop: int) -> Rows:
    """`stop` is not included."""
    if isinstance(rows, slice):
        return slice(max(rows.start, start), max(max(rows.start, start), min(rows.stop, stop)))
    low, high = np.searchsorted(rows, [start, stop])
    return rows[low:high]


def exclude(rows: Rows, gone: Rows) -> Rows:
    others = as_array(clip(gone, *_span(rows)))
    if not len(others):
        return rows
    mine = as_array(rows)
    at = np.minimum(np.searchsorted(others, mine), len(others) - 1)
    rest: Ints = mine[others[at] != mine]
    return rest


def _span(rows: Rows) -> tuple[int, int]:
    if isinstance(rows, slice):
        return rows.start, rows.stop
    return (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)


def head(rows: Rows, count: int) -> Rows:
    return slice(rows.start, min(rows.stop, rows.start + count)) if isinstance(rows, slice) else rows[:count]
