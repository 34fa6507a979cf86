"""Events of the archive's table: passes that begin and end (see `model.passes`)."""

from __future__ import annotations

from dataclasses import dataclass

from ..columns.rowset import RowSet
from .codec import Event, know


@dataclass(frozen=True)
class PassBegun(Event):
    """Settled rows that go to the queue's table in one commit: these and no others, however often that is tried."""

    kind = "pass.begun"
    queue_id: int
    number: int
    rows: RowSet


@dataclass(frozen=True)
class PassEnded(Event):
    """The rows of a pass are in the queue's table, from this version of it on."""

    kind = "pass.ended"
    queue_id: int
    number: int
    version: int


know(PassBegun, PassEnded)
