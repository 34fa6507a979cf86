"""Commands for the passing of time and the start of the broker."""

from __future__ import annotations

from dataclasses import dataclass

from .command import Command


@dataclass(frozen=True)
class Tick(Command[None]):
    """The passing of time."""


@dataclass(frozen=True)
class StartBroker(Command[dict[str, int]]):
    """Links of the last run have ended, and leases count time from here."""

    nonce: str = ""  # random; without it batches have no sign
