"""Checks whether the messages of a lease's batch may still get outcomes."""

from __future__ import annotations

from ... import errors
from ..model.lease import Batch, BatchState
from ..model.state import BrokerState


def need_batch_for_outcomes(state: BrokerState, name: str, number: int, epoch: int, run: str | None = None) -> Batch:
    """Return the batch if its messages may get outcomes. Raises NotFound, Fenced, DataLoss.

    A settled batch is accepted, because a write that Spark repeats sends the same outcomes again.
    """
    lease = state.leases.get(name)
    if lease is None:
        raise errors.LeaseNotFound(f"there is no lease {name!r}: see `penstock lease list`")
    if epoch != lease.epoch or run not in (None, lease.run):
        raise errors.Fenced(
            f"lease {name!r} was taken up again since these messages were read (epoch {lease.epoch}, these are of {epoch}): "
            "nothing was settled. The query that holds the lease reads them again"
        )
    batch = lease.batches.get(number)
    if batch is None or batch.state not in (BatchState.READ, BatchState.SETTLED):
        raise errors.DataLoss(
            f"batch {number} of lease {name!r} is not held any longer: its messages were given back, and may be delivered again. "
            "Nothing was settled"
        )
    return batch


def check_outcomes(state: BrokerState, stages: list[str]) -> None:
    """Raise NotFound, Fenced or DataLoss if outcomes in these stages are no longer allowed."""
    for name in stages:
        for waiting in state.stages[name].outcomes:
            need_batch_for_outcomes(state, waiting.lease, waiting.batch, waiting.epoch)
