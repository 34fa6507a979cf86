"""Golden transcripts of queues that are not plain fifo queues (Q7 Q9 Q14 to Q19).

A message is written as its attributes: `p9` a priority, `g=a` a group, `k=a` a key, `id=7` a message id, `ttl=5`, `delay=5`
seconds, `last` the last of its group, `-` no attribute. `PENSTOCK_REWRITE=1` writes the answers again, as in test_transcripts.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.states import Outcome, State

from .test_transcripts import Script, compare, play, show

FILES = sorted((Path(__file__).parent / "transcripts" / "kinds").glob("*.txt"))


class KindScript(Script):
    def declare(self, type_: str, *options: str) -> str:
        self.engine.run(
            c.DeleteQueue("q", force=True), c.DeclareQueue("q", type_, dict(option.split("=", 1) for option in options))
        )
        return "declared"

    def send(self, *messages: str) -> str:
        """Send messages of one byte each."""
        parsed = [self._parsed(text) for text in messages]
        placed = self.engine.run(c.Enqueue("q", len(parsed), 1, attributes=_attributes(parsed)))
        stored = len(parsed) - len(placed.refused) - placed.duplicates
        first = placed.next - stored
        parts = [f"{first}-{placed.next - 1}" if stored > 1 else f"{first}"] if stored else []
        parts += [f"{len(placed.refused)} refused"] if placed.refused else []
        parts += [f"{placed.duplicates} known"] if placed.duplicates else []
        return ", ".join(parts)

    def _parsed(self, text: str) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        for part in text.split("+"):
            name, _, value = part.partition("=")
            if match := re.fullmatch(r"p(\d)", part):
                attributes["priority"] = int(match[1]) + 1
            elif name in ("ttl", "delay"):
                attributes[name] = self.engine.wall // 1000 + int(value) * 1000
            elif part != "-":
                attributes[name] = value or 1
        return attributes

    def look(self) -> str:
        """Show the state of every message."""
        block = self.engine.state.queues["q"].blocks[0]
        outcomes = np.broadcast_to(block.outcome.get(slice(0, block.filled)), block.filled).tolist()
        lines = []
        for row, (state, outcome) in enumerate(zip(block.state[: block.filled].tolist(), outcomes, strict=True)):
            name = Outcome(outcome).name if state == State.ARCHIVED else State(state).name
            lines.append(f"{row} {name.lower()}")
        return "; ".join(lines)

    def lease(self, name: str, finished: str, messages: str) -> str:
        self.epochs[name], batch = self.engine.advance(
            name, epoch=self.epochs.get(name), finished=int(finished), messages=int(messages)
        )
        held = self.engine.state.leases[name].batches.get(batch)
        return f"batch {batch}: {show(held.rows)}" if held is not None else f"batch {batch}"


def _attributes(messages: list[dict[str, Any]]) -> Attributes:
    def numbers(name: str) -> Any:
        values = np.array([message.get(name, 0) for message in messages], np.int64)
        return values if values.any() else None

    def names(name: str) -> Coded | None:
        known = sorted({message[name] for message in messages if name in message})
        return (
            Coded(known, np.array([known.index(message[name]) + 1 if name in message else 0 for message in messages]))
            if known
            else None
        )

    ids = np.array([message.get("id", "").encode() for message in messages], "S16")
    return Attributes(
        numbers("priority"),
        numbers("ttl"),
        numbers("delay"),
        names("g"),
        numbers("last"),
        names("k"),
        ids if any(ids.tolist()) else None,
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    compare(path, play(path, KindScript()))
