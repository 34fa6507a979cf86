"""Q12 Q13 Q20 Q21: transcripts of several queues with dead letters, redrives and moves. See `test_transcripts`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes
from penstock.broker_core.engine.columns.blocks import Block
from penstock.broker_core.engine.columns.states import Cause, Outcome, Reason, State
from penstock.broker_core.engine.model.queue import Queue

from .ends import survives
from .harness import Engine
from .test_transcripts import compare, numbers, play, show

FILES = sorted((Path(__file__).parent / "transcripts" / "ends").glob("*.txt"))


def options(words: tuple[str, ...]) -> dict[str, str | None]:
    return {name: value or None for name, _, value in (word.partition("=") for word in words)}


def cell(block: Block, column: str, row: int) -> int:
    return int(np.broadcast_to(getattr(block, column).get(slice(0, block.filled)), block.filled)[row])


class Ends:
    """The commands: each begins with its queue or link. Queue `q` exists from the beginning."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.engine.run(c.DeclareQueue("q"))
        self.links: dict[str, tuple[str, int]] = {}

    def declare(self, name: str, *words: str) -> str:
        self.engine.run(c.DeclareQueue(name, options=options(words)))
        return "declared"

    def alter(self, name: str, *words: str) -> str:
        return "altered" if self.engine.run(c.AlterQueue(name, options(words))) else "as it was"

    def delete(self, name: str) -> str:
        self.engine.run(c.DeleteQueue(name))
        return "gone"

    def send(self, name: str, count: str, ttl: str = "") -> str:
        expiry = self.engine.wall // 1000 + int(ttl.partition("=")[2] or 0) * 1000
        attributes = Attributes(expiry=np.full(int(count), expiry)) if ttl else Attributes()
        last = self.engine.run(c.Enqueue(name, int(count), 1, attributes=attributes)).next
        return show(numbers(f"{last - int(count)}-{last - 1}"))

    def link(self, name: str, queue: str) -> str:
        self.links[name] = (queue, self.engine.run(c.Subscribe(queue)))
        return "attached"

    def take(self, name: str, credit: str) -> str:
        return show(self.engine.run(c.Acquire(*self.links[name], int(credit))).rows)

    def reject(self, name: str, rows: str, *why: str) -> str:
        self.engine.run(c.Settle(*self.links[name], numbers(rows), Outcome.REJECTED, " ".join(why) or None))
        return "rejected"

    def fail(self, name: str, rows: str) -> str:
        self.engine.run(c.Release(*self.links[name], numbers(rows), Cause.MODIFIED))
        return "modified, delivery failed"

    def refuse(self, name: str, rows: str) -> str:
        self.engine.run(c.Release(*self.links[name], numbers(rows), Cause.MODIFIED_UNCOUNTED, True))
        return "modified, undeliverable here"

    def lose(self, name: str) -> str:
        return f"held {show(self.engine.run(c.Unsubscribe(*self.links.pop(name))))}"

    def pause(self, name: str) -> str:
        return "paused" if self.engine.run(c.PauseQueue(name)) else "as it was"

    def resume(self, name: str) -> str:
        return "delivers" if self.engine.run(c.PauseQueue(name, paused=False)) else "as it was"

    def wait(self, seconds: str) -> str:
        self.engine.pass_time(int(seconds))
        self.engine.run(c.Tick())
        return f"{seconds} s later"

    def restart_broker(self) -> str:
        self.engine, self.links = self.engine.recovered(), {}
        self.engine.run(c.StartBroker())
        return "recovered"

    def move(self, name: str, target: str, count: str = "9") -> str:
        return f"{self.engine.run(c.Move(name, target, int(count))).messages} moved"

    def copy(self, name: str, target: str, count: str = "9") -> str:
        return f"{self.engine.run(c.Copy(name, target, int(count))).messages} copied"

    def redrive(self, name: str, count: str = "9") -> str:
        done = self.engine.run(c.Redrive(name, int(count)))
        return f"{done.messages} back, {done.stayed} stay"

    def stat(self, name: str) -> str:
        stat = self.engine.run(c.Stat(name))[0]
        return ", ".join(f"{stat[word]} {word}" for word in ("available", "acquired", "archived", "deadLettered", "stayed"))

    def look(self, name: str) -> str:
        queue = self.engine.state.queues[name]
        rows = [self._row(queue, block, row) for block in queue.blocks.values() for row in range(block.filled)]
        return "; ".join(rows) or "empty"

    def _row(self, queue: Queue, block: Block, row: int) -> str:
        state = State(block.state[row])
        text = state.name.lower() if state != State.ARCHIVED else Outcome(cell(block, "outcome", row)).name.lower()
        if attempts := cell(block, "attempts", row):
            text += f" after {attempts}"
        if reason := cell(block, "reason", row):
            origin = cell(block, "origin", row)
            where = f"{queue.origins[origin - 1]} {cell(block, 'came_from', row) - 1} " if origin else ""
            text += f" ({where}{Reason(reason).name.lower()}{': ' + block.errors[row] if row in block.errors else ''})"
        return f"{row} {text}" + (", stayed" if cell(block, "stayed", row) else "")


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_transcript(path: Path) -> None:
    script = Ends()
    compare(path, play(path, script))
    survives(script.engine)
