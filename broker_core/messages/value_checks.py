"""Checks that AMQP can hold messages in columns, since AMQP clients may receive them.

Pure pyarrow, since Spark's tasks check before they send. Absent columns cost nothing, and nothing loops over messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import pyarrow as pa

from ..errors import InvalidRequest
from .columns import COLUMNS, STRING_MAP

_WIRE_RANGES = {"ubyte": (0, 2**8 - 1), "uint": (0, 2**32 - 1)}
RANGES = {name: _WIRE_RANGES[column.wire] for name, column in COLUMNS.items() if column.wire in _WIRE_RANGES}
#: True if the keys are symbols.
MAPS = {name: column.wire == "symbol" for name, column in COLUMNS.items() if column.type == STRING_MAP}
SYMBOLS = tuple(name for name, column in COLUMNS.items() if column.wire == "symbol" and name not in MAPS)
FEW = 32  # entries of a map


def check(columns: Mapping[str, pa.Array]) -> None:
    for name, array in columns.items():
        if array.null_count == len(array):
            continue
        if name in RANGES:
            _check_range(name, array)
        elif name in SYMBOLS:
            _check_symbols(name, array)
        elif name in MAPS:
            _check_map(name, array)


def _check_range(name: str, array: pa.Array) -> None:
    import pyarrow.compute as pc

    least, most = RANGES[name]
    seen = pc.min_max(array).as_py()
    if seen["min"] >= least and seen["max"] <= most:
        return
    row = _first(pc.or_(pc.less(array, least), pc.greater(array, most)))
    _refuse(f"{name!r} is {array[row].as_py()}", row, f"allowed are {least} to {most}")


def _check_symbols(name: str, texts: pa.Array, rows: pa.Array | None = None) -> None:
    import pyarrow.compute as pc

    ascii_ = pc.string_is_ascii(texts)
    if pc.all(ascii_).as_py() is False:
        place = _first(pc.invert(ascii_))
        row = place if rows is None else rows[place].as_py()
        _refuse(f"{name!r} has {texts[place].as_py()!r}", row, "it is a symbol in AMQP, and symbols are ASCII")


def _check_map(name: str, maps: pa.Array) -> None:
    import pyarrow.compute as pc

    rows = None
    if maps.null_count:  # in Arrow a null can have entries
        rows = pc.indices_nonzero(maps.is_valid())
        maps = maps.drop_null()
    ends = maps.offsets
    first, last = ends[0].as_py(), ends[-1].as_py()
    if first == last:
        return
    keys = maps.keys.slice(first, last - first)
    counts = pc.min_max(pc.subtract(ends.slice(1), ends.slice(0, len(maps)))).as_py()
    most = counts["max"]
    if most == counts["min"] and keys.slice(most).equals(keys.slice(0, len(keys) - most)):
        keys, ends = keys.slice(0, most), ends.slice(0, 2)  # the first row represents all
    owners = pc.list_parent_indices(pa.ListArray.from_arrays(pc.subtract(ends, ends[0]), keys))
    if rows is not None:
        owners = rows.take(owners)
    if MAPS[name]:
        _check_symbols(name, keys, owners)
    if most > 1:
        _check_once(name, keys, owners, most)


def _check_once(name: str, keys: pa.Array, owners: pa.Array, most: int) -> None:
    """Refuse a repeated key. Comparing a few entries with each other is faster than hashing all."""
    import pyarrow.compute as pc

    coded = keys.dictionary_encode()
    width = len(coded.dictionary)
    pairs = pc.add(pc.multiply(owners.cast(pa.int64()), width), coded.indices.cast(pa.int64()))
    if most <= FEW:
        again = (pc.any(pc.equal(pairs.slice(apart), pairs.slice(0, len(pairs) - apart))).as_py() for apart in range(1, most))
        if not any(again):
            return
    elif pc.count_distinct(pairs).as_py() == len(pairs):
        return
    repeats = pc.value_counts(pairs)
    row, key = divmod(pc.min(repeats.field("values").filter(pc.greater(repeats.field("counts"), 1))).as_py(), width)
    _refuse(f"{name!r} has the key {coded.dictionary[key].as_py()!r} twice", row, "a map has each key once")


def _first(wrong: pa.Array) -> int:
    import pyarrow.compute as pc

    return int(pc.index(wrong, True).as_py())


def _refuse(problem: str, row: int, why: str) -> NoReturn:
    raise InvalidRequest(f"column {problem} in row {row}; {why}")
