"""Checks that texts of record batches are UTF-8. An error names the column, the row and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from ..errors import InvalidColumn, InvalidRequest

SHOWN = 32  # bytes of an invalid text in an error
_OCTETS = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
_REPAIRED = {  # by the part of a column
    "": "make_valid_utf8({name})",
    "keys": "transform_keys({name}, (k, v) -> make_valid_utf8(k))",
    "values": "transform_values({name}, (k, v) -> make_valid_utf8(v))",
}


class _InvalidText(NamedTuple):
    row: int
    octets: bytes
    part: str = ""  # keys or values of a map


def validate(batch: pa.RecordBatch) -> None:
    """Raises InvalidColumn for a text that is not UTF-8, and InvalidRequest for any other fault."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        _refuse_text({name: batch.column(place) for place, name in enumerate(batch.schema.names)})
        raise InvalidRequest(f"the record batch is malformed: {error}") from error


def _refuse_text(columns: Mapping[str, pa.Array]) -> None:
    for name, array in columns.items():
        invalid = _find(array)
        if invalid is None:
            continue
        place = f"column {name!r}" + (f" has {invalid.part} that are" if invalid.part else " is")
        repair = _REPAIRED[invalid.part].format(name=name)
        also = ", and a binary column 'body' takes any bytes" if name == "body" else ""
        shown = f"{invalid.octets[:SHOWN]!r}{'…' if len(invalid.octets) > SHOWN else ''}"
        raise InvalidColumn(
            f"{place} not UTF-8 in row {invalid.row} ({shown}): texts must be UTF-8. In Spark {repair} replaces the invalid"
            f" bytes, and is_valid_utf8 finds such rows{also}"
        )


def _find(array: pa.Array) -> _InvalidText | None:
    """Return the first text that is not UTF-8; None if all are valid, or if the column cannot be read.

    Each buffer is checked before it is followed: an unchecked offset may point outside of the process's memory.
    """
    try:
        array.validate()
    except pa.ArrowException:
        return None
    types = pa.types
    if types.is_dictionary(array.type):
        invalid = _find(array.dictionary)
        if invalid is None:
            return None
        row = array.indices.index(pa.scalar(invalid.row, array.indices.type)).as_py()
        return invalid._replace(row=max(row, 0))
    if types.is_map(array.type):
        return _find_in_maps(array)
    octets = _OCTETS.get(array.type)
    if octets is None:
        return None
    readable = array.view(octets)
    if _is_valid(array) or not _is_valid(readable):
        return None
    first, end = 0, len(array)
    while end - first > 1:  # halves, without an object for each text
        middle = (first + end) // 2
        if _is_valid(array.slice(first, middle - first)):
            first = middle
        else:
            end = middle
    return _InvalidText(first, readable[first].as_py())


def _find_in_maps(array: pa.Array) -> _InvalidText | None:
    first, *ends = array.offsets.to_pylist()
    for part, texts in (("keys", array.keys), ("values", array.items)):
        if not ends or not 0 <= first <= ends[-1] <= len(texts):
            return None
        invalid = _find(texts.slice(first, ends[-1] - first))
        if invalid is not None:
            return invalid._replace(row=next((row for row, end in enumerate(ends) if first + invalid.row < end), 0), part=part)
    return None


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowException:
        return False
    return True
