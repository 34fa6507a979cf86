"""Messages that came from a broker, in columns: their octets in one buffer, and their delivery ids. No object for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]

_MASK = 0xFFFFFFFF  # delivery ids are of 32 bits, and wrap
MOST_OCTETS = 1 << 30  # of messages that are joined: offsets of an array have 31 bits
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
        offsets = _offsets(self.message)
        return int(offsets[-1] - offsets[0])

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


def grouped(queue: int, time: int, connection: int, blocks: Sequence[Any]) -> Iterator[Group]:
    """Join blocks (`amqp.deliveries.Block`) of one link, up to `MOST_OCTETS` of them or one alone."""
    some: list[Any] = []
    size = 0
    for block in blocks:
        octets = sum(map(len, block.payloads))
        if some and size + octets > MOST_OCTETS:
            yield _joined(queue, time, connection, some)
            some, size = [], 0
        some.append(block)
        size += octets
    yield _joined(queue, time, connection, some)


def _joined(queue: int, time: int, connection: int, blocks: Sequence[Any]) -> Group:
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
    from ...broker_core.messages.encoding.octets import offsets_of  # needs numpy

    return offsets_of(message)


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
