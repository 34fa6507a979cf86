"""Leases: durable, fenced consumers with numbered batches. An offset in a Spark checkpoint names a batch."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import Any

from ..columns.rowset import RowSet
from .batch_outcomes import RowsOutcome
from .names import shortened, taker_name
from .reads import Reads

SIGN_BYTES = 8  # two signs are equal by accident once in 10^19
REMEMBERED_BATCHES = 100  # settled ones can be read again (a lost commit file, a repeated DataFrame)


class BatchState(str, Enum):
    """State of a batch, which `penstock lease list` calls `stage`."""

    ACQUIRED = "acquired"  # unread; it returns after `UNREAD_TIMEOUT` without renewal of the lease
    READ = "read"  # a sink may have the messages; it waits for its query without a limit
    SETTLED = "settled"
    VOID = "void"  # returned unread: it reads as empty forever
    LOST = "lost"  # returned after a read: its messages may be delivered again


_PERSISTED = ("name", "queue", "run", "epoch", "finished", "timeout", "selector", "planned", "query", "query_name")
# The owner, and the name of a query without the option `lease`. A test compares it with `RANDOM_LEASE` of connector/options.py:
# the connector cannot import the engine.
_RANDOM_NAME = re.compile(r"(?:(.+):)?q-[0-9a-f]{32}(?:/.*)?")
HOLDING = (BatchState.ACQUIRED, BatchState.READ)


@dataclass
class Batch:
    """Messages that a lease acquired together."""

    number: int
    holder: int
    rows: RowSet
    state: BatchState = BatchState.ACQUIRED
    outcomes: list[RowsOutcome] = field(default_factory=list)
    sign: str | None = None
    reads: Reads = field(default_factory=Reads)

    def to_json(self) -> dict[str, Any]:
        outcomes = [outcome.to_json() for outcome in self.outcomes]
        rows, reads = self.rows.to_json(), self.reads.to_json()
        return {**vars(self), "rows": rows, "state": self.state.value, "outcomes": outcomes, "reads": reads}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Batch:
        outcomes = [RowsOutcome.from_json(outcome) for outcome in data["outcomes"]]
        rows, state, reads = RowSet.from_json(data["rows"]), BatchState(data["state"]), Reads.from_json(data["reads"])
        return cls(data["number"], data["holder"], rows, state, outcomes, data["sign"], reads)


def signed(nonce: str, lease: str, run: str, number: int, rows: RowSet, wall: int) -> str | None:
    """Signs distinguish batches of one number in copies of a data directory: each start of a broker has its own nonce."""
    if not nonce:
        return None
    signed_text = json.dumps([nonce, lease, run, number, rows.first, rows.last, rows.count, wall])
    return blake2b(signed_text.encode(), digest_size=SIGN_BYTES).hexdigest()


@dataclass
class Lease:
    """The right of a Spark query to batches of one queue. Times are microseconds of uptime."""

    # persisted
    name: str
    queue: str
    run: str  # chosen when a query without a checkpoint first acquires
    epoch: int = 1  # raised by each planner that takes up the lease; requests of earlier planners are refused
    finished: int = 0  # last batch that Spark has finished
    timeout: int | None = None  # without renewal, after which a READ batch returns
    selector: str | None = None
    batches: dict[int, Batch] = field(default_factory=dict)  # the last ones, ascending
    excluded: RowSet = field(default_factory=RowSet)  # messages that this epoch does not take again, by `exclude`
    planned: bool = False  # tasks of this run were planned, so Spark has written an offset
    query: str | None = None  # id of the Spark query that last began to read a batch
    query_name: str | None = None
    # derived
    renewed: int | None = None
    unread: int = 0  # consecutive batches that this epoch finished unread
    waits_until: int = 0  # no other batch before

    @property
    def current(self) -> Batch | None:
        batch = next(reversed(self.batches.values()), None)
        return batch if batch is not None and batch.state in HOLDING else None

    @property
    def checkpointed(self) -> bool:
        """True if a checkpoint names a batch of this run: Spark writes the offset before it plans tasks."""
        unread = (BatchState.ACQUIRED, BatchState.VOID)
        return self.planned or self.finished > 0 or any(batch.state not in unread for batch in self.batches.values())

    @property
    def reader(self) -> str | None:
        return self.query_name or self.query

    @property
    def taker(self) -> str:
        """The name in the archive."""
        if self.reader is None:
            return shortened(self.name)
        random_name = _RANDOM_NAME.fullmatch(self.name)
        return taker_name(self.reader, random_name[1] if random_name else self.name) or self.name

    def note_query(self, query: str | None, name: str | None) -> None:
        """A job may lack the query's name, because `foreachBatch` can set the description of its jobs."""
        if query is not None and (name is not None or query != self.query):
            self.query, self.query_name = query, name

    def sign_of(self, number: int) -> str | None:
        batch = self.batches.get(number)
        return None if batch is None else batch.sign

    @property
    def last_number(self) -> int:
        return max(self.finished, next(reversed(self.batches), 0))

    def remember(self, batch: Batch) -> None:
        self.batches[batch.number] = batch
        while len(self.batches) > REMEMBERED_BATCHES:
            del self.batches[next(iter(self.batches))]

    def to_json(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in _PERSISTED}
        batches = [batch.to_json() for batch in self.batches.values()]
        return {**fields, "batches": batches, "excluded": self.excluded.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Lease:
        batches = [Batch.from_json(batch) for batch in data["batches"]]
        fields = {name: data[name] for name in _PERSISTED if name in data}
        excluded = RowSet.from_json(data["excluded"])
        return cls(**fields, batches={batch.number: batch for batch in batches}, excluded=excluded)
