"""Vector operations on the bytes of many messages.

A *place* is an index into the buffer with all messages of a block, an int64 for each message (or value). While damaged bytes are
followed, it may run beyond its message or the buffer. A read there returns the last byte, and the caller checks the place.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Octets: TypeAlias = npt.NDArray[np.uint8]
Places: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


# The allocator returns freed memory above 128 KiB to the system. Getting it back page by page costs a third of the time of a loop
# over such arrays. The GNU C library raises the limit to twice the largest block that was mapped and freed, such as this one.
np.empty(16 << 20, np.uint8)


def at(buffer: Octets, places: Places) -> Octets:
    return buffer.take(places, mode="clip")


def word(buffer: Octets, places: Places) -> Places:
    value = at(buffer, places).astype(np.int64)
    for offset in (1, 2, 3):
        value = (value << 8) | at(buffer, places + offset)
    return value


def slices(buffer: pa.Buffer, starts: Places, ends: Places) -> pa.Array:
    """Return a binary array of copies of `buffer[start:end]`. The slices must lie in the buffer in the order of the rows.

    numpy gathers slices of one length twice as fast as Arrow, into memory of the right size. Otherwise starts and ends, used as
    offsets, make an array of alternating slices and gaps, of which Arrow takes every second element.
    """
    rows = len(starts)
    width = same_length(starts, ends)
    if 0 < width <= _WIDE:
        offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
        data = pa.py_buffer(of_width(np.frombuffer(buffer, np.uint8), starts, width))
        return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), data])
    bounds = np.empty(2 * rows, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = ends
    both = pa.Array.from_buffers(pa.binary(), max(2 * rows - 1, 0), [None, pa.py_buffer(bounds), buffer])
    return both.take(pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32)))


_WIDE = 1 << 16  # octets of a slice; numpy was not slower at any measured width, up to 4096


def column(octets: Octets, widths: Places | int) -> pa.Array:
    """Return a binary array of the first `widths` bytes of each line (the last axis)."""
    most = octets.shape[-1]
    lines = octets.reshape(-1, most)
    rows = len(lines)
    if not isinstance(widths, int):
        widths = widths.ravel()
        if (widths == most).all():
            widths = most
    if isinstance(widths, int):
        data = lines if widths == most else np.ascontiguousarray(lines[:, :widths])
        ends = _RISING[: rows + 1] * widths if rows < len(_RISING) else np.arange(rows + 1, dtype=np.int32) * widths
    else:
        inside = np.empty(lines.shape, np.bool_)
        for place in range(most):
            inside[:, place] = widths > place
        data = lines[inside]
        ends = np.zeros(rows + 1, np.int32)
        np.cumsum(widths, out=ends[1:])
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(ends), pa.py_buffer(data)])


_RISING = np.arange(8192, dtype=np.int32)


def same_length(starts: Places, ends: Places) -> int:
    lengths = ends - starts
    return int(lengths[0]) if len(lengths) and bool((lengths == lengths[0]).all()) else -1


def of_width(buffer: Octets, starts: Places, width: int) -> Octets:
    """Return slices of one width, all inside the buffer, as a matrix."""
    overlapping = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer, strides=(1,))
    return overlapping[starts].view(np.uint8).reshape(-1, width)


def data_of(array: pa.Array) -> Octets:
    """Also the bytes before the first offset."""
    data = array.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def offsets_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """Return the n+1 offsets of a binary, string or map array, not copied."""
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(array) + 1, np.int32)
    return np.frombuffer(buffer, np.int32, len(array) + 1, 4 * array.offset)


def replaced(array: pa.Array, rows: Places, values: pa.Array) -> pa.Array:
    order = np.arange(len(array))
    order[rows] = np.arange(len(array), len(array) + len(values))
    return pa.concat_arrays([array, values]).take(pa.array(order))


def validity(valid: Mask | None) -> pa.Buffer | None:
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def with_nulls(array: pa.Array, type_: pa.DataType, valid: Mask | None) -> pa.Array:
    """View a binary array as another variable-width type, null in rows that are not `valid`."""
    return pa.Array.from_buffers(type_, len(array), [validity(valid), *array.buffers()[1:]])


def fixed(buffer: pa.Buffer, starts: Places, kind: str) -> npt.NDArray[Any]:
    """Return the big-endian numbers of numpy's type `kind` at rising places, all inside the buffer."""
    octets = of_width(np.frombuffer(buffer, np.uint8), starts, np.dtype(kind).itemsize)
    return octets.reshape(-1).view(kind)


def is_ascii(octets: Octets) -> bool:
    return not len(octets) or int(octets.max()) < 128


def not_utf8(array: pa.Array) -> npt.NDArray[np.int64]:
    if is_ascii(data_of(array)) or _casts(array):
        return np.empty(0, np.int64)
    # Most rows are valid: a search by halves finds the others.
    if len(array) == 1:
        return np.zeros(1, np.int64)
    half = len(array) // 2
    return np.concatenate([not_utf8(_compact(array[:half])), not_utf8(_compact(array[half:])) + half])


def _compact(array: pa.Array) -> pa.Array:
    return array.take(pa.array(np.arange(len(array), dtype=np.int32)))


def _casts(array: pa.Array) -> bool:
    try:
        array.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def not_ascii(array: pa.Array) -> npt.NDArray[np.int64]:
    ends = offsets_of(array)
    octets = data_of(array)[ends[0] : ends[-1]]
    if is_ascii(octets):
        return np.empty(0, np.int64)
    return np.unique(np.searchsorted(ends, np.flatnonzero(octets > 127) + ends[0], side="right") - 1)
