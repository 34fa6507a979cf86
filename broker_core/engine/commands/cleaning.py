"""Commands of the cleaner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..columns.rowset import RowSet
from ..columns.series import Ints
from ..model.retention import Keeping
from .command import Command


class RelocatedRows(NamedTuple):
    """Messages of one queue whose payloads were copied. Their blocks are in memory."""

    queue_id: int
    rows: RowSet
    positions: Ints  # by row: log position of the copied record
    payload_rows: Ints  # by row: its row in that record
    copy_rows: Ints | None = None  # None: in order


@dataclass(frozen=True)
class Relocate(Command[int | None]):
    """A copy of payloads. Reply: the number of messages that use it now; None: it is not needed, nor stored. Messages whose
    payload is no longer in the copied place are left out."""

    messages: Sequence[RelocatedRows]
    payload: Any  # a buffer, or several
    packed: Sequence[int] = ()  # ids of queues whose packed blocks use the copy


@dataclass(frozen=True)
class Repack(Command[bool]):
    """New columns of a packed block, because payloads of its rows were copied. Reply: whether they replace the columns at
    `position`, from which they were made."""

    queue_id: int
    number: int
    position: int
    lowest_payload: int  # log positions of the payloads that its rows need
    highest_payload: int
    payload: Any


@dataclass(frozen=True)
class RelocateStaged(Command[int]):
    """A copy of the payload of the record at `position`. Reply: the number of parts of stages that use it now."""

    position: int
    payload: Any


@dataclass(frozen=True)
class Drop(Command[list[list[int]]]):
    """Disjoint parts of the log (begin, end) to drop. Reply: the parts that were dropped, because `keeping` does not need them.

    `packed`: by the log position of a packed block's columns, one position in each part that the block needs. Without an entry,
    it needs everything between its first and last payload.
    """

    intervals: list[list[int]]
    keeping: Keeping
    packed: Mapping[int, Ints] = field(default_factory=dict)
