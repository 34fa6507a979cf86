"""Slices of blocks: copies of the columns of some rows of one block, made under the broker's lock. Their payloads are read
without a lock, since payloads never change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from ..engine.columns.blocks import Block
from ..engine.columns.failures import FailedRows
from ..engine.columns.limits import NEVER
from ..engine.columns.rowset import BLOCK_BITS
from ..engine.columns.runs import Locations
from ..engine.columns.series import Ints, Rows
from ..engine.columns.states import ACQUIRED
from ..engine.model.queue import Queue
from ..errors import DamagedJournal, DamagedMessages, DataLoss
from ..journal import Hold
from ..messages.payloads import Payload
from .dead_letters import DeadLetters, QueueNames, dead_letters_of, errors_of
from .recent import Recent

RETENTION = (
    "are gone: retention removed them. Keep them longer (retention_age_s, retention_bytes); with failOnDataLoss=false a query "
    "continues without them"
)


def data_loss(queue: str, block: int, why: str) -> DataLoss:
    """Return the error for messages of a block that are gone. `why` continues the sentence."""
    return DataLoss(f"messages of {queue!r} around sequence number {block << BLOCK_BITS} {why}")


def names_of(queue: Queue) -> QueueNames:
    return QueueNames(queue.name, queue.origins, queue.takers.names)


class BlockSlice(NamedTuple):
    """Rows of one block: a copy of their columns, and the locations of their payloads.

    The per-row columns are parallel to `rows`; a plain number holds for all rows. An *index* counts within `rows`.
    """

    base: int  # sequence number of the block's row 0
    rows: Rows
    locations: Locations
    attempts: Ints | int  # unsuccessful deliveries
    state: npt.NDArray[np.uint8] | int
    outcome: Ints | int
    settled: Ints | int  # milliseconds after `begun`, plus one; 0: not settled
    begun: int  # microseconds since 1970: arrival of the block's first message
    returned: Ints | int  # 1: the message was acquired before and came back
    overlays: Mapping[int, list[bytes]]  # index → added annotations, in order: encoded maps
    expiry: npt.NDArray[np.int64] | None  # milliseconds since 1970; 0: never; None: no row has one
    dead_letters: DeadLetters | None  # None: no row is a dead letter
    batches: Mapping[int, Payload]  # log position → the record's batch, if it is still in memory
    errors: Mapping[int, str]  # index → the error text of the consumer that rejected the message
    taker: Ints | int  # number in `takers`, from 1 on, of the last holder; 0: a holder without a name
    takers: Sequence[str]  # names of links, leases and commands
    failures: FailedRows | None = None  # None: no row has failed
    locked: npt.NDArray[np.int64] | None = None  # milliseconds since 1970: end of the lock; 0: without end
    hold: Hold | None = None  # while the slice exists, the journal finds its `locations`

    def sequences(self, indexes: slice) -> npt.NDArray[np.int64]:
        if isinstance(self.rows, slice):
            first = self.base + self.rows.start
            return np.arange(first + indexes.start, first + indexes.stop)
        numbers: npt.NDArray[np.int64] = self.rows[indexes] + self.base
        return numbers

    def first_of(self, indexes: slice) -> int | None:
        if isinstance(self.rows, slice):
            return self.base + int(self.rows.start) + int(indexes.start)
        first, last = int(self.rows[indexes.start]), int(self.rows[indexes.stop - 1])
        return int(self.base) + first if last - first == indexes.stop - 1 - indexes.start else None

    def overlays_of(self, indexes: slice, time: int) -> Mapping[int, list[bytes]]:
        """Return the annotations to add to the rows at `indexes`: index within `indexes` → encoded maps, in order.

        `time` is the arrival time of these rows.
        """
        start, stop, dead = indexes.start, indexes.stop, self.dead_letters
        overlays = {index - start: entries for index, entries in self.overlays.items() if start <= index < stop}
        if dead is not None:
            for index, entry in dead.maps(indexes, np.full(stop - start, time)).items():
                overlays[index] = [*overlays.get(index, ()), entry]
        return overlays

    def refuse(self, queue: str, indexes: slice, error: DamagedJournal) -> NoReturn:
        """Raise DamagedMessages for the rows at `indexes`."""
        sequences = self.sequences(indexes)
        raise DamagedMessages.of(queue, int(sequences[0]), int(sequences[-1]), error) from error

    @property
    def annotated(self) -> bool:
        return bool(self.overlays) or self.dead_letters is not None


def lock_ends(queue: Queue, block: Block, rows: Rows, started_ms: int) -> npt.NDArray[np.int64] | None:
    """Return `BlockSlice.locked`. Called under the broker's lock. `started_ms`: start of the broker, milliseconds since 1970."""
    locks = block.lock.get(rows)
    groups = [] if queue.groups is None else [lock for lock in queue.groups.locks.values() if lock.until != NEVER]
    if isinstance(locks, int) and not groups:
        return None
    acquired = block.state[: block.filled][rows] == ACQUIRED
    ends = np.where(acquired & (np.asarray(locks) > 0), np.asarray(locks, np.int64) - 1 + started_ms, 0)
    holders = block.holder.get(rows)
    for lock in groups:
        ends[acquired & (holders == lock.holder)] = lock.until + started_ms
    return ends


def slice_of(
    block: Block,
    rows: Rows,
    names: QueueNames,
    recent: Recent | None = None,
    *,
    outcomes: bool = True,
    hold: Hold | None = None,
    locked: npt.NDArray[np.int64] | None = None,
) -> BlockSlice:
    """Copy the columns of `rows`. Called under the broker's lock.

    Without `outcomes` the columns state, outcome, settled, errors, taker and failures are left out. `hold` is the journal's,
    taken under the same lock. Without it the payloads may be dropped before they are read.
    """

    def copied(values: Ints | int) -> Ints | int:
        # For a slice numpy returns a view, for row numbers a copy.
        return values.copy() if isinstance(values, np.ndarray) and isinstance(rows, slice) else values

    locations = block.locations(rows)
    return BlockSlice(
        block.base,
        rows,
        locations,
        copied(block.attempts.get(rows)),
        np.asarray(copied(block.state[: block.filled][rows])) if outcomes else 0,
        copied(block.outcome.get(rows)) if outcomes else 0,
        copied(block.settled.get(rows)) if outcomes else 0,
        block.runs.time[0],
        copied(block.returned.get(rows)),
        block.overlays.among(rows),
        block.times(block.expiry, rows),
        dead_letters_of(block, rows, names),
        recent.among(locations.position) if recent else {},
        errors_of(block, rows) if outcomes else {},
        copied(block.taker.get(rows)) if outcomes else 0,
        names.takers,
        block.failures.of(rows) if outcomes else None,
        locked,
        hold,
    )
