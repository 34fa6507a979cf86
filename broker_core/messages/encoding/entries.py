"""Columns of maps (`properties`, `annotations`) as the contents of AMQP maps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .arrays import Bools, Ints, as_binary, before_values, check_ascii, joined, lengths, offsets, refuse, valid
from .octets import column

STRING, SYMBOL, NULL = 0xA1, 0xA3, 0x40


class Entries(NamedTuple):
    """Maps of each row, encoded."""

    octets: pa.Array
    sizes: Ints
    counts: Ints  # of entries
    present: Bools  # False: the row has no map


def entries(name: str, maps: pa.Array, key_code: int, without: tuple[str, Bools] | None = None) -> Entries:
    """Encode a map<string, string|null> column, keys as STRING or SYMBOL, values as strings.

    `without` is a key to leave out in the marked rows. Raises InvalidRequest, with column and row, for a key that AMQP cannot
    represent, or that a row has twice.
    """
    present = valid(maps)
    if maps.null_count:
        maps = maps.take(pa.array(np.arange(len(maps))))  # nulls of the copy have no entries
    bounds = offsets(maps)
    first, last = int(bounds[0]), int(bounds[-1])
    keys, values = maps.keys.slice(first, last - first), maps.items.slice(first, last - first)
    counts = bounds[1:] - bounds[:-1]
    rows = np.repeat(np.arange(len(maps)), counts)
    if without is not None:
        wanted = ~(pc.equal(keys, without[0]).to_numpy(zero_copy_only=False) & without[1][rows])
        if not wanted.all():
            keys, values, rows = keys.filter(pa.array(wanted)), values.filter(pa.array(wanted)), rows[wanted]
            counts = np.bincount(rows, minlength=len(maps))
    _check_keys(name, keys, rows, counts, key_code)
    octets, sizes = _encoded(keys, values, key_code)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    ends = np.concatenate([[0], np.cumsum(sizes)])[bounds]
    data = pa.Array.from_buffers(pa.binary(), len(maps), [None, pa.py_buffer(ends.astype(np.int32)), octets.buffers()[2]])
    return Entries(data, ends[1:] - ends[:-1], counts, present)


def _check_keys(name: str, keys: pa.Array, rows: Ints, counts: Ints, key_code: int) -> None:
    if key_code == SYMBOL:
        check_ascii(name, keys, rows)
    if len(counts) == 0 or counts.max() < 2:
        return
    per_row = int(counts[0])
    if (counts == per_row).all() and keys.slice(per_row).equals(keys.slice(0, len(keys) - per_row)):
        keys, rows = keys.slice(0, per_row), rows[:per_row]  # usually all rows have the keys of the first
    codes = keys.dictionary_encode()
    pairs = np.sort(rows * len(codes.dictionary) + codes.indices.to_numpy())
    twice = np.flatnonzero(pairs[1:] == pairs[:-1])
    if len(twice):
        row, key = divmod(int(pairs[twice[0]]), len(codes.dictionary))
        refuse(name, row, f"the key {codes.dictionary[key].as_py()!r} is there twice")


def _encoded(keys: pa.Array, values: pa.Array, key_code: int) -> tuple[pa.Array, Ints]:
    sizes = np.stack([lengths(keys), lengths(values)])
    octets, widths = before_values(np.array([[key_code], [STRING]]), sizes)
    if values.null_count:
        nulls = ~valid(values)
        octets[1, nulls, 0] = NULL
        widths = np.where(np.stack([np.zeros_like(nulls), nulls]), 1, widths)
    prefixes, count = column(octets, widths), len(keys)
    parts = (prefixes.slice(0, count), as_binary(keys), prefixes.slice(count), as_binary(values))
    total: Ints = (sizes + widths).sum(axis=0)
    return joined(*parts), total
