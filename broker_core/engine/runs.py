"""The run table of a block: where the payloads of its rows lie in the journal."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from broker_core.engine.series import Series


class Runs:
    """The run table: which journal record holds the payload of which rows. One run per journaled batch."""

    __slots__ = ("position", "row", "skip", "time")

    def __init__(self, row: Series, position: Series, skip: Series, time: Series) -> None:
        self.row = row  # first row of the run in this block
        self.position = position  # log position of the record, in units of 8 bytes (records are so aligned)
        self.skip = skip  # row of the record's payload that the first row is
        self.time = time  # microseconds since 1970: when the messages were enqueued

    @classmethod
    def empty(cls) -> Runs:
        return cls(Series(), Series(), Series(), Series())

    def append(self, row: int, position: int, skip: int, time: int) -> None:
        self.row.append(row)
        self.position.append(position >> 3)
        self.skip.append(skip)
        self.time.append(time)

    def trim(self) -> None:
        for series in (self.row, self.position, self.skip, self.time):
            series.trim()


class Run(NamedTuple):
    """Neighbours in a journal record that become neighbours in a block."""

    rows: int
    position: int  # log position of the record
    skip: int  # row of its payload that the first one is


class Pieces(NamedTuple):
    """Where rows of a block lie: parallel arrays, one entry a piece (rows that are neighbours in block and payload)."""

    row: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]  # how many
    position: npt.NDArray[np.int64]
    payload_row: npt.NDArray[np.int64]
    time: npt.NDArray[np.int64]
