"""Messages that came from a broker, in columns: their octets in one buffer, and their delivery ids. No object for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]

_MASK = 0xFFFFFFFF  # delivery ids are of 32 bits, and wrap
_SETTLED = -1  # instead of an id: the broker asks for no outcome


class Settled(NamedTuple):
    """Deliveries to accept, of one connection, by their ids."""

    connection: int
    ids: Ids


class Group(NamedTuple):
    """Messages of one queue that came together: when, in microseconds since 1970, and over which connection."""

    queue: int
    time: int
    connection: int
    message: pa.Array
    ids: Ids

    @property
    def octets(self) -> int:
        """Octets of the messages."""
        first, last = _bounds(self.message)
        return last - first

    def upto(self, rows: int, octets: int, *, alone: bool) -> int:
        """Return how many of the first messages keep within the limits; with `alone`, one at least."""
        import numpy as np

        offsets = _offsets(self.message)
        fits = int(np.searchsorted(offsets, int(offsets[0]) + octets, side="right")) - 1
        return min(rows, len(self.ids), max(fits, int(alone)))

    def slice(self, first: int, count: int) -> Group:
        """Return some of the messages."""
        return self._replace(message=self.message.slice(first, count), ids=self.ids[first : first + count])

    @property
    def settled(self) -> Settled:
        """Deliveries that are to be accepted once the messages are safe."""
        return Settled(self.connection, self.ids)


def grouped(queue: int, time: int, connection: int, blocks: Sequence[Any]) -> Group:
    """Join blocks (`amqp.deliveries.Block`) of one link."""
    import numpy as np

    payloads = [payload for block in blocks for payload in block.payloads]
    ends = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)))
    offsets = np.zeros(len(payloads) + 1, np.int32)
    offsets[1:] = ends
    # While they are in the processor's cache; pyarrow takes ten times as long to make an array of a list.
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(payloads))]
    ids = np.concatenate([_ids(block.first, len(block.payloads), block.settled) for block in blocks])
    return Group(queue, time, connection, pa.Array.from_buffers(pa.binary(), len(payloads), buffers), ids)


def _ids(first: int, count: int, settled: bool) -> Ids:
    import numpy as np

    return np.full(count, _SETTLED, np.int64) if settled else np.arange(first, first + count, dtype=np.int64) & _MASK


def _offsets(message: pa.Array) -> Any:
    import numpy as np

    return np.frombuffer(message.buffers()[1], np.int32)[message.offset : message.offset + len(message) + 1]


def _bounds(message: pa.Array) -> tuple[int, int]:
    offsets = _offsets(message)
    return int(offsets[0]), int(offsets[-1])


def ranges(settled: Iterable[Settled], connection: int, most: int) -> list[list[tuple[int, int]]]:
    """Return the ranges of delivery ids to accept over this connection, in parts of about `most` messages."""
    import numpy as np

    mine = [one.ids for one in settled if one.connection == connection]
    ids = np.concatenate(mine) if mine else np.empty(0, np.int64)
    ids = ids[ids != _SETTLED]
    found = []
    for first in range(0, len(ids), most):
        part = ids[first : first + most]
        ends = np.append(np.flatnonzero(np.diff(part) != 1), len(part) - 1)
        begins = np.append(0, ends[:-1] + 1)
        found.append(list(zip(part[begins].tolist(), part[ends].tolist(), strict=True)))
    return found
