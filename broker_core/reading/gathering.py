"""Rows of several records as one batch: what is scattered in them is copied once, straight to where it stays.

That is for columns of octets that are all of one size, as measurements and fixed records are: half the time of what Arrow does,
which takes the rows out of each record, and then puts together what it took.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..messages.encoding.octets import offsets_of

_OCTETS = (pa.binary(), pa.string())
_END_BYTES = 4

Scattered = tuple[pa.RecordBatch, npt.NDArray[np.int64]]  # a record, and which of its rows; at least one


def gathered(parts: Sequence[Scattered]) -> pa.RecordBatch | None:
    """The rows of these records, one after another. None where that has to be done the plain way: where the records are not of
    one form, or a column has nulls, other values than octets, or rows of different sizes."""
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
    first, width = parts[0][0], _width(parts[0][0])
    total = sum(len(rows) for _, rows in parts)
    longest = max(total, *(array.offset + len(array) for array, _ in parts))
    if not width or longest * width >= np.iinfo(np.int32).max:
        return None
    # Where values of one size end is a matter of their number alone, so these are the ends of each record, too.
    ends = pa.py_buffer(np.arange(0, longest * width + 1, width, dtype=np.int32))
    sources = []
    for array, rows in parts:
        _, its_ends, octets = array.buffers()
        stop = array.offset + len(array)
        used = (stop + 1) * _END_BYTES
        if array.null_count or its_ends is None or not its_ends.slice(0, used).equals(ends.slice(0, used)):
            return None
        sources.append((np.frombuffer(octets, np.uint8, width * stop).reshape(-1, width)[array.offset :], rows))
    # Arrow keeps what it was given back; numpy's would come from the system page by page each time.
    room = pa.allocate_buffer(total * width)
    found, done = np.frombuffer(room, np.uint8).reshape(-1, width), 0
    for source, rows in sources:
        # Numpy copies row by row only where it need not check the numbers.
        np.take(source, rows, axis=0, out=found[done : done + len(rows)], mode="clip")
        done += len(rows)
    return pa.Array.from_buffers(first.type, total, [None, ends.slice(0, (total + 1) * _END_BYTES), room])


def _width(array: pa.Array) -> int:
    """Octets of the first value."""
    start, stop = offsets_of(array)[:2].tolist()
    return int(stop - start)
