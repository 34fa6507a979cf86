"""Batches that have just been stored, so that messages which leave immediately are not read back from the disk.

Finding, reading, checking and mapping a record costs most for a single message, and still a microsecond for each KiB of a large
one. Only used under the broker's lock.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..messages.encoding.uniform_messages import UniformMessages
from ..messages.payloads import Payload

MAX_RECORDS = 1024
MAX_BYTES = 16 << 20  # twice the messages in transit of eight queues, each with a thousand messages of 1 KiB
LARGEST = 2 << 20  # bytes of one batch: as much as one commit loop stores in one queue


class Recent:
    """The last batches, by the log position of their record."""

    __slots__ = ("_batches", "bytes")

    def __init__(self) -> None:
        self._batches: dict[int, tuple[Payload, int]] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, position: int, batch: Payload) -> None:
        """Keep the batch whose record was appended at `position`, higher than all before, if it is small."""
        # The size of everything that the batch keeps alive. A view of something larger must be `detached`.
        size = batch.nbytes if isinstance(batch, UniformMessages) else batch.get_total_buffer_size()
        if size > LARGEST:
            return
        self._batches[position] = batch, size
        self.bytes += size
        while self.bytes > MAX_BYTES or len(self._batches) > MAX_RECORDS:
            _, gone = self._batches.pop(next(iter(self._batches)))
            self.bytes -= gone

    def among(self, positions: npt.NDArray[np.int64]) -> dict[int, Payload]:
        known = self._batches
        return {position: known[position][0] for position in positions.tolist() if position in known}
