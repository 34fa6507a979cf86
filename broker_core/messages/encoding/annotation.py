"""Annotation sections (3.2.2, 3.2.3, 3.2.9): checked when they arrive, merged when they leave, otherwise never touched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...amqp.decoder import LIMITS, MAX_HASHED, MAX_ITEMS, Budget, decode
from ...amqp.encoder import put_compound
from ...amqp.errors import DecodeError, FieldError
from ...amqp.messages import MESSAGE_ANNOTATIONS, scan, skip
from ...amqp.types import Symbol, ULong
from ..columns import MESSAGE_COLUMNS
from . import reference
from .bare_encoder import annotation_sections

KEPT_SECTIONS = 1024  # sections known to be right; then it begins anew
KEPT_OCTETS = 512  # longer ones are looked at each time, and those of more values
AROUND = MAX_ITEMS - 3 * KEPT_OCTETS
"""The budget of the sections around one message: with those that are `known`, which are not counted, it is within `MAX_ITEMS`."""

known: set[bytes] = set()
"""Sections that `check` has found right before. Read only."""


def check(section: bytes, budget: Budget | None = None) -> None:
    """Refuse a section of annotations, or a footer, that is not a map with symbols or ulongs as its keys.

    Its values are decoded too, since it may leave merged with others or be read as text. `budget` is shared by the sections of
    one message. Raises DecodeError, FieldError.
    """
    if section in known:
        return
    budget = [AROUND] if budget is None else budget
    before = budget[0]
    (found,) = scan(section)
    mapping, _ = decode(section, found.value, found.end, budget=budget)
    # Among symbols and ulongs no two keys are equal in Python and different in AMQP: what does not become a dict has others, or
    # has many ulongs.
    if type(mapping) is not dict:
        text = f"a key that is neither symbol nor ulong, or more than {MAX_HASHED} keys that are no symbols"
        raise FieldError(f"section 0x{found.code:02x} has {text}")
    if any(type(key) not in (Symbol, ULong) for key in mapping):
        raise FieldError(f"section 0x{found.code:02x} has a key that is neither symbol nor ulong")
    if len(section) <= KEPT_OCTETS and before - budget[0] <= KEPT_OCTETS:
        if len(known) >= KEPT_SECTIONS:
            known.clear()
        known.add(section)


def merged(section: bytes, overlays: Iterable[bytes]) -> bytes:
    """Merge a message-annotations section (empty: none) with encoded maps; of equal keys the last one wins.

    Values keep their octets. Raises DecodeError if an overlay is no map.
    """
    entries: dict[tuple[type, object], bytes] = {}
    if section:
        (found,) = scan(section)
        entries.update(_entries(section, found.value, found.end))
    for overlay in overlays:
        entries.update(_entries(overlay, 0, len(overlay)))
    out = bytearray((0x00, 0x53, MESSAGE_ANNOTATIONS))
    put_compound(out, 0xC1, 2 * len(entries), b"".join(entries.values()))
    return bytes(out)


def _entries(octets: bytes, position: int, end: int) -> Iterator[tuple[tuple[type, object], bytes]]:
    """Key and octets of each entry of the map that lies at `position`."""
    width = {0xC1: 1, 0xD1: 4}.get(octets[position]) if position < end else None
    if width is None or skip(octets, position, end) != end:
        raise DecodeError("annotations are one map", position)
    position += 1 + 2 * width
    if position > end:
        raise DecodeError("a map cut short", position)
    while position < end:
        key, value = decode(octets, position, end)
        after = skip(octets, value, end, LIMITS.depth)
        yield (type(key), key), octets[position:after]
        position = after


# --- In columns ----------------------------------------------------------------------------------------------------------------


def overlaid(payload: pa.RecordBatch, overlays: Mapping[int, Sequence[bytes]]) -> pa.RecordBatch:
    """The rows of a stored batch, encoded or columnar, with `overlays` in their annotations, of equal keys the last one.

    `overlays`: by row, encoded maps in their order. Encoded rows keep their annotations encoded, columnar ones as texts.
    """
    sections = {row: merged(_section(payload, row), maps) for row, maps in overlays.items()}
    if "message" not in payload.schema.names:
        named = ["annotations"]
        return _with(payload, "annotations", {row: reference.row(None, s, named)["annotations"] for row, s in sections.items()})
    if "annotations" in payload.schema.names:  # as Spark sends them beside a message: from here on they are in the section
        payload = _with(payload, "annotations", dict.fromkeys(sections))
    return _with(payload, "encodedAnnotations", sections)


def _section(payload: pa.RecordBatch, row: int) -> bytes:
    """The stored annotations of a row as a section; no octets where it has none."""
    names = payload.schema.names
    if "encodedAnnotations" in names and (section := payload.column("encodedAnnotations")[row].as_py()) is not None:
        return bytes(section)
    if "annotations" not in names:
        return b""
    found = annotation_sections(payload.slice(row, 1).select(["annotations"]))
    return b"" if found is None else bytes(found[0].as_py())


def _with(payload: pa.RecordBatch, name: str, values: Mapping[int, Any]) -> pa.RecordBatch:
    """The batch with other values in some rows of a column, which need not be there yet."""
    columns = dict(zip(payload.schema.names, payload.columns, strict=True))
    kind, rows = MESSAGE_COLUMNS[name], payload.num_rows
    order = np.arange(rows)
    order[list(values)] = np.arange(rows, rows + len(values))
    stored = columns.get(name, pa.nulls(rows, kind))
    columns[name] = pa.concat_arrays([stored, pa.array(list(values.values()), kind)]).take(pa.array(order))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
