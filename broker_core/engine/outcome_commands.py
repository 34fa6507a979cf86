"""What can be said of single messages of a batch."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.engine.batch_outcomes import Said
from broker_core.engine.commands import Command


@dataclass(frozen=True)
class StageOutcomes(Command):
    """Outcomes of messages of one batch, to be published with their stage. `epoch` is that of the read that gave them."""

    stage: str
    lease: str
    batch: int
    epoch: int
    said: list[Said]
