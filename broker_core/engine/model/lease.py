"""Leases: durable, fenced consumers. A lease holds numbered batches; an offset of a Spark checkpoint names one of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import Any

from ..columns.rowset import RowSet
from .batch_outcomes import BatchOutcomes, RowsOutcome
from .reads import Reads

SIGN_BYTES = 8  # of a batch's sign: two of the same number differ by accident once in 10^19
REMEMBERED_BATCHES = 100  # a settled batch of these can still be read again (a lost commit file, a kept DataFrame)


class BatchState(str, Enum):
    """The state of a batch. One that is ACQUIRED or READ holds messages; the others have ended. Snapshots, events and
    `penstock lease list` call it `stage`."""

    ACQUIRED = "acquired"  # no task has read it: given back when nobody renews for `UNREAD_TIMEOUT`
    READ = "read"  # a sink may hold it: waits for its query however long that is down
    SETTLED = "settled"
    VOID = "void"  # given back unread: reads as empty for ever, and nobody ever saw its rows
    LOST = "lost"  # given back after a read (leaseTimeout, operator): what was read may be delivered again


HOLDING = (BatchState.ACQUIRED, BatchState.READ)


@dataclass
class Batch:
    """Messages that a lease has acquired together, numbered."""

    number: int
    holder: int
    rows: RowSet
    state: BatchState = BatchState.ACQUIRED
    outcomes: BatchOutcomes = field(default_factory=BatchOutcomes)  # of single messages, to be done when the batch is settled
    sign: str | None = None  # None: acquired by a version that gave none
    reads: Reads = field(default_factory=Reads)  # for what it was read, while it holds messages

    def to_json(self) -> dict[str, Any]:
        """Return the form of snapshots."""
        return {
            "number": self.number,
            "holder": self.holder,
            "rows": self.rows.to_json(),
            "state": self.state.value,
            "outcomes": [outcome.to_json() for outcome in self.outcomes],
            "sign": self.sign,
            "reads": self.reads.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Batch:
        """Read the form of snapshots."""
        outcomes = BatchOutcomes([RowsOutcome.from_json(outcome) for outcome in data["outcomes"]])
        rows, state, reads = RowSet.from_json(data["rows"]), BatchState(data["state"]), Reads.from_json(data["reads"])
        return cls(data["number"], data["holder"], rows, state, outcomes, data["sign"], reads)


def signed(nonce: str, lease: str, run: str, number: int, rows: RowSet, wall: int) -> str | None:
    """The sign of a batch that is acquired now: a hash that no other data directory gives to a batch of this lease and number,
    also where one is a copy of the other: each start of a broker has a nonce of its own. None without a nonce."""
    if not nonce:
        return None
    signed_text = json.dumps([nonce, lease, run, number, rows.first, rows.last, rows.count, wall])
    return blake2b(signed_text.encode(), digest_size=SIGN_BYTES).hexdigest()


@dataclass
class Lease:
    """Durable claim of a Spark query on batches of one queue."""

    # persisted
    name: str
    queue: str
    run: str  # given when a query without a checkpoint first acquires
    epoch: int = 1  # raised by every planner that takes the lease up; what an older one asks is refused
    finished: int = 0  # Spark has finished every batch up to this number
    timeout: int | None = None  # microseconds after which a READ batch nobody renews is given back too
    selector: str | None = None  # the canonical text of the one that all its batches go by
    batches: dict[int, Batch] = field(default_factory=dict)  # the last REMEMBERED_BATCHES, in ascending order
    excluded: RowSet = field(default_factory=RowSet)  # given back unread by this epoch under `exclude`: not taken again
    planned: bool = False  # `lease.plan` was asked for a batch of this run: Spark has written its offset
    # derived
    renewed: int | None = None  # broker uptime in microseconds
    unread: int = 0  # batches in a row that this epoch finished without reading them
    waits_until: int = 0  # broker uptime before which it gets no other one for that

    @property
    def current(self) -> Batch | None:
        """The batch that holds messages. There is at most one."""
        batch = next(reversed(self.batches.values()), None)
        return batch if batch is not None and batch.state in HOLDING else None

    @property
    def checkpointed(self) -> bool:
        """True if a checkpoint names a batch of this run. Spark writes the offset of a batch before its tasks are planned."""
        unread = (BatchState.ACQUIRED, BatchState.VOID)
        return self.planned or self.finished > 0 or any(batch.state not in unread for batch in self.batches.values())

    def sign_of(self, number: int) -> str | None:
        """The sign of a batch, None where it has none or is not remembered any longer."""
        batch = self.batches.get(number)
        return None if batch is None else batch.sign

    @property
    def last_number(self) -> int:
        """Number of the newest batch."""
        return max(self.finished, next(reversed(self.batches), 0))

    def remember(self, batch: Batch) -> None:
        """Keep a batch; forget the oldest beyond `REMEMBERED_BATCHES`."""
        self.batches[batch.number] = batch
        while len(self.batches) > REMEMBERED_BATCHES:
            del self.batches[next(iter(self.batches))]

    def to_json(self) -> dict[str, Any]:
        """Return the form of snapshots."""
        return {
            "name": self.name,
            "queue": self.queue,
            "run": self.run,
            "epoch": self.epoch,
            "finished": self.finished,
            "timeout": self.timeout,
            "selector": self.selector,
            "batches": [batch.to_json() for batch in self.batches.values()],
            "excluded": self.excluded.to_json(),
            "planned": self.planned,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Lease:
        """Read the form of snapshots."""
        batches = [Batch.from_json(batch) for batch in data["batches"]]
        fields = {name: data[name] for name in ("name", "queue", "run", "epoch", "finished", "timeout", "selector", "planned")}
        excluded = RowSet.from_json(data["excluded"])
        return cls(**fields, batches={batch.number: batch for batch in batches}, excluded=excluded)
