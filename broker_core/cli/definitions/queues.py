"""Queues of another broker's file, and the cycles of their dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .steps import ImportStep, declare_queue


class PlannedQueue:
    """A queue to declare. `notes`: parts of the original that it lacks."""

    def __init__(self, name: str) -> None:
        self.name, self.type = name, "fifo"
        self.options: dict[str, Any] = {}
        self.notes: list[str] = []

    def step(self) -> ImportStep:
        return declare_queue(self.name, self.type, self.options, self.notes)

    def keep_dead_letters(self, reason: str) -> None:
        for option in ("deadLetterQueue", "expired"):
            self.options.pop(option, None)
        self.notes.append(f"dead letters stay in this queue, archived: {reason}")


def break_cycles(queues: Sequence[PlannedQueue]) -> None:
    """Leave out dead-letter queues that form a cycle, where RabbitMQ drops an expired message."""
    by_name = {queue.name: queue for queue in queues}
    following = {queue.name: queue.options.get("deadLetterQueue") for queue in queues}
    seen: set[str] = set()
    for name in following:
        path: dict[str, None] = {}
        at: str | None = name
        while at is not None and at in following and at not in seen:
            seen.add(at)
            path[at] = None
            at = following[at]
        if at in path:
            cycle = list(path)[list(path).index(at) :]
            text = " → ".join([*cycle[:5], *["…"] * (len(cycle) > 5), cycle[0]])
            for member in cycle:
                by_name[member].keep_dead_letters(f"{text} is a cycle; retryDelay repeats failed messages")
