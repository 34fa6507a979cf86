"""Golden transcripts: readable histories of a queue, checked against the seeds.

Each file of `transcripts/` is a list of commands, with the engine's answer after `=>`. A line with `#` is a remark.
`PENSTOCK_REWRITE=1 pytest tests/engine/test_transcripts.py` writes the answers again; read the diff before you commit it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, State
from penstock.broker_core.engine.model.batch_outcomes import DISPOSITIONS

from .conservation import conserved
from .harness import Engine

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


def numbers(text: str) -> RowSet:
    result = RowSet()
    for part in text.split(","):
        first, _, last = part.partition("-")
        result = result.plus(RowSet.range(int(first), int(last or first) + 1))
    return result


def show(rows: RowSet) -> str:
    """Show rows as ranges, for example `0-2, 5`."""
    parts: list[list[int]] = []
    for s in rows.sequences().tolist():
        if parts and parts[-1][1] == s - 1:
            parts[-1][1] = s
        else:
            parts.append([s, s])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts) or "nothing"


class Script:
    """The commands of a transcript, each a method."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.links: dict[str, int] = {}
        self.queue = "q"
        self.engine.run(c.DeclareQueue("q"))
        self.epochs: dict[str, int | None] = {}
        self.transactions: dict[str, int] = {}

    def enqueue(self, count: str, size: str = "1") -> str:
        last = self.engine.run(c.Enqueue("q", int(count), int(size))).next
        return f"{last - int(count)}-{last - 1}" if int(count) > 1 else f"{last - 1}"

    def single(self) -> str:
        self.engine.run(c.DeleteQueue("q"), c.DeclareQueue("q", options={"consumers": "single"}))
        return "one consumer at a time"

    def link(self, name: str) -> str:
        self.links[name] = self.engine.run(c.Subscribe("q"))
        return "attached"

    def take(self, name: str, credit: str) -> str:
        return show(self.engine.run(c.Acquire("q", self.links[name], int(credit))).rows)

    def accept(self, name: str, rows: str) -> str:
        self.engine.run(c.Settle("q", self.links[name], numbers(rows)))
        return "archived"

    def reject(self, name: str, rows: str, *why: str) -> str:
        self.engine.run(c.Settle("q", self.links[name], numbers(rows), Outcome.REJECTED, " ".join(why)))
        return "archived"

    def release(self, name: str, rows: str) -> str:
        self.engine.run(c.Release("q", self.links[name], numbers(rows)))
        return "back in place"

    def modify(self, name: str, rows: str) -> str:
        self.engine.run(c.Release("q", self.links[name], numbers(rows), Cause.MODIFIED))
        return "back in place, counted"

    def modify_uncounted(self, name: str, rows: str) -> str:
        self.engine.run(c.Release("q", self.links[name], numbers(rows), Cause.MODIFIED_UNCOUNTED))
        return "back in place, uncounted"

    def not_here(self, name: str, rows: str, annotations: str = "") -> str:
        command = c.Release("q", self.links[name], numbers(rows), Cause.MODIFIED, True, annotations.encode() or None)
        self.engine.run(command)
        return "back in place, for others"

    def annotate(self, name: str, rows: str, annotations: str) -> str:
        self.engine.run(c.Release("q", self.links[name], numbers(rows), annotations=annotations.encode()))
        return "back in place, with a note"

    def notes(self, row: str) -> str:
        block = self.engine.state.queues["q"].blocks[0]
        return ", ".join(entry.decode() for entry in block.overlays.get(int(row))) or "none"

    def browse(self, place: str, count: str) -> str:
        rows, following, _ = self.engine.run(c.Browse("q", int(place), int(count)))
        return f"{show(rows)}; on from {following}"

    def end(self, name: str, default: str) -> str:
        holder = self.links.pop(name)
        if default in ("accepted", "rejected"):
            rows = self.engine.run(c.Unsubscribe("q", holder, outcome=Outcome[default.upper()]))
            return f"archived: {show(rows)}"
        return f"back: {show(self.engine.run(c.Unsubscribe('q', holder, Cause[default.upper()])))}"

    def consumers(self) -> str:
        (stat,) = self.engine.run(c.Stat("q"))
        return f"{stat['consumers']}, {stat['refused']} messages refused by all of them"

    def lose(self, name: str) -> str:
        return f"back: {show(self.engine.run(c.Unsubscribe('q', self.links.pop(name))))}"

    def purge(self) -> str:
        return f"{self.engine.run(c.Purge('q'))} purged"

    def advance(self, lease: str, finished: str, *options: str) -> str:
        arguments: dict[str, Any] = {}
        for option in options:
            key, _, value = option.partition("=")
            if key == "lossy":
                key, value = "fail_on_data_loss", "0"
            arguments[key] = int(value) if value else True
        run = arguments.pop("run", "r")
        self.epochs[lease], batch = self.engine.advance(
            lease, run=str(run), epoch=self.epochs.get(lease), finished=int(finished), **arguments
        )
        return f"batch {batch}"

    def plan(self, lease: str, after: str, batch: str, partitions: str = "1") -> str:
        self.epochs[lease], parts = self.engine.plan(
            lease, epoch=self.epochs.get(lease), after=int(after), batch=int(batch), min_partitions=int(partitions)
        )
        return "; ".join(f"{a}-{b}" for _, a, b, _ in parts) or "no tasks"

    def read(self, lease: str, batch: str, epoch: str = "") -> str:
        now = int(epoch) if epoch else self.epochs[lease]
        assert now is not None
        return show(RowSet.of([(0, _rows(self.engine.read(lease, epoch=now, batch=int(batch))))]))

    def renew(self, lease: str) -> str:
        epoch = self.epochs[lease]
        assert epoch is not None
        self.engine.run(c.RenewLease(lease, epoch))
        return "renewed"

    def restart_driver(self, lease: str) -> str:
        self.epochs[lease] = None
        return "a new planner"

    def restart_broker(self) -> str:
        self.engine = self.engine.recovered()
        self.engine.run(c.StartBroker())
        return "recovered"

    def wait(self, seconds: str) -> str:
        self.engine.pass_time(int(seconds))
        self.engine.run(c.Tick())
        return f"{seconds} s later"

    def operator_settles(self, lease: str) -> str:
        return f"{self.engine.run(c.ReleaseLease(lease, True))} settled"

    def operator_returns(self, lease: str) -> str:
        return f"{self.engine.run(c.ReleaseLease(lease, False))} returned"

    def operator_ends(self, lease: str, sequence: str, outcome: str) -> str:
        self.engine.run(c.SettleRow(lease, int(sequence), outcome))
        return outcome

    def stage(self, name: str, count: str) -> str:
        self.engine.run(c.StageMessages(name, "q", int(count), 1))
        return "staged, unseen"

    def publish(self, stages: str, query: str = "", batch: str = "") -> str:
        key = c.PublishKey("stream", query, int(batch)) if query else None
        count, repeated = self.engine.run(c.Publish(stages.split(","), key))
        return "a repetition: nothing done" if repeated else f"{count} at once"

    def begin(self, name: str) -> str:
        self.transactions[name] = self.engine.run(c.BeginTransaction(1))
        return "declared"

    def post(self, name: str, count: str) -> str:
        self.engine.run(c.Post(self.transactions[name], "q", int(count), 1))
        return "staged, unseen"

    def retire(self, name: str, link: str, rows: str, outcome: str, settled: str = "") -> str:
        disposition = DISPOSITIONS[outcome]
        command = c.Retire(self.transactions[name], "q", self.links[link], numbers(rows), disposition, settled=bool(settled))
        self.engine.run(command)
        return f"{outcome}, if it commits"

    def commit(self, name: str) -> str:
        why = self.engine.run(c.DischargeTransaction(self.transactions.pop(name)))
        return "committed" if why is None else f"rolled back: {why}"

    def roll_back(self, name: str) -> str:
        self.engine.run(c.DischargeTransaction(self.transactions.pop(name), fail=True))
        return "rolled back"

    def stat(self) -> str:
        queue = self.engine.state.queues["q"]
        counts = {state: queue.counts[state] for state in (State.AVAILABLE, State.ACQUIRED, State.ARCHIVED)}
        return ", ".join(f"{n} {state.name.lower()}" for state, n in counts.items())

    def attempts(self, rows: str) -> str:
        block = self.engine.state.queues["q"].blocks[0]
        counts = np.broadcast_to(block.attempts.get(slice(0, block.filled)), block.filled)
        return ", ".join(str(counts[s]) for s in numbers(rows).sequences().tolist())


def _rows(sequences: list[int]) -> Any:
    return np.array(sequences, np.int64)


def play(path: Path, script: Any) -> str:
    lines = []
    for line in path.read_text().splitlines():
        command = line.partition("=>")[0].strip()
        if not command or command.startswith("#"):
            lines.append(line.rstrip())
            continue
        word, *arguments = command.split()
        action: Callable[..., str] = getattr(script, word)
        try:
            answer = action(*arguments)
        except errors.PenstockError as error:
            answer = f"refused: {error.code}"
        assert conserved(script.engine.state.queues["q"])
        lines.append(f"{command:<36} => {answer}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_transcript(path: Path) -> None:
    compare(path, play(path, Script()))


def compare(path: Path, played: str) -> None:
    if os.environ.get("PENSTOCK_REWRITE"):
        path.write_text(played)
    assert played == path.read_text()
