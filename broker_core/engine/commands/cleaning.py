"""Commands of the cleaner, which copies payloads ahead in the log and drops what nobody needs. See `queues`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..columns.rowset import RowSet
from ..columns.series import Ints
from ..model.retention import Keeping
from .command import Command


@dataclass(frozen=True)
class Relocate(Command[int]):
    """A copy of the payloads of messages. Reply: how many it is the payload of from here on.

    Those whose payload is no longer where it was when it was copied are left out: their queue is gone, their block has left
    memory, or they were copied before.
    """

    queue_id: int
    rows: RowSet
    positions: Ints  # by row, in order: the log position of the record that its payload was copied from
    payload_rows: Ints  # and which row of that record it is
    payload: Any  # a buffer, or several: its i-th row is the i-th message's


@dataclass(frozen=True)
class RelocateStaged(Command[int]):
    """A copy of the payload of the record at `position`, whole, for all stages that wait with it. Reply: how many parts of stages
    it is the payload of from here on."""

    position: int
    payload: Any


@dataclass(frozen=True)
class Drop(Command[list[list[int]]]):
    """Disjoint parts of the log (begin, end) that are to go. Reply: those in which nobody needs anything, as `keeping` has
    it; from here on nobody finds anything there."""

    intervals: list[list[int]]
    keeping: Keeping
