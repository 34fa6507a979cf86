"""Leaving messages: from rows in the stored form to complete encoded messages.

The parts of a message are columns, joined row by row in one call of Arrow, so a row's only Python object is its `bytes`. Encoded
rows are sent exactly as they came, except for the header, and for annotations of *modified* outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..payloads import Payload
from . import annotation, headers
from .arrays import joined
from .bare_encoder import annotation_sections, bare_parts
from .uniform_messages import UniformMessages

FEW = 8  # rows for which plain Python is faster than Arrow
MAX_TTL = 2**32 - 1  # milliseconds: the header's field has 32 bits
JOINED_BYTES = 1 << 30  # more bytes are joined in halves: an Arrow binary column ends at 2^31


def leaving(
    payload: Payload,
    attempts: int | npt.NDArray[Any],
    returned: int | npt.NDArray[Any],
    overlays: Mapping[int, Sequence[bytes]],
    ttl: npt.NDArray[Any] | None = None,
) -> list[bytes]:
    """Return complete encoded messages, one for each row.

    `attempts` is the header's delivery-count. `returned` is not 0 if the message was acquired before. Both are one number for
    all rows, or one for each. `overlays` contains encoded maps by row, to merge into its annotations. `ttl` contains each
    message's milliseconds, 0 for none. Without it, the ttl stays as it came.

    Raises InvalidRequest, with row and column, for a columnar row that AMQP cannot represent.
    """
    if isinstance(payload, UniformMessages):
        if ttl is None and not overlays and isinstance(attempts, int) and isinstance(returned, int):
            return payload.leaving(attempts, returned=bool(returned))
        payload = payload.batch
    rows = payload.num_rows
    if rows > 1 and payload.get_total_buffer_size() > JOINED_BYTES and payload.nbytes > JOINED_BYTES:  # the first is cheap
        messages: list[bytes] = []
        for of in (slice(0, rows // 2), slice(rows // 2, rows)):
            part = payload.slice(of.start, of.stop - of.start)
            laid = {row - of.start: maps for row, maps in overlays.items() if of.start <= row < of.stop}
            messages += leaving(part, _part(attempts, of), _part(returned, of), laid, None if ttl is None else ttl[of])
        return messages
    if ttl is not None:
        payload = _with_ttl(payload, ttl)
    names = payload.schema.names
    header = headers.written(payload, names, attempts, returned)
    before, middle, after = _columns(payload, names)
    single: Iterable[int] = overlays  # rows that Python joins
    if rows <= FEW and "message" in names:  # Python is faster than Arrow's preparations
        messages, single = [b""] * rows, range(rows)
    else:
        head = pa.scalar(header, pa.binary()) if isinstance(header, bytes) else pa.array(header, pa.binary())
        messages = joined(head, *before, *middle, *after).to_pylist()
    for row in single:
        note = annotation.merged(_row(before, row), overlays[row]) if row in overlays else _row(before, row)
        parts = (header if isinstance(header, bytes) else header[row], note, _row(middle, row), _row(after, row))
        messages[row] = b"".join(parts)
    return messages


def _with_ttl(payload: pa.RecordBatch, ttl: npt.NDArray[Any]) -> pa.RecordBatch:
    column = pa.array(np.minimum(ttl, MAX_TTL), pa.int64(), mask=ttl <= 0)
    index = payload.schema.get_field_index("ttl")
    if index < 0:
        return pa.RecordBatch.from_arrays([*payload.columns, column], names=[*payload.schema.names, "ttl"])
    return payload.set_column(index, "ttl", column)


def _part(numbers: int | npt.NDArray[Any], of: slice) -> int | npt.NDArray[Any]:
    return numbers[of] if isinstance(numbers, np.ndarray) else numbers


def _columns(payload: pa.RecordBatch, names: list[str]) -> tuple[list[pa.Array], list[pa.Array], list[pa.Array]]:
    """Return the columns before, of and after the bare message; each list may be empty."""
    if "encodedAnnotations" in names:
        notes = payload.column("encodedAnnotations")
    else:
        notes = annotation_sections(payload)  # encoded messages from Spark have annotations in columns
    before = [] if notes is None else [notes]
    if "message" not in names:
        return before, bare_parts(payload), []
    return before, [payload.column("message")], [payload.column("footer")] if "footer" in names else []


def _row(columns: list[pa.Array], row: int) -> bytes:
    return b"".join([column[row].as_py() or b"" for column in columns])
