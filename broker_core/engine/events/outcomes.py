"""Events of outcomes of single messages of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .codec import Event, know, stored_as


@dataclass(frozen=True)
class OutcomesStaged(Event):
    """Outcomes that wait in a stage for its publish; `up` is microseconds of uptime."""

    kind = "outcomes.staged"
    stage: str
    lease: str
    batch: int
    epoch: int
    outcomes: list[Any] = field(metadata=stored_as("said"))  # see `RowsOutcome.to_json`
    up: int
    time: int | None = None  # None: an old journal's


@dataclass(frozen=True)
class MalformedFound(Event):
    """Messages of a batch that is being read, of which its reader could decode nothing."""

    kind = "malformed.found"
    lease: str
    batch: int
    outcomes: list[Any] = field(metadata=stored_as("said"))  # see `RowsOutcome.to_json`


know(OutcomesStaged, MalformedFound)
