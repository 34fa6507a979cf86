"""Annotations that somebody's *modified* outcome added (3.4.5), laid over those that were stored: what readers of columns see.

AMQP clients get the same from `leaving`. Rows with such additions are few, and each of them is put together by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..columns import MESSAGE_COLUMNS
from . import annotation, plain
from .bare import annotation_sections


def overlaid(payload: pa.RecordBatch, overlays: Mapping[int, Sequence[bytes]]) -> pa.RecordBatch:
    """The rows of a stored batch, encoded or columnar, with `overlays` in their annotations, of equal keys the last one.

    `overlays`: by row, encoded maps in their order. Encoded rows keep their annotations encoded, columnar ones as texts.
    """
    sections = {row: annotation.merged(_section(payload, row), maps) for row, maps in overlays.items()}
    if "message" not in payload.schema.names:
        named = ["annotations"]
        return _with(payload, "annotations", {row: plain.row(None, s, named)["annotations"] for row, s in sections.items()})
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
