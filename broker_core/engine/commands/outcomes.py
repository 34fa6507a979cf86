"""Commands about outcomes of single messages of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from ..columns.rowset import RowSet
from ..model.batch_outcomes import RowsOutcome
from .command import Command


@dataclass(frozen=True)
class StageOutcomes(Command[None]):
    """`epoch`: of the read."""

    stage: str
    lease: str
    batch: int
    epoch: int
    outcomes: list[RowsOutcome]


@dataclass(frozen=True)
class SetAside(Command[int]):
    """Messages that the reader could not decode, by reason. They are dead-lettered or rejected with the end of the batch. Reply:
    how many are new."""

    lease: str
    batch: int
    epoch: int
    reasons: dict[str, RowSet]
    run: str | None = None
