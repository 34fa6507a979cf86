"""State changes by outcomes of single messages, before their batch is settled."""

from __future__ import annotations

from .. import events as e
from ..model.batch_outcomes import RowsOutcome, StagedOutcomes
from ..model.state import BrokerState


def outcomes_staged(state: BrokerState, event: e.OutcomesStaged, position: int) -> None:
    """Add outcomes to a stage."""
    stage = state.begin_stage(event.stage, state.time if event.time is None else event.time)
    outcomes = [RowsOutcome.from_json(each) for each in event.outcomes]
    stage.outcomes.append(StagedOutcomes(event.lease, event.batch, event.epoch, outcomes))


def malformed_found(state: BrokerState, event: e.MalformedFound, position: int) -> None:
    """Add malformed messages to the outcomes of their batch."""
    state.leases[event.lease].batches[event.batch].outcomes.add([RowsOutcome.from_json(each) for each in event.outcomes])
