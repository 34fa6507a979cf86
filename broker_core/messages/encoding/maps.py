"""Maps of many messages as one Arrow map array."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..columns import STRING_MAP
from .octets import Octets, Places, is_ascii, of_width, same_length, validity
from .rendering import Indices, allowing, only, simple, texts, unfit
from .walk import NULL, Cells, SectionMaps, Walk


def map_array(walk: Walk, buffer: pa.Buffer, maps: SectionMaps, keys: tuple[int, ...]) -> pa.Array:
    """Return the maps as `columns.STRING_MAP`; null in messages without one.

    Marks as odd a message with a bad entry, a repeated key, or a key whose constructor is not in `keys`.
    """
    entries = _Entries(walk, maps)
    names = _same_keys(walk.buffer, [entry.key for entry in maps.entries], keys) if entries.is_regular else None
    if names is None:
        names = entries.names(walk, buffer, keys)
        if names.null_count:
            names = names.fill_null("")  # only where odd
    values, bad = texts(buffer, entries.in_order("value"), _SIMPLE)
    walk.odd[entries.owner[bad]] = True
    struct = pa.StructArray.from_arrays([names, values], fields=[STRING_MAP.key_field, STRING_MAP.item_field])
    buffers = [validity(entries.valid), pa.py_buffer(entries.offsets.astype(np.int32))]
    return pa.Array.from_buffers(STRING_MAP, len(entries.valid), buffers, children=[struct])


def check_entries(walk: Walk, buffer: pa.Buffer, maps: SectionMaps, keys: tuple[int, ...]) -> None:
    """Mark the messages that `map_array` marks as odd, without building arrays."""
    entries = _Entries(walk, maps)
    if not entries.is_regular or _first_keys(walk.buffer, [entry.key for entry in maps.entries], keys) is None:
        entries.names(walk, buffer, keys)
    walk.odd[entries.owner[unfit(buffer, entries.in_order("value"), _SIMPLE)]] = True


class _Entries:
    """Message by message. Odd messages have no entries."""

    def __init__(self, walk: Walk, maps: SectionMaps) -> None:
        self.pairs = maps.entries
        self.valid = np.zeros(len(walk.first), np.bool_)
        self.of_row = np.zeros(len(walk.first), np.int64)
        if maps.rows is not None:
            self.valid[maps.rows], self.of_row[maps.rows] = True, maps.counts
        self.valid &= ~walk.odd
        self.of_row[~self.valid] = 0
        self.offsets = np.concatenate([[0], np.cumsum(self.of_row)])
        self.owner = np.repeat(np.arange(len(self.of_row)), self.of_row)
        # Messages of one producer have the same number of entries.
        whole = len(self.pairs) > 0 and all(isinstance(pair.rows, slice) for pair in self.pairs)
        self.is_regular = whole and int(self.of_row.min()) == len(self.pairs)

    def in_order(self, part: str) -> Cells:
        columns: list[Cells] = [getattr(pair, part) for pair in self.pairs]
        if self.is_regular:
            stacked = (np.stack([getattr(cells, name) for cells in columns], axis=1).ravel() for name in ("code", "start", "end"))
            return Cells(*stacked)
        total = int(self.offsets[-1])
        placed = Cells(np.zeros(total, np.uint8), np.zeros(total, np.int64), np.zeros(total, np.int64))
        numbers = np.arange(len(self.valid))
        for number, (pair, cells) in enumerate(zip(self.pairs, columns, strict=True)):
            rows = numbers[pair.rows]
            live = self.valid[rows]
            to = self.offsets[rows[live]] + number
            placed.code[to], placed.start[to], placed.end[to] = cells.code[live], cells.start[live], cells.end[live]
        return placed

    def names(self, walk: Walk, buffer: pa.Buffer, keys: tuple[int, ...]) -> pa.Array:
        names, wrong = texts(buffer, self.in_order("key"), _NOT_NULL & allowing(*keys))
        walk.odd[self.owner[wrong]] = True
        walk.odd[self.owner[_twice(names, self.owner, self.of_row)]] = True
        return names


#: Keys up to this length are compared with the first message's as a whole.
LONG_KEY = 128

_SIMPLE = simple()
_NOT_NULL = np.arange(256) != NULL


def _same_keys(buffer: Octets, keys: list[Cells], constructors: tuple[int, ...]) -> pa.Array | None:
    """Return the keys if all maps have the same valid keys in the same order."""
    first = _first_keys(buffer, keys, constructors)
    if first is None:
        return None
    rows = len(keys[0].start)
    ends = np.cumsum([0] + [len(key) for key in first])
    offsets = (np.arange(rows)[:, None] * ends[-1] + ends[:-1]).ravel()
    offsets = np.append(offsets, rows * ends[-1]).astype(np.int32)
    octets = np.tile(np.frombuffer(b"".join(first), np.uint8), rows)
    return pa.Array.from_buffers(pa.string(), rows * len(first), [None, pa.py_buffer(offsets), pa.py_buffer(octets)])


def _first_keys(buffer: Octets, keys: list[Cells], constructors: tuple[int, ...]) -> list[bytes] | None:
    first = []
    for cells in keys:
        width = same_length(cells.start, cells.end)
        if not 0 <= width <= LONG_KEY or only(cells.code) not in constructors:
            return None
        octets = of_width(buffer, cells.start, width) if width else np.empty((len(cells.start), 0), np.uint8)
        if not (octets == octets[0]).all() or not is_ascii(octets[0]):
            return None
        first.append(octets[0].tobytes())
    return first if len(set(first)) == len(first) else None


def _twice(names: pa.Array, owner: Indices, counts: Places) -> Indices:
    most = int(counts.max()) if len(counts) else 0
    if most < 2:
        return np.empty(0, np.int64)
    codes = names.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    repeats = [np.flatnonzero((codes[:-apart] == codes[apart:]) & (owner[:-apart] == owner[apart:])) for apart in range(1, most)]
    return np.concatenate(repeats)
