"""Batches that have just been stored, so that a message which leaves at once is not read back from the disk.

A record of one message costs far more to read back (find it, check it, decode it) than its octets are worth; a large one does
not, and stays out. What is in here is what `reading.stored.load` would give. It is only ever asked under the broker's lock.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..messages.encoding.lone import Lone, Payload

MAX_RECORDS = 1024
MAX_BYTES = 4 << 20  # of all together
LARGEST = 64 << 10  # bytes of one


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
        # What it keeps alive, which can be more than its rows.
        size = len(batch.message) if isinstance(batch, Lone) else batch.get_total_buffer_size()
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
