"""Events of the cleaner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..columns.rowset import RowSet, row_count
from ..columns.series import Ints
from ..model.state import BrokerState
from .event import Event


@dataclass(frozen=True)
class Relocated(Event, kind="relocated"):
    """The payload is a copy of the payloads of these messages."""

    queue_id: int
    rows: RowSet  # empty: the payload belongs to packed blocks, and `Repacked` follows
    payload_rows: Ints | None = None  # by message; None: in order
    also: tuple[Event, ...] | None = None  # a `Relocated` for each other queue with the same payload

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.by_id[self.queue_id]
        payload_rows = np.arange(self.rows.count) if self.payload_rows is None else self.payload_rows.astype(np.int64)
        start = 0
        for number, part in self.rows.items():
            stop = start + row_count(part)
            queue.blocks[number].relocate(part, position, payload_rows[start:stop])
            start = stop
        for event in self.also or ():
            event.apply(state, position)


@dataclass(frozen=True)
class Repacked(Event, kind="block.repacked"):
    """The payload is the new columns of a packed block."""

    queue_id: int
    number: int
    lowest_payload: int
    highest_payload: int

    def apply(self, state: BrokerState, position: int) -> None:
        entry = state.by_id[self.queue_id].packed[self.number]
        entry.position = position
        entry.lowest_payload, entry.highest_payload = self.lowest_payload, self.highest_payload


@dataclass(frozen=True)
class StagedRelocated(Event, kind="staged.relocated"):
    """The payload replaces that of the record at `position`, for staged messages."""

    position: int

    def apply(self, state: BrokerState, position: int) -> None:
        for stage in state.stages.values():
            for part in stage.parts:
                if part.position == self.position:
                    part.position = position


@dataclass(frozen=True)
class Dropped(Event, kind="dropped"):
    """Parts of the log (begin, end) that can no longer be read. Their segments are removed next."""

    intervals: list[list[int]]

    def apply(self, state: BrokerState, position: int) -> None:
        state.drop(self.intervals)
