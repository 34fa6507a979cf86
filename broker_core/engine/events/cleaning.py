"""Events of the cleaner: payloads that are copied ahead in the log, and parts of the log that nobody needs. See `queues`."""

from __future__ import annotations

from dataclasses import dataclass

from ..columns.rowset import RowSet
from ..columns.series import Ints
from .codec import Event, know


@dataclass(frozen=True)
class Relocated(Event):
    """Messages whose payloads are copied: they are this event's. Nothing else of them changes."""

    kind = "relocated"
    queue_id: int
    rows: RowSet  # none: the payload is of blocks that left memory, which are `Repacked`
    taken: Ints | None = None  # by row, in order, which row of the payload it is; None: row by row
    also: tuple[Event, ...] | None = None  # messages of other queues that have the same payload: `Relocated`, too


@dataclass(frozen=True)
class Repacked(Event):
    """A block that left memory has other columns, this event's payload, since payloads of its rows were copied."""

    kind = "block.repacked"
    queue_id: int
    number: int
    lowest_payload: int
    highest_payload: int


@dataclass(frozen=True)
class StagedRelocated(Event):
    """The payload of staged messages is copied as it was: it is this event's, instead of that of the record at `position`."""

    kind = "staged.relocated"
    position: int


@dataclass(frozen=True)
class Dropped(Event):
    """Parts of the log, from begin to end, whose payloads are gone from here on. Those of segments that are about to go."""

    kind = "dropped"
    intervals: list[list[int]]


know(Relocated, Repacked, StagedRelocated, Dropped)
