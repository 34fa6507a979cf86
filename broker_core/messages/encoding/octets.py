"""Vector operations on the octets of many messages: gather, big-endian numbers, slices into Arrow arrays.

A *place* is an index into the one buffer that holds all messages of a block; places are int64 arrays, one element a message (or a
value). A place may run beyond its message, or the buffer, while damaged octets are followed: reading there gives the last octet
instead, and whoever follows compares where it arrives with where the message ends.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Octets: TypeAlias = npt.NDArray[np.uint8]
Places: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


# Freed memory at the end of the heap goes back to the system where it is more than 128 KiB, and comes again page by page: a third
# of the time of what allocates a few dozen arrays of that size in turn. The GNU C library raises that limit by itself, to twice
# the largest block that was mapped alone and freed. This is such a block; none of its pages is ever touched.
np.empty(16 << 20, np.uint8)


def at(buffer: Octets, places: Places) -> Octets:
    """One octet at each place."""
    return buffer.take(places, mode="clip")


def word(buffer: Octets, places: Places) -> Places:
    """The 32-bit unsigned number at each place."""
    value = at(buffer, places).astype(np.int64)
    for offset in (1, 2, 3):
        value = (value << 8) | at(buffer, places + offset)
    return value


def slices(buffer: pa.Buffer, starts: Places, ends: Places) -> pa.Array:
    """A binary array of copies of `buffer[start:end]`. The slices must lie in the buffer in the order of the rows.

    Slices of one length are elements of one width to numpy, which gathers them twice as fast as Arrow does. Else, as offsets,
    starts and ends in turn make an array of slices and gaps, of which Arrow takes every other element.
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


_WIDE = 256


def same_length(starts: Places, ends: Places) -> int:
    """The length that all slices have, or -1."""
    lengths = ends - starts
    return int(lengths[0]) if len(lengths) and bool((lengths == lengths[0]).all()) else -1


def of_width(buffer: Octets, starts: Places, width: int) -> Octets:
    """The slices of this width as a matrix, a row each. All of them must lie inside the buffer."""
    overlapping = np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer, strides=(1,))
    return overlapping[starts].view(np.uint8).reshape(-1, width)


def data_of(array: pa.Array) -> Octets:
    """The octets of a binary array that begins at its buffer's beginning."""
    data = array.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def lengths_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """Return the length of each element, in bytes."""
    return np.diff(offsets_of(array))


def offsets_of(array: pa.Array) -> npt.NDArray[np.int32]:
    """Return the n+1 offsets of a binary, string or map array as they are stored, not copied."""
    buffer = array.buffers()[1]
    if buffer is None or buffer.size == 0:
        return np.zeros(len(array) + 1, np.int32)
    return np.frombuffer(buffer, np.int32, len(array) + 1, 4 * array.offset)


def validity(valid: Mask | None) -> pa.Buffer | None:
    """Arrow's bitmap; None where all are valid."""
    if valid is None or valid.all():
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def with_nulls(array: pa.Array, type_: pa.DataType, valid: Mask | None) -> pa.Array:
    """Return the same binary array under another variable type, null where not `valid`. Nothing is copied."""
    return pa.Array.from_buffers(type_, len(array), [validity(valid), *array.buffers()[1:]])


def fixed(buffer: pa.Buffer, starts: Places, kind: str) -> npt.NDArray[Any]:
    """The big-endian numbers of numpy's type `kind` (as `>u4`) at rising places, all inside the buffer."""
    octets = of_width(np.frombuffer(buffer, np.uint8), starts, np.dtype(kind).itemsize)
    return octets.reshape(-1).view(kind)


def is_ascii(octets: Octets) -> bool:
    """Say whether all octets are below 128."""
    return not len(octets) or int(octets.max()) < 128


def not_utf8(array: pa.Array) -> npt.NDArray[np.int64]:
    """The rows of a binary array (without nulls) that are no UTF-8."""
    if is_ascii(data_of(array)) or _casts(array):
        return np.empty(0, np.int64)
    # Somebody sent what is refused, or a user id that is no text: found by halves, as most of it will be right.
    if len(array) == 1:
        return np.zeros(1, np.int64)
    half = len(array) // 2
    first, second = (pa.concat_arrays([part]) for part in (array[:half], array[half:]))
    return np.concatenate([not_utf8(_compact(first)), not_utf8(_compact(second)) + half])


def _compact(array: pa.Array) -> pa.Array:
    return array.take(pa.array(np.arange(len(array), dtype=np.int32)))


def _casts(array: pa.Array) -> bool:
    try:
        array.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def not_ascii(array: pa.Array) -> npt.NDArray[np.int64]:
    """The rows of a binary array (without nulls) with an octet above 127."""
    octets = data_of(array)
    if is_ascii(octets):
        return np.empty(0, np.int64)
    high = np.flatnonzero(octets[: offsets_of(array)[-1]] > 127)
    return np.unique(np.searchsorted(offsets_of(array), high, side="right") - 1)
