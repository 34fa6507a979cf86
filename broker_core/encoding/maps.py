"""Maps of many messages: entries that were found place by place, put in the order of the messages, as one Arrow map array."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from broker_core.encoding.octets import Mask, Octets, Places, is_ascii, of_width, same_length, validity
from broker_core.encoding.render import Indices, allowing, only, simple, texts
from broker_core.encoding.walk import NULL, Cells, Pairs, Rows, Walk
from broker_core.message import STRING_MAP


def map_array(
    walk: Walk, buffer: pa.Buffer, rows: Rows | None, counts: Places, pairs: list[Pairs], keys: tuple[int, ...]
) -> pa.Array:
    """The maps as `message.STRING_MAP`; null in messages without one.

    Marks as odd what has a bad entry, a key whose constructor is none of `keys`, or a key twice.
    """
    valid = np.zeros(len(walk.first), np.bool_)
    of_row = np.zeros(len(walk.first), np.int64)
    if rows is not None:
        valid[rows], of_row[rows] = True, counts
    valid &= ~walk.odd
    of_row[~valid] = 0
    offsets = np.concatenate([[0], np.cumsum(of_row)])
    owner = np.repeat(np.arange(len(of_row)), of_row)
    # One producer's messages: the same number of entries in each.
    alike = len(pairs) > 0 and all(isinstance(pair.rows, slice) for pair in pairs) and int(of_row.min()) == len(pairs)
    names = _same_keys(walk.buffer, [pair.key for pair in pairs], keys) if alike else None
    if names is None:
        names, wrong = texts(buffer, _in_order(pairs, "key", offsets, valid, alike), _NOT_NULL & allowing(*keys))
        walk.odd[owner[wrong]] = True
        walk.odd[owner[_twice(names, owner, of_row)]] = True
        if names.null_count:
            names = names.fill_null("")  # only where odd
    values, bad = texts(buffer, _in_order(pairs, "value", offsets, valid, alike), _SIMPLE)
    walk.odd[owner[bad]] = True
    struct = pa.StructArray.from_arrays([names, values], fields=[STRING_MAP.key_field, STRING_MAP.item_field])
    buffers = [validity(valid), pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(STRING_MAP, len(valid), buffers, children=[struct])


#: Keys up to this length are compared as a whole with those of the first message.
LONG_KEY = 128

_SIMPLE = simple()
_NOT_NULL = np.arange(256) != NULL


def _in_order(pairs: list[Pairs], part: str, offsets: Places, valid: Mask, alike: bool) -> Cells:
    """The keys or the values of all maps, those of one message after another."""
    found: list[Cells] = [getattr(pair, part) for pair in pairs]
    if alike:
        stacked = (np.stack([getattr(cells, name) for cells in found], axis=1).ravel() for name in ("code", "start", "end"))
        return Cells(*stacked)
    total = int(offsets[-1])
    placed = Cells(np.zeros(total, np.uint8), np.zeros(total, np.int64), np.zeros(total, np.int64))
    numbers = np.arange(len(valid))
    for number, (pair, cells) in enumerate(zip(pairs, found, strict=True)):
        rows = numbers[pair.rows]
        kept = valid[rows]
        to = offsets[rows[kept]] + number
        placed.code[to], placed.start[to], placed.end[to] = cells.code[kept], cells.start[kept], cells.end[kept]
    return placed


def _same_keys(buffer: Octets, keys: list[Cells], constructors: tuple[int, ...]) -> pa.Array | None:
    """The keys, if all maps have the same ones in the same order and nothing is wrong with them; then one map tells of all."""
    first = []
    for cells in keys:
        width = same_length(cells.start, cells.end)
        if not 0 <= width <= LONG_KEY or only(cells.code) not in constructors:
            return None
        octets = of_width(buffer, cells.start, width) if width else np.empty((len(cells.start), 0), np.uint8)
        if not (octets == octets[0]).all() or not is_ascii(octets[0]):
            return None
        first.append(octets[0].tobytes())
    if len(set(first)) < len(first):
        return None
    rows = len(keys[0].start)
    ends = np.cumsum([0] + [len(key) for key in first])
    offsets = (np.arange(rows)[:, None] * ends[-1] + ends[:-1]).ravel()
    offsets = np.append(offsets, rows * ends[-1]).astype(np.int32)
    octets = np.tile(np.frombuffer(b"".join(first), np.uint8), rows)
    return pa.Array.from_buffers(pa.string(), rows * len(first), [None, pa.py_buffer(offsets), pa.py_buffer(octets)])


def _twice(names: pa.Array, owner: Indices, counts: Places) -> Indices:
    """Entries whose key stands in the same map again."""
    most = int(counts.max()) if len(counts) else 0
    if most < 2:
        return np.empty(0, np.int64)
    codes = names.dictionary_encode().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    found = [np.flatnonzero((codes[:-apart] == codes[apart:]) & (owner[:-apart] == owner[apart:])) for apart in range(1, most)]
    return np.concatenate(found)
