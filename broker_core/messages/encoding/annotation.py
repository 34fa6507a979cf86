"""Annotation sections (3.2.2, 3.2.3, 3.2.9): checked on arrival, merged on departure, otherwise kept byte for byte."""

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
from .octets import replaced

KEPT_SECTIONS = 1024  # cached valid sections; a full cache is cleared
KEPT_OCTETS = 512  # longer sections, and those of more values, are checked each time
#: The budget around one message. Sections in `known` are not counted; together they stay within `MAX_ITEMS`.
AROUND = MAX_ITEMS - 3 * KEPT_OCTETS

#: Sections that `check` accepted. Read-only for other modules.
known: set[bytes] = set()


def check(section: bytes, budget: Budget) -> None:
    """Check a section of annotations, or a footer: a map whose keys are symbols or ulongs.

    Values are also decoded, since they may be merged or read as text. A message's sections share `budget`. Raises DecodeError,
    FieldError.
    """
    if section in known:
        return
    before = budget[0]
    (section_at,) = scan(section)
    mapping, _ = decode(section, section_at.value, section_at.end, budget=budget)
    # Symbols and ulongs that are equal in Python are equal in AMQP. So a map that is not a dict has other keys, or many ulongs.
    if type(mapping) is not dict:
        text = f"a key that is neither symbol nor ulong, or more than {MAX_HASHED} keys other than symbols"
        raise FieldError(f"section 0x{section_at.code:02x} has {text}")
    if any(type(key) not in (Symbol, ULong) for key in mapping):
        raise FieldError(f"section 0x{section_at.code:02x} has a key that is neither symbol nor ulong")
    if len(section) <= KEPT_OCTETS and before - budget[0] <= KEPT_OCTETS:
        if len(known) >= KEPT_SECTIONS:
            known.clear()
        known.add(section)


def merged(section: bytes, overlays: Iterable[bytes]) -> bytes:
    """Merge a section of message annotations (possibly empty) with encoded maps. Of equal keys the last entry wins.

    Values keep their bytes. Raises DecodeError if an overlay is not a map.
    """
    entries: dict[tuple[type, object], bytes] = {}
    if section:
        (section_at,) = scan(section)
        entries.update(_entries(section, section_at.value, section_at.end))
    for overlay in overlays:
        entries.update(_entries(overlay, 0, len(overlay)))
    out = bytearray((0x00, 0x53, MESSAGE_ANNOTATIONS))
    put_compound(out, 0xC1, 2 * len(entries), b"".join(entries.values()))
    return bytes(out)


def _entries(octets: bytes, position: int, end: int) -> Iterator[tuple[tuple[type, object], bytes]]:
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


def overlaid(payload: pa.RecordBatch, overlays: Mapping[int, Sequence[bytes]]) -> pa.RecordBatch:
    """Return a stored batch, encoded or columnar, with `overlays` in its annotations. These are encoded maps by row, in order,
    that *modified* outcomes added (3.4.5). Few rows have them, and each is built separately.
    """
    sections = {row: merged(_section(payload, row), maps) for row, maps in overlays.items()}
    if "message" not in payload.schema.names:
        named = ["annotations"]
        return _with(payload, "annotations", {row: reference.row(None, s, named)["annotations"] for row, s in sections.items()})
    if "annotations" in payload.schema.names:  # from Spark, next to a message: now they are in the section
        payload = _with(payload, "annotations", dict.fromkeys(sections))
    return _with(payload, "encodedAnnotations", sections)


def _section(payload: pa.RecordBatch, row: int) -> bytes:
    names = payload.schema.names
    if "encodedAnnotations" in names and (section := payload.column("encodedAnnotations")[row].as_py()) is not None:
        return bytes(section)
    if "annotations" not in names:
        return b""
    sections = annotation_sections(payload.slice(row, 1).select(["annotations"]))
    return b"" if sections is None else bytes(sections[0].as_py())


def _with(payload: pa.RecordBatch, name: str, values: Mapping[int, Any]) -> pa.RecordBatch:
    columns = dict(zip(payload.schema.names, payload.columns, strict=True))
    kind = MESSAGE_COLUMNS[name]
    stored = columns.get(name, pa.nulls(payload.num_rows, kind))
    columns[name] = replaced(stored, np.array(list(values), np.int64), pa.array(list(values.values()), kind))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
