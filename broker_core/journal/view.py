"""Payloads of a journal that another process of this host writes, mapped and checked like its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .disk import OthersDirectory
from .payloads import Payloads
from .segments import Segment, SegmentChain, read_header


class JournalView:
    """Payloads in segments, as far as they are written. By one thread."""

    def __init__(self, path: Path | str, broker_id: str) -> None:
        self._disk, self._broker_id = OthersDirectory(path), broker_id
        self._segments: dict[str, Segment] = {}
        self.follow(())

    def follow(self, segments: Iterable[tuple[str, int, int]]) -> None:
        """Use these segments from now on: file name, LSN of the first byte, LSN after the last written one, in order."""
        followed: dict[str, Segment] = {}
        for name, _, end in segments:
            followed[name] = self._segments.get(name) or read_header(self._disk, name, self._broker_id)
            followed[name].end = end
        self._segments, chain = followed, list(followed.values())
        self._bases = np.array([segment.base for segment in chain], np.int64)
        self._ends = np.array([segment.end for segment in chain], np.int64)
        self._payloads = Payloads(self._disk, SegmentChain(self._disk, chain))

    def payload(self, position: int) -> pa.Buffer:
        return self._payloads.get(position)

    def holds(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each LSN whether it is in the segments."""
        if not len(self._bases):
            return np.zeros(len(positions), np.bool_)
        at = np.searchsorted(self._bases, positions, side="right") - 1
        return np.asarray((at >= 0) & (positions < self._ends[np.maximum(at, 0)]))

    def close(self) -> None:
        self._disk.close()
