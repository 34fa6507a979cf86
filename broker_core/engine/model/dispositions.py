"""Dispositions of deliveries: a message is settled with an outcome, or comes back for a cause."""

from __future__ import annotations

from typing import NamedTuple

from ..columns.states import Cause, Outcome


class Disposition(NamedTuple):
    """The end of a delivery: either `outcome` or `cause` is set. `error` belongs to REJECTED, the other fields to a `cause`."""

    outcome: Outcome | None = None
    cause: Cause | None = None
    error: str | None = None
    exclude: bool = False  # undeliverable here: not offered to this link again
    annotations: bytes | None = None


ROLLED_BACK = Disposition(cause=Cause.ROLLBACK)
