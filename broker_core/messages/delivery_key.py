"""Keys of the column `delivery`: they name a message and its batch, so that a sink can settle the message later.

Keys are opaque to users. The epoch fences off an old planner: keys of a planner with a successor settle nothing. To change the
format, increment `VERSION`; keys of other versions are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import InvalidRequest
from .encoding.octets import column as lines
from .encoding.octets import offsets_of

VERSION = 1
_HEAD = struct.Struct(">BH")  # version, length of the lease's name
_TAIL = struct.Struct(">QQ")  # batch, epoch
_SEQUENCE = 8


class Deliveries(NamedTuple):
    """Rows of a column that belong to one batch, in order."""

    lease: str
    batch: int
    epoch: int
    rows: npt.NDArray[np.int64]
    sequences: npt.NDArray[np.int64]


def prefix(lease: str, batch: int, epoch: int) -> bytes:
    name = lease.encode()
    return _HEAD.pack(VERSION, len(name)) + name + _TAIL.pack(batch, epoch)


def column(prefix: bytes, sequences: Any) -> pa.Array:
    width = len(prefix) + _SEQUENCE
    data = np.empty((len(sequences), width), np.uint8)
    data[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    data[:, len(prefix) :] = np.asarray(sequences).astype(">u8").view(np.uint8).reshape(-1, _SEQUENCE)
    return lines(data, width)


def parse(deliveries: pa.Array, chosen: npt.NDArray[np.bool_]) -> Iterator[Deliveries]:
    """Group the chosen rows by batch, in the order of first rows. Usually there is one batch.

    Raises InvalidRequest with the first row without a valid key. Each batch costs a pass over all remaining rows, so callers
    stop at the first unknown batch.
    """
    if deliveries.null_count:
        row = int(np.flatnonzero(deliveries.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidRequest(f"column 'delivery' is null in row {row}: it names a message as a stream has read it")
    widths = np.diff(offsets_of(deliveries))
    for width in dict.fromkeys(widths[chosen].tolist()):
        rows = np.flatnonzero((widths == width) & chosen)
        if width < _HEAD.size + _TAIL.size + _SEQUENCE:
            raise _no_delivery(int(rows[0]))
        same_width = deliveries if len(rows) == len(widths) else deliveries.take(pa.array(rows))
        offsets = offsets_of(same_width)
        octets = np.frombuffer(same_width.buffers()[2], np.uint8)[offsets[0] : offsets[-1]].reshape(-1, width)
        sequences = np.ascontiguousarray(octets[:, -_SEQUENCE:]).view(">u8").ravel().astype(np.int64)
        heads = np.ascontiguousarray(octets[:, :-_SEQUENCE])
        left = np.arange(len(rows))
        while len(left):
            head = heads[left[0]]
            same = (heads[left] == head).all(axis=1)
            mine = left[same]
            yield Deliveries(*_head(head.tobytes(), int(rows[mine[0]])), rows[mine], sequences[mine])
            left = left[~same]


def _head(octets: bytes, row: int) -> tuple[str, int, int]:
    version, length = _HEAD.unpack_from(octets)
    if version != VERSION or len(octets) != _HEAD.size + length + _TAIL.size:
        raise _no_delivery(row)
    try:
        name = octets[_HEAD.size : _HEAD.size + length].decode()
    except UnicodeDecodeError:
        raise _no_delivery(row) from None
    batch, epoch = _TAIL.unpack_from(octets, _HEAD.size + length)
    return name, batch, epoch


def _no_delivery(row: int) -> InvalidRequest:
    return InvalidRequest(
        f"column 'delivery' contains no key from a stream in row {row}: name it in the stream's schema, and pass it on unchanged"
    )
