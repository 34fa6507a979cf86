"""Commands about messages that do not reach the engine."""

from __future__ import annotations

from dataclasses import dataclass

from .command import Command


@dataclass(frozen=True)
class CountRefused(Command[None]):
    """Messages that an error has kept out of a queue or an exchange, which may be unknown."""

    node: str
    error: Exception
    messages: int = 1
