"""Outcomes of receivers: the mapping from AMQP's delivery states (3.4) to the engine's dispositions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...amqp import Accepted, Modified, Rejected, Released
from ...amqp.encoder import encode
from ...engine.columns.states import Cause, Outcome
from ...engine.model.dispositions import Disposition

if TYPE_CHECKING:
    from ...amqp.performatives import DeliveryState

RETURNED = Disposition(cause=Cause.RELEASED)
NOT_HERE = Disposition(cause=Cause.RELEASED, exclude=True)


def disposition_of(state: DeliveryState | None, default: Disposition | None) -> Disposition | None:
    """Map a delivery state; None for one that is no outcome. Settled without an outcome is the source's default (3.5.3)."""
    if isinstance(state, Accepted):
        return Disposition(outcome=Outcome.ACCEPTED)
    if isinstance(state, Rejected):
        why = state.error
        return Disposition(outcome=Outcome.REJECTED, error=None if why is None else f"{why.condition}: {why.description or ''}")
    if isinstance(state, Released):
        return RETURNED
    if isinstance(state, Modified):
        notes = state.message_annotations
        return Disposition(
            cause=Cause.MODIFIED if state.delivery_failed else Cause.MODIFIED_UNCOUNTED,
            exclude=bool(state.undeliverable_here),
            annotations=encode(notes) if notes else None,
        )
    return default


def left_behind(default: Disposition | None) -> Disposition:
    """Return the outcome of messages that a link holds at its end: its source's default, or lost with the link."""
    if default is None:
        return Disposition(cause=Cause.LINK_LOST)
    cause = Cause.MODIFIED_BY_DEFAULT if default.cause is Cause.MODIFIED else default.cause
    return default._replace(cause=cause, exclude=False)
