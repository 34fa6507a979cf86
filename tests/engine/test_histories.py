"""Random writes, reads and leases: the log, a snapshot and the live state agree, including derived state."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.model.batch_outcomes import RowsOutcome
from penstock.broker_core.engine.model.reads import SparkBatch
from penstock.broker_core.engine.model.stages import attempt_name
from penstock.broker_core.engine.model.state import BrokerState

from .conservation import conserved
from .harness import Engine

QUEUES = ("p", "q")
STEPS = 80
CHECKED = 8  # steps between full comparisons, which are slow


def derived(state: BrokerState) -> dict[str, Any]:
    """Return the state that snapshots do not contain."""
    return {
        "writes": {name: (write.time, list(write.stages)) for name, write in state.writes.items()},
        "readers": state.readers,
        "staged": {name: (queue.staged.messages, queue.staged.bytes) for name, queue in state.queues.items()},
        "counts": {name: list(queue.counts) for name, queue in state.queues.items()},
        "bytes": state.staged_bytes,
        "keys": {user: state.publish_keys.count(user) for user in ("", "alice", "bob")},
    }


class History:
    def __init__(self, seed: int) -> None:
        self.random, self.engine = Random(seed), Engine()
        self.engine.state.nonce = "a start's"
        self.engine.run(c.DeclareQueue("dead"))
        for queue in QUEUES:
            self.declare(queue)

    def declare(self, queue: str) -> None:
        self.engine.run(c.DeclareQueue(queue, "fifo", self.random.choice([{}, {"deadLetterQueue": "dead", "maxAttempts": 2}])))

    def step(self) -> None:
        act = self.random.choice([self.send, self.stage, self.publish, self.end, self.advance, self.read, self.read, self.say])
        try:
            for command in act():
                self.engine.run(command)
        except errors.PenstockError:
            pass  # refused, without a change

    def send(self) -> Iterator[c.Command[Any]]:
        queue = self.random.choice(QUEUES)
        if self.random.random() < 0.05:
            yield c.DeleteQueue(queue, force=True)
            self.declare(queue)
        yield c.Enqueue(queue, self.random.randrange(1, 9), 10)

    def stage(self) -> Iterator[c.Command[Any]]:
        write = f"w{self.random.randrange(5)}"
        stage = write if self.random.random() < 0.2 else attempt_name(write, self.random.randrange(3))
        yield c.StageMessages(stage, self.random.choice(QUEUES), 2, 5)

    def publish(self) -> Iterator[c.Command[Any]]:
        write, random = f"w{self.random.randrange(5)}", self.random
        maker = random.choice([None, c.Maker("alice", 100), c.Maker("bob", 2)])
        kind, name = random.choice(["stream", "txn"]), random.choice("xy")
        key = random.choice([None, c.PublishKey(kind, name, random.randrange(3))])
        attempts = [int(name.partition("\0")[2]) for name in self.engine.state.stages_of(write) if "\0" in name]
        if random.random() < 0.3:
            yield c.Publish([write], key, maker=maker, reader=self.reader())
        else:
            yield c.Publish([], key, write, attempts, self.reader(), maker)

    def reader(self) -> SparkBatch | None:
        return self.random.choice([None, SparkBatch(self.random.choice("xy"), self.random.randrange(3))])

    def end(self) -> Iterator[c.Command[Any]]:
        write, lease, random = f"w{self.random.randrange(5)}", self.random.choice(QUEUES), self.random
        first = random.randrange(20)
        self.engine.pass_time(random.choice([1, 61, 86_400]))
        yield random.choice(
            [
                c.Discard([], write),
                c.Discard([write]),
                c.Tick(),
                c.ReleaseLease(lease, settle=random.random() < 0.5),
                c.DeleteLease(lease),
                c.DiscardMessages(lease, first, first + 2, "why"),
            ]
        )

    def advance(self) -> Iterator[c.Command[Any]]:
        name, loss, random = self.random.choice(QUEUES), self.random.random() < 0.5, self.random
        lease = self.engine.state.leases.get(name)
        finished = 0 if lease is None else random.choice([lease.last_number, lease.last_number, lease.finished])
        yield c.EnterLease(name, name, "r", None if lease is None else lease.epoch, True, None, False)
        yield c.FinishBatches(name, finished, True, random.random() < 0.3, loss)
        yield c.AcquireBatch(name, name, "r", finished, messages=4, fail_on_data_loss=loss)

    def read(self) -> Iterator[c.Command[Any]]:
        lease = self.engine.state.leases.get(self.random.choice(QUEUES))
        if lease is not None and lease.batches:
            number = self.random.choice([lease.last_number, *lease.batches])
            yield c.ReadBatch(lease.name, "r", lease.epoch, number, 0, 1 << 60, False, self.reader())

    def say(self) -> Iterator[c.Command[Any]]:
        lease = self.engine.state.leases.get(self.random.choice(QUEUES))
        if lease is not None and lease.current is not None and lease.current.rows:
            batch, write = lease.current, f"w{self.random.randrange(5)}"
            rows = RowSet.single(self.random.choice(batch.rows.sequences().tolist()))
            if self.random.random() < 0.5:
                yield c.SetAside(lease.name, batch.number, lease.epoch, {"why": rows})
            else:
                outcome = RowsOutcome(self.random.choice(["rejected", "modified", "released"]), None, rows)
                yield c.StageOutcomes(attempt_name(write, 1), lease.name, batch.number, lease.epoch, [outcome])

    def check(self) -> None:
        live = self.engine
        assert all(map(conserved, live.state.queues.values()))
        for restored in (live.recovered(), live.from_snapshot()):
            assert restored.persisted() == live.persisted()
            assert derived(restored.state) == derived(live.state)


@pytest.mark.parametrize("seed", range(16))
def test_whatever_was_written_and_read_a_restart_finds_it_by_log_and_snapshot(seed: int) -> None:
    history = History(seed)
    for number in range(STEPS):
        history.step()
        if number % CHECKED == CHECKED - 1:
            history.check()
