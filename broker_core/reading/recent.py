"""Batches that have just been stored, so that messages which leave at once are not read back from the disk.

To find a record, read it, check it and map it costs most for one of a single message, and still a microsecond for each KiB of a
large one. What is in here is what `reading.stored.load` would give. It is only ever asked under the broker's lock.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..messages.encoding.uniform_messages import UniformMessages
from ..messages.payloads import Payload

MAX_RECORDS = 1024
MAX_BYTES = 16 << 20  # of all together: what eight queues with a thousand messages of 1 KiB under way bring, twice
LARGEST = 2 << 20  # bytes of one: what the loop brings for one queue in a pass, and little of what Spark publishes


class Recent:
    """The last batches, by the log position of their record; the oldest go first."""

    __slots__ = ("_batches", "bytes")

    def __init__(self) -> None:
        self._batches: dict[int, tuple[Payload, int]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, position: int, batch: Payload) -> None:
        """Keep the batch whose record was appended at `position`, higher than all before, if it is small."""
        # What it keeps alive, which can be more than its rows; who has a view of something larger gives it `detached`.
        size = batch.nbytes if isinstance(batch, UniformMessages) else batch.get_total_buffer_size()
        if size > LARGEST:
            return
        self._batches[position] = batch, size
        self.bytes += size
        while self.bytes > MAX_BYTES or len(self._batches) > MAX_RECORDS:
            _, gone = self._batches.pop(next(iter(self._batches)))
            self.bytes -= gone

    def among(self, positions: npt.NDArray[np.int64]) -> dict[int, Payload]:
        """Return those of the records at these positions that are still here."""
        found = {}
        for position in positions.tolist():
            entry = self._batches.get(position)
            if entry is not None:
                found[position] = entry[0]
        return found
