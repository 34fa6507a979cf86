"""Whether something may still be said of the messages of a batch."""

from __future__ import annotations

from penstock.broker_core import errors
from penstock.broker_core.engine.model.lease import Batch, Stage
from penstock.broker_core.engine.model.state import BrokerState


def speakable(state: BrokerState, name: str, number: int, epoch: int) -> Batch:
    """The batch of which something may be said now. One that is settled too: a write that Spark repeats says what was done."""
    lease = state.leases.get(name)
    if lease is None:
        raise errors.NotFound(f"there is no lease {name!r}: see `penstock lease list`")
    if epoch != lease.epoch:
        raise errors.Fenced(
            f"lease {name!r} was taken up again since these messages were read (epoch {lease.epoch}, these are of {epoch}): "
            "nothing was settled. The query that holds the lease reads them again"
        )
    batch = lease.batches.get(number)
    if batch is None or batch.stage not in (Stage.READ, Stage.SETTLED):
        raise errors.DataLoss(
            f"batch {number} of lease {name!r} is not held any longer: its messages were given back, and may be delivered again. "
            "Nothing was settled"
        )
    return batch


def check_outcomes(state: BrokerState, stages: list[str]) -> None:
    """Before a publish: what the stages say may still be said."""
    for name in stages:
        for waiting in state.stages[name].outcomes:
            speakable(state, waiting.lease, waiting.batch, waiting.epoch)
