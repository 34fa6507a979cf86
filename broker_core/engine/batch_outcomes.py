"""What becomes of single messages of a lease's batch (`operation=settle`): said while the batch is read, done when it is settled.

A write stages what it says, and its commit publishes that, as messages are: all of it or nothing. Said again, the last one wins.
What nobody said anything of is accepted with the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from broker_core.engine.endings import Ending
from broker_core.engine.limits import MAX_ERROR_TEXT
from broker_core.engine.rowset import RowSet
from broker_core.engine.states import Cause, Outcome

ENDINGS = {
    "accepted": Ending(Outcome.ACCEPTED),
    "rejected": Ending(Outcome.REJECTED),
    "released": Ending(cause=Cause.RELEASED),
    "modified": Ending(cause=Cause.MODIFIED),  # the attempt counts as failed
}


@dataclass(frozen=True)
class Said:
    """One outcome (a name of ENDINGS), what its sayer adds to it, and the messages."""

    outcome: str
    error: str | None
    rows: RowSet

    @property
    def ending(self) -> Ending:
        return ENDINGS[self.outcome]._replace(error=self.error)

    def to_json(self) -> list[Any]:
        return [self.outcome, self.error, self.rows.to_json()]

    @classmethod
    def from_json(cls, data: list[Any]) -> Said:
        outcome, error, rows = data
        return cls(outcome, error, RowSet.from_json(rows))


@dataclass
class StagedOutcomes:
    """What one journaled record of a stage says of messages of one batch."""

    lease: str
    batch: int
    epoch: int
    said: list[Said]


@dataclass
class Outcomes:
    """Of a batch: each message is in one entry at most."""

    said: list[Said] = field(default_factory=list)

    def say(self, newer: list[Said]) -> None:
        """Of messages in several of `newer`, the later entry counts."""
        for entry in newer:
            kept = [Said(old.outcome, old.error, old.rows.minus(entry.rows).packed()) for old in self.said]
            self.said = [old for old in kept if old.rows]
            alike = next((old for old in self.said if (old.outcome, old.error) == (entry.outcome, entry.error)), None)
            if alike is None:
                self.said.append(entry)
            else:
                self.said[self.said.index(alike)] = Said(entry.outcome, entry.error, alike.rows.plus(entry.rows).packed())

    def __len__(self) -> int:
        return len(self.said)


def shortened(error: str | None) -> str | None:
    return None if error is None else error[:MAX_ERROR_TEXT]
