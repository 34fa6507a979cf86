"""Received messages in columns: their bytes in one buffer, and their delivery ids. No object for each message."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from ...broker_core import executor_modules
from ...broker_core.errors import ResourceLimit

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int64]
    Queues = npt.NDArray[np.int8]

_MASK = 0xFFFFFFFF  # delivery ids have 32 bits, and wrap
MOST_OCTETS = 1 << 30  # bytes of joined messages
SMALL_ROWS, SMALL_OCTETS = 1024, 1 << 16  # of neighbours that become one group
MOST_OF_ONE = (1 << 31) - 1  # bytes of one message: offsets of an array have 31 bits
_SETTLED = -1  # instead of an id: no outcome is needed


class OversizedMessage(ResourceLimit):
    """A message with more bytes than a batch can hold."""


class DeliveryIds(NamedTuple):
    """Deliveries of one connection that are to be accepted."""

    connection: int
    ids: Ids


class ArrivalGroup(NamedTuple):
    """Consecutive messages of a connection. `queues` are indexes, `times` microseconds since 1970."""

    connection: int
    queues: Queues
    times: Ids
    message: pa.Array
    ids: Ids
    octets: int

    def upto(self, rows: int, octets: int, *, alone: bool) -> int:
        """Return how many of the first messages are within the limits; with `alone` at least one."""
        if len(self.ids) <= rows and self.octets <= octets:
            return len(self.ids)

        import numpy as np

        offsets = _offsets(self.message)
        fits = int(np.searchsorted(offsets, int(offsets[0]) + octets, side="right")) - 1
        return min(rows, len(self.ids), max(fits, int(alone)))

    def slice(self, first: int, count: int) -> ArrivalGroup:
        message = self.message.slice(first, count)
        offsets = _offsets(message)
        some = slice(first, first + count)
        queues, times, ids = self.queues[some], self.times[some], self.ids[some]
        return self._replace(queues=queues, times=times, message=message, ids=ids, octets=int(offsets[-1] - offsets[0]))

    @property
    def settled(self) -> DeliveryIds:
        return DeliveryIds(self.connection, self.ids)


def grouped(queue: int, time: int, connection: int, blocks: Sequence[Any]) -> Iterator[ArrivalGroup]:
    """Join the `amqp.deliveries.DeliveryBlock`s of one link into groups of up to `MOST_OCTETS`, or of one block."""
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


def _joined(queue: int, time: int, connection: int, blocks: Sequence[Any]) -> ArrivalGroup:
    import numpy as np

    payloads = [payload for block in blocks for payload in block.payloads]
    offsets = np.zeros(len(payloads) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)), out=offsets[1:])
    octets = int(offsets[-1])
    if octets > MOST_OF_ONE:
        raise OversizedMessage(
            f"a message of {octets} octets is larger than the {MOST_OF_ONE} that a batch can hold: take it from its queue with"
            " another client, and start the query again"
        )
    # Joined here, while these bytes are still in the processor's cache.
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(payloads))]
    message = pa.Array.from_buffers(pa.binary(), len(payloads), buffers)
    ids = np.concatenate([_ids(block.first, len(block.payloads), block.settled) for block in blocks])
    return ArrivalGroup(connection, np.full(len(ids), queue, np.int8), np.full(len(ids), time), message, ids, octets)


def add(groups: deque[ArrivalGroup], arrived: Iterable[ArrivalGroup]) -> None:
    """Join small neighbours, so that slow arrivals take no more memory than fast ones."""
    for group in arrived:
        groups.append(group)
        while len(groups) > 1 and _are_small(groups[-2], groups[-1]):
            last, before = groups.pop(), groups.pop()
            groups.append(_both(before, last))


def _are_small(first: ArrivalGroup, second: ArrivalGroup) -> bool:
    """The first may not be much larger, so that each byte is moved few times."""
    count, more = len(first.ids), len(second.ids)
    same = first.connection == second.connection
    return same and count + more <= SMALL_ROWS and first.octets + second.octets <= SMALL_OCTETS and count <= 2 * more


def _both(first: ArrivalGroup, second: ArrivalGroup) -> ArrivalGroup:
    import numpy as np

    return first._replace(
        queues=np.concatenate([first.queues, second.queues]),
        times=np.concatenate([first.times, second.times]),
        message=pa.concat_arrays([first.message, second.message]),
        ids=np.concatenate([first.ids, second.ids]),
        octets=first.octets + second.octets,
    )


def _ids(first: int, count: int, settled: bool) -> Ids:
    import numpy as np

    return np.full(count, _SETTLED, np.int64) if settled else np.arange(first, first + count, dtype=np.int64) & _MASK


def _offsets(message: pa.Array) -> Any:
    return executor_modules.module("messages.encoding.octets").offsets_of(message)


def ranges(settled: Iterable[DeliveryIds], connection: int, most: int) -> list[list[tuple[int, int]]]:
    """Return ranges of delivery ids to accept over this connection, in parts of `most` messages."""
    import numpy as np

    mine = [deliveries.ids for deliveries in settled if deliveries.connection == connection]
    ids = np.concatenate(mine) if mine else np.empty(0, np.int64)
    ids = ids[ids != _SETTLED]
    parts = []
    for first in range(0, len(ids), most):
        part = ids[first : first + most]
        ends = np.append(np.flatnonzero(np.diff(part) != 1), len(part) - 1)
        begins = np.append(0, ends[:-1] + 1)
        parts.append(list(zip(part[begins].tolist(), part[ends].tolist(), strict=True)))
    return parts
