"""The event of outcomes that wait for a publish. See `events` for the rules of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from broker_core.engine.journaling import Event, know


@dataclass(frozen=True)
class OutcomesStaged(Event):
    kind = "outcomes.staged"
    stage: str
    lease: str
    batch: int
    epoch: int
    said: list[Any]  # see `Said.to_json`
    up: int


know(OutcomesStaged)
