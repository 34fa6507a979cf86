"""Vector operations that encode columns into AMQP."""

from __future__ import annotations

from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InvalidRequest
from .octets import column, not_ascii, offsets_of

Ints: TypeAlias = "npt.NDArray[np.int64]"
Bools: TypeAlias = "npt.NDArray[np.bool_]"
Octets: TypeAlias = "npt.NDArray[np.uint8]"

EMPTY = pa.scalar(b"", pa.binary())
_NULL_IS_NOTHING = pc.JoinOptions(null_handling="replace", null_replacement="")


def joined(*columns: Any) -> pa.Array:
    """Concatenate binary columns (or scalars) row by row. A null adds no bytes."""
    return pc.binary_join_element_wise(*columns, EMPTY, options=_NULL_IS_NOTHING)


def offsets(array: pa.Array) -> Ints:
    return offsets_of(array).astype(np.int64)


def valid(array: pa.Array) -> Bools:
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    mask: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def numbers(array: pa.Array) -> Ints:
    return np.frombuffer(array.buffers()[1], np.int64, len(array), 8 * array.offset)


def as_binary(array: pa.Array) -> pa.Array:
    return array.view(pa.binary())


def lengths(array: pa.Array) -> Ints:
    """Null slots, which can have a length in Arrow, have 0 bytes."""
    ends = offsets_of(array)
    sizes = (ends[1:] - ends[:-1]).astype(np.int64)
    return sizes * valid(array) if array.null_count else sizes


def big_endian(values: Ints, width: int) -> Octets:
    """Return big-endian octets along a new last axis."""
    return values.astype(f">i{width}" if width == 8 else f">u{width}").view(np.uint8).reshape(*values.shape, width)


def before_values(codes: Any, sizes: Ints, ahead: bytes = b"") -> tuple[Octets, Ints | int]:
    """Return the bytes before each value of variable width (`ahead`, constructor and size), and their number.

    `codes` are the constructors for up to 255 bytes (0xa0, 0xa1, 0xa3), and broadcast to the shape of `sizes`.
    """
    first = len(ahead)
    small = sizes < 256
    all_small = bool(small.all())
    octets = np.empty((*sizes.shape, first + (2 if all_small else 5)), np.uint8)
    if ahead:
        octets[..., :first] = np.frombuffer(ahead, np.uint8)
    if all_small:
        octets[..., first] = codes
        octets[..., first + 1] = sizes
        return octets, first + 2
    octets[..., first] = np.where(small, codes, codes + 0x10)
    octets[..., first + 1 :] = big_endian(sizes, 4)
    octets[small, first + 1] = sizes[small]
    return octets, np.where(small, first + 2, first + 5)


def before_section(code: int, constructor: int, sizes: Ints, counts: Ints, present: Bools) -> tuple[pa.Array, Ints | int]:
    """Return descriptor, constructor (0xc0 or 0xc1), size and count of a section, and their number of bytes.

    The section is a list or map of `counts` elements in `sizes` bytes. It is left out in rows that are not `present`.
    """
    large = (sizes > 254) | (counts > 255)
    any_large = bool(large.any())
    octets = np.empty((len(sizes), 12 if any_large else 6), np.uint8)
    octets[:, :4] = np.array((0x00, 0x53, code, constructor), np.uint8)
    octets[:, 4] = sizes + 1
    octets[:, 5] = counts
    widths: Ints | int = 6
    if any_large:
        octets[large, 3] = constructor + 0x10
        octets[large, 4:8] = big_endian(sizes[large] + 4, 4)
        octets[large, 8:] = big_endian(counts[large], 4)
        widths = np.where(large, 12, 6)
    if not present.all():
        widths = widths * present
    return column(octets, widths), widths


def check_ascii(name: str, array: pa.Array, row_of: Ints | None = None) -> None:
    """Raise InvalidRequest for a value beyond ASCII. `row_of` is the row of each value, if not its index."""
    places = not_ascii(array)
    if len(places):
        places = places[valid(array)[places]]
    if len(places):
        first = int(places[0])
        text = array[first].as_py()
        refuse(name, first if row_of is None else int(row_of[first]), f"{text!r} cannot be an AMQP symbol: symbols are ASCII")


def refuse(name: str, row: int, why: str) -> NoReturn:
    raise InvalidRequest(f"column {name!r} in row {row}: {why}")
