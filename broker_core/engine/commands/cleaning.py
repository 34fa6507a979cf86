"""Commands of the cleaner, which copies payloads ahead in the log and drops what nobody needs. See `queues`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..columns.rowset import RowSet
from ..columns.series import Ints
from ..model.retention import Keeping
from .command import Command


class Copied(NamedTuple):
    """Messages of one queue, in blocks in memory, whose payloads were copied."""

    queue_id: int
    rows: RowSet
    positions: Ints  # by row, in order: the log position of the record that its payload was copied from
    payload_rows: Ints  # which row of that record it is
    copy_rows: Ints | None = None  # by row, its row in the copy; None: in order


@dataclass(frozen=True)
class Relocate(Command[int | None]):
    """A copy of payloads, each once, whoever holds it. Reply: of how many messages it has the payload from here on; None where
    it was not stored, since nobody has anything of it.

    Messages whose payload is no longer where it was when it was copied are left out: their queue is gone, their block has left
    memory, or they were copied before.
    """

    messages: Sequence[Copied]
    payload: Any  # a buffer, or several
    packed: Sequence[int] = ()  # ids of queues with blocks out of memory that are to have payloads there: see `Repack`


@dataclass(frozen=True)
class Repack(Command[bool]):
    """The columns of a block that left memory, written anew since payloads of its rows were copied. Reply: whether they replace
    those of the record at `position`, which they are made of; not where these were replaced before, or are gone."""

    queue_id: int
    number: int
    position: int
    lowest_payload: int  # the lowest and the highest log position of what is needed of its rows
    highest_payload: int
    payload: Any  # the packed columns


@dataclass(frozen=True)
class RelocateStaged(Command[int]):
    """A copy of the payload of the record at `position`, whole, for all stages that wait with it. Reply: how many parts of stages
    it is the payload of from here on."""

    position: int
    payload: Any


@dataclass(frozen=True)
class Drop(Command[list[list[int]]]):
    """Disjoint parts of the log (begin, end) that are to go. Reply: those in which nobody needs anything, as `keeping` has
    it; from here on nobody finds anything there.

    `packed`: of blocks that left memory, by the log position of their columns: a log position in each of the parts in which
    something is needed of them, these columns too. Without it, all between the first and the last payload counts as needed.
    """

    intervals: list[list[int]]
    keeping: Keeping
    packed: Mapping[int, Ints] = field(default_factory=dict)
