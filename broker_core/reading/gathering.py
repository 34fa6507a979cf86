"""Rows of several records as one batch: scattered rows are copied once, directly to their final place.

This works for columns of bytes that all have one size, such as measurements. It takes half the time of Arrow, which takes the
rows out of each record, and then joins the results.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..messages.encoding.octets import offsets_of

_OCTETS = (pa.binary(), pa.string())
_END_BYTES = 4

Scattered = tuple[pa.RecordBatch, npt.NDArray[np.int64]]  # a record, and the numbers of its rows; at least one


def gathered(parts: Sequence[Scattered]) -> pa.RecordBatch | None:
    """Return the rows of these records, one after another. Return None if Arrow must do it: the records have different forms,
    or a column has nulls, other values than bytes, or values of different sizes."""
    schema = parts[0][0].schema
    if any(type_ not in _OCTETS for type_ in schema.types) or any(record.schema != schema for record, _ in parts):
        return None
    columns = []
    for number in range(len(schema)):
        column = _column([(record.column(number), rows) for record, rows in parts])
        if column is None:
            return None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(parts: list[tuple[pa.Array, npt.NDArray[np.int64]]]) -> pa.Array | None:
    first = parts[0][0]
    start, stop = offsets_of(first)[:2].tolist()
    width = stop - start  # of the first value
    total = sum(len(rows) for _, rows in parts)
    longest = max(total, *(array.offset + len(array) for array, _ in parts))
    if not width or longest * width >= np.iinfo(np.int32).max:
        return None
    # Also the ends of each record: they depend only on the number of values.
    ends = pa.py_buffer(np.arange(0, longest * width + 1, width, dtype=np.int32))
    sources = []
    for array, rows in parts:
        _, own_ends, octets = array.buffers()
        stop = array.offset + len(array)
        used = (stop + 1) * _END_BYTES
        if array.null_count or own_ends is None or not own_ends.slice(0, used).equals(ends.slice(0, used)):
            return None
        sources.append((np.frombuffer(octets, np.uint8, width * stop).reshape(-1, width)[array.offset :], rows))
    # Arrow reuses freed memory; numpy's would come from the system page by page each time.
    buffer = pa.allocate_buffer(total * width)
    gathered_rows, done = np.frombuffer(buffer, np.uint8).reshape(-1, width), 0
    for source, rows in sources:
        # Numpy copies row by row only if it need not check the numbers.
        np.take(source, rows, axis=0, out=gathered_rows[done : done + len(rows)], mode="clip")
        done += len(rows)
    return pa.Array.from_buffers(first.type, total, [None, ends.slice(0, (total + 1) * _END_BYTES), buffer])
