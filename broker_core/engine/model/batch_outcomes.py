"""Outcomes of single messages of a lease's batch (`operation=settle`): said while the batch is read, done when it is settled.

A write stages what it says, and its commit publishes that, as messages are: all of it or nothing. Said again, the last one wins.
What nobody said anything of is accepted with the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..columns.limits import MAX_ERROR_TEXT, MAX_OUTCOMES
from ..columns.rowset import RowSet
from ..columns.states import Cause, Outcome
from .dispositions import Ending

#: What stands for an error's text when so many have been said of a batch, or by a write, that the others are not kept.
NOT_KEPT = f"(not kept: more than {MAX_OUTCOMES:,} different errors were said at once)"

ENDINGS = {
    "accepted": Ending(Outcome.ACCEPTED),
    "rejected": Ending(Outcome.REJECTED),
    "released": Ending(cause=Cause.RELEASED),
    "modified": Ending(cause=Cause.MODIFIED),  # the attempt counts as failed
}

#: What is said of messages that the reader could not decode. Nobody says it in a column: it is not among ENDINGS.
MALFORMED = "malformed"


@dataclass(frozen=True)
class Said:
    """One outcome (a name of ENDINGS, or MALFORMED), what its sayer adds to it, and the messages."""

    outcome: str
    error: str | None
    rows: RowSet

    @property
    def ending(self) -> Ending:
        """Ending of the deliveries, with the error text."""
        return ENDINGS[self.outcome]._replace(error=self.error)

    def to_json(self) -> list[Any]:
        """Return the form of events and snapshots."""
        return [self.outcome, self.error, self.rows.to_json()]

    @classmethod
    def from_json(cls, data: list[Any]) -> Said:
        """Read the form of events and snapshots."""
        outcome, error, rows = data
        return cls(outcome, error, RowSet.from_json(rows))


@dataclass
class StagedOutcomes:
    """Outcomes of messages of one batch in one journaled record of a stage."""

    lease: str
    batch: int
    epoch: int
    said: list[Said]


@dataclass
class Outcomes:
    """Of a batch: each message is in one entry at most."""

    said: list[Said] = field(default_factory=list)

    def say(self, newer: list[Said]) -> None:
        """Of messages in several of `newer`, the later entry counts. Errors' texts beyond `MAX_OUTCOMES` are not kept."""
        entries = [*self.said, *newer]
        kinds = dict.fromkeys((entry.outcome, entry.error) for entry in entries)
        codes = {kind: code for code, kind in enumerate(kinds)}
        sequences = np.concatenate([entry.rows.sequences() for entry in entries] or [np.zeros(0, np.int64)])[::-1]
        said = np.repeat([codes[entry.outcome, entry.error] for entry in entries], [entry.rows.count for entry in entries])[::-1]
        sequences, last = np.unique(sequences, return_index=True)
        order = np.argsort(said[last], kind="stable")
        found, begins = np.unique(said[last][order], return_index=True)
        parts, known = np.split(sequences[order], begins[1:]), list(kinds)
        merged = []
        for code, rows in zip(found.tolist(), parts, strict=False):
            outcome, error = known[code]
            merged.append(Said(outcome, error, RowSet.of_sequences(rows)))
        self.said = [Said(each.outcome, each.error, each.rows.packed()) for each in cut(merged, MAX_OUTCOMES)]

    def __len__(self) -> int:
        return len(self.said)


def cut(said: list[Said], most: int) -> list[Said]:
    """Merge outcomes of the same messages into so many entries or a few more: the first errors keep their texts."""
    if len(said) <= most:
        return said
    # Those without a text are few, and so are those of malformed messages, whose outcome is another one.
    may_stay = [number < most or each.error is None or each.outcome == MALFORMED for number, each in enumerate(said)]
    kept = [each for each, stays in zip(said, may_stay, strict=True) if stays]
    rest = [each.rows.sequences() for each, stays in zip(said, may_stay, strict=True) if not stays]
    for number, each in enumerate(kept):
        if each.error == NOT_KEPT:
            rest.append(each.rows.sequences())
            del kept[number]
            break
    if rest:
        kept.append(Said("rejected", NOT_KEPT, RowSet.of_sequences(np.sort(np.concatenate(rest)))))
    return kept


def shortened(error: str | None) -> str | None:
    """Cut an error text to `MAX_ERROR_TEXT` characters."""
    return None if error is None else error[:MAX_ERROR_TEXT]
