"""Events of outcomes of single messages of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..model.batch_outcomes import RowsOutcome, StagedOutcomes, with_newer
from ..model.state import BrokerState
from .event import Event


@dataclass(frozen=True)
class OutcomesStaged(Event, kind="outcomes.staged"):
    """Outcomes in a stage."""

    stage: str
    lease: str
    batch: int
    epoch: int
    outcomes: list[Any]  # see `RowsOutcome.to_json`
    time: int

    def apply(self, state: BrokerState, position: int) -> None:
        outcomes = [RowsOutcome.from_json(outcome) for outcome in self.outcomes]
        stage = state.begin_stage(self.stage, self.time)
        stage.outcomes.append(StagedOutcomes(self.lease, self.batch, self.epoch, outcomes))


@dataclass(frozen=True)
class MalformedFound(Event, kind="malformed.found"):
    """Messages of a batch that its reader could not decode."""

    lease: str
    batch: int
    outcomes: list[Any]  # as in `OutcomesStaged`

    def apply(self, state: BrokerState, position: int) -> None:
        batch = state.leases[self.lease].batches[self.batch]
        batch.outcomes = with_newer(batch.outcomes, [RowsOutcome.from_json(outcome) for outcome in self.outcomes])
