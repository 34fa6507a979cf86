"""Commands that say that time has passed, or that the broker has started."""

from __future__ import annotations

from dataclasses import dataclass

from .command import Command


@dataclass(frozen=True)
class Tick(Command[None]):
    """Time has passed."""


@dataclass(frozen=True)
class Recovered(Command[dict[str, int]]):
    """The broker has started: links of the last life have ended, leases count time anew."""

    nonce: str = ""  # drawn for this start; without one batches have no sign
