"""Facts about messages that no column has: the present holder, and the batches that had the message."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..engine.columns.rowset import BLOCK_BITS, as_array
from ..engine.columns.series import Ints
from ..engine.columns.states import ACQUIRED, DELAYED
from ..engine.model.lease import Lease
from ..engine.model.queue import Queue
from ..engine.model.reads import SparkBatch
from ..engine.model.state import BrokerState


class HoldingBatch(NamedTuple):
    """A batch of a lease that had the message. Only the latest 100 of a lease are known."""

    lease: str
    number: int
    state: str  # of the batch, such as `read`
    reads: tuple[SparkBatch, ...]


@dataclass
class StayFacts:
    """Facts about one message."""

    holder: str | None = None  # name of the link or lease that has acquired the message
    due: int | None = None  # until when a delayed message waits, milliseconds since 1970
    batches: list[HoldingBatch] = field(default_factory=list)


def facts_of(state: BrokerState, queue: Queue, number: int, rows: Ints) -> dict[int, StayFacts]:
    """Return the facts by sequence number. `rows`: of a block. Called under the lock."""
    base = number << BLOCK_BITS
    facts = {base + row: StayFacts() for row in rows.tolist()}
    leases = [lease for lease in state.leases.values() if lease.queue == queue.name]
    _add_batches(facts, leases, number, rows)
    block = queue.blocks.get(number)
    if block is None:  # packed: all its messages are settled
        return facts
    due = block.times(block.due, rows)
    codes = np.broadcast_to(block.holder.get(rows), len(rows))
    names = {holder: state.name_of(queue, holder) for holder in np.unique(codes[block.state[rows] == ACQUIRED]).tolist()}
    for index, row in enumerate(rows.tolist()):
        fact = facts[base + row]
        if block.state[row] == ACQUIRED:
            fact.holder = names[int(codes[index])]
        elif block.state[row] == DELAYED and due is not None and due[index]:
            fact.due = int(due[index])
    return facts


def _add_batches(facts: dict[int, StayFacts], leases: Iterable[Lease], number: int, rows: Ints) -> None:
    base = number << BLOCK_BITS
    first, last = base + int(rows[0]), base + int(rows[-1])
    for lease in leases:
        for batch in lease.batches.values():
            if not batch.rows or batch.rows.first > last or batch.rows.last < first:
                continue
            part = batch.rows.rows(number)
            if part is None:
                continue
            leased = HoldingBatch(lease.name, batch.number, batch.state.value, tuple(batch.reads.by))
            for row in np.intersect1d(rows, as_array(part), assume_unique=True).tolist():
                facts[base + row].batches.append(leased)
