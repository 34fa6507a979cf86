"""Endings of a delivery: a message is settled with an outcome, or comes back for a cause."""

from __future__ import annotations

from typing import NamedTuple

from ..columns.states import Cause, Outcome


class Ending(NamedTuple):
    """One of `outcome` and `cause` is there. The rest belongs to them: `error` to REJECTED, the others to what comes back."""

    outcome: Outcome | None = None
    cause: Cause | None = None
    error: str | None = None
    exclude: bool = False  # undeliverable here: not offered to this link again
    annotations: bytes | None = None


ROLLED_BACK = Ending(cause=Cause.ROLLBACK)
