"""Outcomes of single messages of a lease's batch (`operation=settle`), applied when the batch is settled.

A write stages and publishes its outcomes like messages. The last outcome of a message counts. Without one, it is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..columns.limits import MAX_ERROR_TEXT, MAX_OUTCOMES
from ..columns.rowset import RowSet
from ..columns.states import Cause, Outcome
from .dispositions import DeliveryEnd

#: Instead of further error texts of a batch or a write.
NOT_KEPT = f"(not kept: more than {MAX_OUTCOMES:,} different errors)"

#: Outcomes that a write may give.
DISPOSITIONS = {
    "accepted": DeliveryEnd(Outcome.ACCEPTED),
    "rejected": DeliveryEnd(Outcome.REJECTED),
    "released": DeliveryEnd(cause=Cause.RELEASED),
    "modified": DeliveryEnd(cause=Cause.MODIFIED),  # the attempt counts as failed
}

#: Outcome of messages that the reader could not decode.
MALFORMED = "malformed"


@dataclass(frozen=True)
class RowsOutcome:
    """One outcome (of DISPOSITIONS, or MALFORMED) with its error text, and its messages."""

    outcome: str
    error: str | None
    rows: RowSet

    @property
    def disposition(self) -> DeliveryEnd:
        return DISPOSITIONS[self.outcome]._replace(error=self.error)

    def to_json(self) -> list[Any]:
        return [self.outcome, self.error, self.rows.to_json()]

    @classmethod
    def from_json(cls, data: list[Any]) -> RowsOutcome:
        outcome, error, rows = data
        return cls(outcome, error, RowSet.from_json(rows))


@dataclass
class StagedOutcomes:
    """Outcomes of one batch in one record of a stage."""

    lease: str
    batch: int
    epoch: int
    outcomes: list[RowsOutcome]

    def to_json(self) -> list[Any]:
        return [self.lease, self.batch, self.epoch, [outcome.to_json() for outcome in self.outcomes]]

    @classmethod
    def from_json(cls, data: list[Any]) -> StagedOutcomes:
        lease, batch, epoch, outcomes = data
        return cls(lease, batch, epoch, [RowsOutcome.from_json(outcome) for outcome in outcomes])


def with_newer(earlier: list[RowsOutcome], newer: list[RowsOutcome]) -> list[RowsOutcome]:
    """Return the outcomes of a batch, each message once: newer outcomes replace earlier ones."""
    entries = [*earlier, *newer]
    kinds = dict.fromkeys((entry.outcome, entry.error) for entry in entries)
    codes = {kind: code for code, kind in enumerate(kinds)}
    sequences = np.concatenate([entry.rows.sequences() for entry in entries] or [np.zeros(0, np.int64)])[::-1]
    code_of = np.repeat([codes[entry.outcome, entry.error] for entry in entries], [entry.rows.count for entry in entries])
    sequences, last = np.unique(sequences, return_index=True)
    latest = code_of[::-1][last]
    order = np.argsort(latest, kind="stable")
    codes_used, begins = np.unique(latest[order], return_index=True)
    parts, known = np.split(sequences[order], begins[1:]), list(kinds)
    merged = []
    for code, rows in zip(codes_used.tolist(), parts, strict=False):
        outcome, error = known[code]
        merged.append(RowsOutcome(outcome, error, RowSet.of_sequences(rows)))
    return [RowsOutcome(entry.outcome, entry.error, entry.rows.packed()) for entry in cut(merged, MAX_OUTCOMES)]


def cut(outcomes: list[RowsOutcome], most: int) -> list[RowsOutcome]:
    """Merge rejected messages, so that about `most` entries remain, with the first texts."""
    if len(outcomes) <= most:
        return outcomes
    # Few entries have no text, or another outcome (MALFORMED).
    merged: list[RowsOutcome] = []
    rest = []
    for number, entry in enumerate(outcomes):
        stays = number < most or entry.error is None or entry.outcome == MALFORMED
        if stays and entry.error != NOT_KEPT:
            merged.append(entry)
        else:
            rest.append(entry.rows.sequences())
    if rest:
        merged.append(RowsOutcome("rejected", NOT_KEPT, RowSet.of_sequences(np.sort(np.concatenate(rest)))))
    return merged


def shortened(error: str | None) -> str | None:
    return None if error is None else error[:MAX_ERROR_TEXT]
