"""The engine alone: commands in, a log of encoded events, and a recovery from that log."""

from __future__ import annotations

import json
import threading
from typing import Any

from penstock.broker_core.engine import BrokerState, Decision, apply, decide
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import events as e
from penstock.broker_core.engine.columns.runs import NOWHERE
from penstock.broker_core.engine.columns.states import State
from penstock.broker_core.engine.events import codec
from penstock.broker_core.engine.model.retention import Keeping
from penstock.broker_core.engine.model.state import packed_columns
from penstock.broker_core.service.queue_counts import CountTable, QueueCounts

from .conservation import conserved

SECOND = 1_000_000
COUNTED = 1000  # the columns of queues up to this size are counted after every command
START = 1_700_000_000 * SECOND


class Engine:
    """One life of the engine. The test sets its clock."""

    def __init__(self, state: BrokerState | None = None, log: list[tuple[bytes, int]] | None = None) -> None:
        self.state = state or BrokerState()
        self.log = log if log is not None else []
        self._shown = QueueCounts(self.state, threading.Lock())
        self.packed: dict[int, bytes] = {}  # position → a block that left memory
        self.up = 0
        self.wall = START

    def run(self, *commands: c.Command[Any]) -> Any:
        reply = None
        for command in commands:
            decision = decide(self.state, command, c.Now(self.wall, self.up))
            before = {name: queue.counts[State.AVAILABLE] for name, queue in self.state.queues.items()}
            for event, payload in decision.events:
                position = 8 * (len(self.log) + 1)
                if isinstance(event, (e.BlockPacked, e.Repacked)):
                    self.packed[position] = payload
                if event.journaled:
                    self.log.append((codec.encode(event), position))
                apply(self.state, event, position)
            self._check(decision, before)
            reply = decision.reply
        return reply

    def _check(self, decision: Decision[Any], before: dict[str, int]) -> None:
        """Check C1 C4 U3 after every command of every test.

        - Every queue with new AVAILABLE messages wakes its consumers.
        - The counts of every queue match its columns.
        - A reader that reads only changed queues has the counts of all queues.
        """
        woken = decision.effects.wakes
        for name, queue in self.state.queues.items():
            came = queue.counts[State.AVAILABLE] > before.get(name, 0)
            assert not came or name in woken, f"no consumer of {name!r} is woken by {decision.events}"
            if decision.events and queue.next_sequence <= COUNTED:
                assert conserved(queue), f"{name!r} after {decision.events}"
        if decision.events:
            incremental, full = self._shown.read(), QueueCounts(self.state, threading.Lock()).read()
            assert _by_queue(incremental) == _by_queue(full), f"the counts do not contain {decision.events}"

    def pass_time(self, seconds: float) -> None:
        self.up += int(seconds * SECOND)
        self.wall += int(seconds * SECOND)

    def recovered(self) -> Engine:
        """Recover an engine: the same `apply` over the log, then the start of a new life."""
        state = BrokerState()
        for meta, position in self.log:
            apply(state, codec.decode(meta), position)
        return Engine(state, self.log)

    def from_snapshot(self) -> Engine:
        meta, blocks = self.state.snapshot()
        return Engine(BrokerState.restore(json.dumps(meta).encode(), packed_columns(blocks)), self.log)

    def persisted(self) -> tuple[str, list[bytes]]:
        """Return the persisted state in a comparable form."""
        meta, blocks = self.state.snapshot()
        return json.dumps(meta, sort_keys=True), packed_columns(blocks)

    def retain(self, position: int) -> list[list[int]]:
        """Drop the unneeded log below this position; retention frees the settled messages there."""
        keeping = Keeping(position, NOWHERE if self.state.records else position, self.state.records)
        dropped: list[list[int]] = self.run(c.Drop([[0, position]], keeping))
        return dropped

    # Short forms of the lease protocol
    def advance(
        self, lease: str, queue: str = "q", *, run: str = "r", epoch: int | None, finished: int, **options: Any
    ) -> tuple[Any, int]:
        fresh = options.pop("fresh", finished == 0)
        exclude, loss = options.pop("exclude", False), options.pop("fail_on_data_loss", True)
        timeout = options.get("timeout")
        reply = self.run(
            c.EnterLease(queue, lease, run, epoch, fresh, timeout),
            c.FinishBatches(lease, finished, True, exclude, loss),
            c.AcquireBatch(queue, lease, run, finished, exclude=exclude, fail_on_data_loss=loss, **options),
        )
        return reply.epoch, reply.batch

    def plan(
        self, lease: str, queue: str = "q", *, run: str = "r", epoch: int | None, after: int, batch: int, **options: Any
    ) -> Any:
        return self.run(c.EnterLease(queue, lease, run, epoch, keep_timeout=True), c.PlanBatches(lease, after, batch, **options))

    def read(self, lease: str, *, run: str = "r", epoch: int, batch: int, fail_on_data_loss: bool = True) -> list[int]:
        _, rows = self.run(c.ReadBatch(lease, run, epoch, batch, 0, 2**60, fail_on_data_loss))
        return list(rows.sequences().tolist())


def _by_queue(counts: CountTable) -> dict[str, list[int]]:
    return dict(zip(counts.names, counts.table.T.tolist(), strict=True))
