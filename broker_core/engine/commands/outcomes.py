"""Commands about outcomes of single messages of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from ..columns.rowset import RowSet
from ..model.batch_outcomes import RowsOutcome
from .command import Command


@dataclass(frozen=True)
class StageOutcomes(Command[None]):
    """Outcomes of messages of one batch, to be published with their stage. `epoch` is that of the read that gave them."""

    stage: str
    lease: str
    batch: int
    epoch: int
    outcomes: list[RowsOutcome]


@dataclass(frozen=True)
class SetAside(Command[int]):
    """Messages of a batch that its reader could not decode: not delivered with it, and dead letters (or rejected) when it is
    settled. `reasons`: why, and which messages. The reply: how many of them that is news of."""

    lease: str
    batch: int
    epoch: int
    reasons: dict[str, RowSet]
    run: str | None = None
