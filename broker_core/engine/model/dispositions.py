"""What ends the delivery of a message, and how: it is settled with an outcome, or comes back for a cause."""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome
from penstock.broker_core.engine.commands import queues as c


class Ending(NamedTuple):
    """One of `outcome` and `cause` is there. The rest belongs to them: `error` to REJECTED, the others to what comes back."""

    outcome: Outcome | None = None
    cause: Cause | None = None
    error: str | None = None
    exclude: bool = False  # undeliverable here: not offered to this link again
    annotations: bytes | None = None

    def command(self, queue: str, holder: int, rows: RowSet) -> c.Settle | c.Release:
        """What carries it out for messages that `holder` holds."""
        if self.outcome is not None:
            return c.Settle(queue, holder, rows, self.outcome, self.error)
        assert self.cause is not None
        return c.Release(queue, holder, rows, self.cause, self.exclude, self.annotations)


ROLLED_BACK = Ending(cause=Cause.ROLLBACK)
