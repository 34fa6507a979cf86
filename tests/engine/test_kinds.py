"""Q7 Q15 Q16 Q17 Q18 Q19 Q9: every kind of queue against a simple model, with a recovery after every step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, State
from penstock.broker_core.engine.model.dispositions import ROLLED_BACK, DeliveryEnd
from penstock.broker_core.engine.model.options import level_of_priority, rules
from penstock.broker_core.engine.model.queue import Queue

from .conservation import conserved
from .harness import Engine

NAMES = ("a", "b", "c")
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "priorities": ("priority", {"levels": 3}),
    "groups": ("fifo", {"groups": "held"}),
    "sticky groups of priorities": ("priority", {"levels": 2, "groups": "sticky"}),
    "groups of priorities": ("priority", {"levels": 3, "groups": "held"}),
    "last values": ("lastvalue", {"key": "groupId"}),
    "a ring of last values": ("lastvalue", {"key": "groupId", "maxBytes": 9, "overflow": "ring", "duplicateWindow": 3}),
    "a ring": ("fifo", {"maxMessages": 5, "overflow": "ring"}),
    "a ring of bytes": ("fifo", {"maxBytes": 12, "overflow": "ring"}),
    "a limit": ("fifo", {"maxMessages": 5, "maxBytes": 12, "overflow": "reject"}),
    "ids": ("fifo", {"duplicateWindow": 3, "duplicateTime": 4000}),
    "a limit of ids": ("fifo", {"maxMessages": 5, "maxBytes": 12, "overflow": "reject", "duplicateWindow": 3}),
}


@dataclass
class Message:
    """A message of the model."""

    place: int
    level: int
    size: int
    group: int
    closes: bool
    key: int
    due: int
    expiry: int
    state: State = State.AVAILABLE
    holder: int = 0
    outcome: Outcome = Outcome.NONE


@dataclass
class Model:
    type: str
    options: dict[str, Any]
    messages: list[Message] = field(default_factory=list)
    newest: dict[int, int] = field(default_factory=dict)
    owner: dict[int, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    ids: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rules = rules(self.type, self.options)
        self.levels = level_of_priority(self.rules.levels)

    def of(self, *states: State, holder: int | None = None) -> list[Message]:
        return [m for m in self.messages if m.state in states and (holder is None or m.holder == holder)]

    @property
    def live(self) -> list[Message]:
        return self.of(State.DELAYED, State.AVAILABLE, State.ACQUIRED)

    def arrive(self, batch: list[dict[str, int]], now: int) -> tuple[list[int], int]:
        """Return the refused messages and the number of duplicates."""
        refused, duplicates = [], 0
        fresh, again = [], []
        since = now - self.rules.duplicate_time if self.rules.duplicate_time else 0
        for index, message in enumerate(batch):
            known = self.ids.get(message["id"], -1) >= since
            firsts = [
                first
                for first, earlier in fresh
                if self.rules.duplicate_window and message["id"] and earlier["id"] == message["id"]
            ]
            if self.rules.duplicate_window and message["id"] and known:
                duplicates += 1
            elif firsts:
                again.append((index, firsts[0]))
            else:
                fresh.append((index, message))
        count, size = len(self.live), sum(m.size for m in self.live)
        stuck = self.of(State.DELAYED, State.ACQUIRED)
        taken, taken_bytes = len(stuck), sum(m.size for m in stuck)
        fits, free = True, self.rules.max_bytes - size
        for index, message in fresh:
            if self.rules.overflow == "reject" and self.rules.max_bytes and message["size"] > free:
                refused.append(index)  # without room taken from the others
                continue
            if self.rules.overflow == "reject":
                count, size = count + 1, size + message["size"]
                fits = fits and not (self.rules.max_messages and count > self.rules.max_messages)
                fits = fits and not (self.rules.max_bytes and size > self.rules.max_bytes)
            elif self.rules.overflow == "ring":
                fits = not (self.rules.max_messages and taken + 1 > self.rules.max_messages)
                fits = fits and not (self.rules.max_bytes and taken_bytes + message["size"] > self.rules.max_bytes)
                if message["due"] > now:  # a delayed message is not dropped for later ones
                    taken, taken_bytes = taken + 1, taken_bytes + message["size"]
            if not fits:
                refused.append(index)
                continue
            self.place(message, now)
        for index, message in fresh:
            if message["id"] and index not in refused:
                self.ids.pop(message["id"], None)
                self.ids[message["id"]] = now
        nowhere = [index for index, first in again if first in refused]
        refused, duplicates = sorted(refused + nowhere), duplicates + len(again) - len(nowhere)
        while len(self.ids) > self.rules.duplicate_window:
            del self.ids[next(iter(self.ids))]
        while self.rules.overflow == "ring" and self.too_full():
            self.end(self.of(State.AVAILABLE)[0], Outcome.DROPPED)
        return refused, duplicates

    def too_full(self) -> bool:
        size = sum(m.size for m in self.live)
        return bool(
            (self.rules.max_messages and len(self.live) > self.rules.max_messages)
            or (self.rules.max_bytes and size > self.rules.max_bytes)
        )

    def place(self, message: dict[str, int], now: int) -> None:
        group = message["name"] if self.rules.groups != "none" else 0
        key = message["name"] if self.rules.key else 0
        level = int(self.levels[message["priority"]])
        closes = bool(message["closes"] and group)
        new = Message(len(self.messages), level, message["size"], group, closes, key, message["due"], message["expiry"])
        self.messages.append(new)
        if new.due > now:
            new.state = State.DELAYED
        else:
            self.is_available(new)

    def is_available(self, m: Message) -> None:
        """Q17 Q18: the message is no longer delayed, so its key has no other value, or a newer one."""
        if not m.key:
            return
        self.newest[m.key] = max(m.place, self.newest.get(m.key, 0))
        for old in self.of(State.AVAILABLE):
            if old.key == m.key and old.place < self.newest[m.key]:
                self.end(old, Outcome.REPLACED)

    def next(self, holder: int, count: int, now: int) -> list[Message]:
        eligible = [
            m
            for m in self.of(State.AVAILABLE)
            if not 0 < m.expiry <= now and (not m.group or self.owner.get(m.group, holder) == holder)
        ]
        top = max((m.level for m in eligible), default=0)
        return [m for m in eligible if m.level == top][:count]

    def take(self, messages: list[Message], holder: int) -> None:
        for m in messages:
            m.state, m.holder = State.ACQUIRED, holder
            if m.group:
                self.owner[m.group] = holder
                if m.closes:
                    self.closed.add(m.group)

    def end(self, m: Message, outcome: Outcome) -> None:
        held, m.state, m.outcome = m.state == State.ACQUIRED, State.ARCHIVED, outcome
        if held:
            self.free(m.group)
        if m.key and not any(message.key == m.key for message in self.live):
            self.newest.pop(m.key, None)

    def give_back(self, messages: list[Message]) -> None:
        for m in messages:
            m.state = State.AVAILABLE
        for m in messages:
            self.free(m.group)
            if m.key and self.newest[m.key] > m.place:
                m.state = State.ARCHIVED
                m.outcome = Outcome.REPLACED

    def free(self, group: int) -> None:
        free = not any(m.group == group for m in self.of(State.ACQUIRED))
        if group in self.owner and free and (self.rules.groups != "sticky" or group in self.closed):
            del self.owner[group]
            self.closed.discard(group)

    def left(self, holder: int) -> None:
        self.give_back(self.of(State.ACQUIRED, holder=holder))
        for group in [group for group, owner in self.owner.items() if owner == holder]:
            del self.owner[group]
            self.closed.discard(group)


SAID = st.fixed_dictionaries(
    {
        "priority": st.integers(0, 10),
        "size": st.integers(1, 5),
        "name": st.integers(0, len(NAMES)),
        "closes": st.sampled_from([0, 0, 0, 1]),
        "id": st.integers(0, 5),
        "due": st.sampled_from([0, 0, 0, 2, 5]),
        "expiry": st.sampled_from([0, 0, 0, 3, 6]),
    }
)


def attributes(batch: list[dict[str, int]]) -> Attributes:
    def column(name: str) -> Any:
        return np.array([message[name] for message in batch], np.int64)

    names = Coded(list(NAMES), column("name"))
    ids = np.array([b"%d" % message["id"] if message["id"] else b"" for message in batch], "S16")
    return Attributes(column("priority"), column("expiry"), column("due"), names, column("closes"), names, ids)


class KindMachine(RuleBasedStateMachine):
    kind = "priorities"

    def __init__(self) -> None:
        super().__init__()
        type_, options = KINDS[self.kind]
        self.engine, self.model = Engine(), Model(type_, options)
        self.engine.run(c.StartBroker(), c.DeclareQueue("q", type_, options), c.Subscribe("q"), c.Subscribe("q"))
        self.links = [1, 3]

    @property
    def now(self) -> int:
        return self.engine.wall // 1000

    @rule(batch=st.lists(SAID, min_size=1, max_size=4), waits=st.integers(0, 3))
    def enqueue(self, batch: list[dict[str, int]], waits: int) -> None:
        wants = self.model.rules.wants
        for message in batch:
            for name in ("due", "expiry"):
                message[name] = message[name] and self.now + message[name] * 1000
        columns = attributes(batch)
        columns = Attributes(
            columns.priority,
            columns.expiry,
            columns.due,
            columns.group if wants.group else None,
            columns.closes if wants.group else None,
            columns.key if wants.key else None,
            columns.ids if wants.ids else None,
        )
        placed = self.engine.run(c.Enqueue("q", len(batch), np.array([message["size"] for message in batch]), attributes=columns))
        assert (list(placed.refused), placed.duplicates) == self.model.arrive(batch, self.now)
        assert placed.next == len(self.model.messages)

    @rule(link=st.sampled_from([0, 1]), credit=st.integers(1, 4))
    def acquire(self, link: int, credit: int) -> None:
        holder = self.links[link]
        rows = self.engine.run(c.Acquire("q", holder, credit)).rows.sequences().tolist()
        expected = self.model.next(holder, credit, self.now)
        assert rows == [m.place for m in expected]
        self.model.take(expected, holder)

    @precondition(lambda self: self.model.of(State.ACQUIRED))
    @rule(data=st.data(), how=st.sampled_from(["settle", "settle", "release"]))
    def end_some(self, data: st.DataObject, how: str) -> None:
        held = self.model.of(State.ACQUIRED)
        holder = data.draw(st.sampled_from(sorted({m.holder for m in held})))
        its = [m for m in held if m.holder == holder]
        some = data.draw(st.lists(st.sampled_from(its), min_size=1, unique_by=lambda m: m.place))
        rows = RowSet.of_sequences(np.array(sorted(m.place for m in some)))
        if how == "settle":
            self.engine.run(c.Settle("q", holder, rows))
            for m in some:
                self.model.end(m, Outcome.ACCEPTED)
        else:
            self.engine.run(c.Release("q", holder, rows, Cause.RELEASED))
            self.model.give_back(sorted(some, key=lambda m: m.place))

    @rule(link=st.sampled_from([0, 1]))
    def a_link_is_lost(self, link: int) -> None:
        self.engine.run(c.Unsubscribe("q", self.links[link]))
        self.model.left(self.links[link])
        self.links[link] = self.engine.run(c.Subscribe("q"))

    @rule(seconds=st.sampled_from([2, 3, 5]))  # expiry runs every two
    def time_passes(self, seconds: int) -> None:
        self.engine.pass_time(seconds)
        self.engine.run(c.Tick())
        for m in self.model.of(State.DELAYED, State.AVAILABLE):
            if 0 < m.expiry <= self.now:
                self.model.end(m, Outcome.EXPIRED)
        due = [m for m in self.model.of(State.DELAYED) if m.due <= self.now]
        for m in self.model.of(State.DELAYED):
            if m.due <= self.now:
                m.state = State.AVAILABLE
        for m in due:
            self.model.is_available(m)

    @invariant()
    def both_say_the_same(self) -> None:
        queue = self.engine.state.queues["q"]
        assert conserved(queue)
        states = [m.state for m in self.model.messages]
        block = queue.blocks.get(0)
        if block is not None:
            assert block.state[: block.filled].tolist() == states
            outcomes = np.broadcast_to(block.outcome.get(slice(0, block.filled)), block.filled).tolist()
            assert outcomes == [m.outcome for m in self.model.messages]
        assert queue.counts == [Counter(states)[state] for state in State]
        assert queue.bytes == sum(m.size for m in self.model.live)
        assert queue.available_bytes == sum(m.size for m in self.model.of(State.AVAILABLE))
        if queue.groups is not None:
            codes = np.array([queue.group_names.get(name) for name in NAMES])
            assert queue.groups.holders(codes).tolist() == [self.model.owner.get(i, 0) for i in (1, 2, 3)]

    @invariant()
    def a_recovery_finds_the_same(self) -> None:
        before = self.engine.persisted()
        assert self.engine.recovered().persisted() == before
        again = self.engine.from_snapshot()
        assert again.persisted() == before
        new, old = again.state.queues["q"], self.engine.state.queues["q"]
        assert (new.counts, new.bytes, new.available_bytes) == (old.counts, old.bytes, old.available_bytes)
        keys = old.keys.size
        assert new.newest()[:keys].tolist() == old.newest()[:keys].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_queue_is_what_its_model_says(kind: str) -> None:
    machine = type("Machine", (KindMachine,), {"kind": kind})
    case = machine.TestCase
    case.settings = settings(
        max_examples=12,
        stateful_step_count=20,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    case("runTest").runTest()


@pytest.mark.parametrize("how", ["recovered", "from_snapshot"])
def test_a_sticky_group_is_free_after_a_restart(how: str) -> None:
    """Q16: links do not survive a restart, and their groups do not pass to new links with the same numbers."""
    engine = Engine()
    options = {"groups": "sticky"}
    engine.run(c.StartBroker(), c.DeclareQueue("q", options=options), c.Subscribe("q"), c.Subscribe("q"))
    named = Attributes(group=Coded(["a"], np.array([1])))
    engine.run(c.Enqueue("q", 1, 1, attributes=named))
    assert engine.run(c.Acquire("q", 3, 1)).rows.count == 1
    engine.run(c.Settle("q", 3, RowSet.single(0)), c.Enqueue("q", 1, 1, attributes=named))
    later: Engine = getattr(engine, how)()
    later.run(c.StartBroker(), c.Subscribe("q"))
    assert later.run(c.Acquire("q", 1, 1)).rows.sequences().tolist() == [1]
    later.run(c.Settle("q", 1, RowSet.single(1)), c.Unsubscribe("q", 1))
    assert len(later.state.queues["q"].group_names) == 0  # the name is forgotten


class Odd:
    """A selector that matches every second message."""

    def known(self, queue: Queue, block: int) -> Any:
        return np.arange(queue.blocks[block].filled) % 2 == 1


@pytest.mark.parametrize("why", ["a selector", "it was refused", "a lower priority", "a delay", "a redrive"])
def test_what_a_groups_holder_left_behind_is_offered_when_the_group_is_free(why: str) -> None:
    """Q2 Q16 C4: a link passes the message while another holds its group. Later it is offered again, at any distance."""
    engine = Engine()
    kind, options = ("priority", {"levels": 2}) if why == "a lower priority" else ("fifo", {"deadLetterQueue": "nowhere"})
    engine.run(c.StartBroker(), c.DeclareQueue("q", kind, {**options, "groups": "held"}), c.Subscribe("q"))
    engine.run(c.Subscribe("q", selector="odd" if why == "a selector" else None))
    first, holder, matching = 1, 3, Odd() if why == "a selector" else None
    attributes = Attributes(group=Coded(["a"], np.array([1, 1])))
    if why == "a lower priority":
        attributes = replace(attributes, priority=np.array([1, 10]))
    if why == "a delay":
        attributes = replace(attributes, due=np.array([engine.wall // 1000 + 1000, 0]))
    engine.run(c.Enqueue("q", 2, 1, attributes=attributes))
    if why == "it was refused":
        engine.run(c.Acquire("q", holder, 1), c.Release("q", holder, RowSet.single(0), Cause.MODIFIED, exclude=True))
    if why == "a redrive":
        engine.run(c.Acquire("q", first, 1), c.Settle("q", first, RowSet.single(0), Outcome.REJECTED))
    assert engine.run(c.Acquire("q", holder, 1, matching=matching)).rows.sequences().tolist() == [1]
    engine.pass_time(2)
    engine.run(c.Tick(), c.Redrive("q"))
    assert engine.run(c.Acquire("q", first, 1)).rows.sequences().tolist() == []
    engine.run(c.Settle("q", holder, RowSet.single(1)))
    assert engine.run(c.Acquire("q", first, 1)).rows.sequences().tolist() == [0]


@pytest.mark.parametrize("groups", ["held", "sticky"])
@pytest.mark.parametrize("fail", [False, True])
def test_a_group_waits_for_a_transaction_whose_link_has_ended(groups: str, fail: bool) -> None:
    """Q16 C11: its messages may come back, before the others of their group."""
    engine = Engine()
    engine.run(c.StartBroker(), c.DeclareQueue("q", options={"groups": groups}), c.Subscribe("q"), c.Subscribe("q"))
    engine.run(c.Enqueue("q", 2, 1, attributes=Attributes(group=Coded(["a"], np.array([1, 1])))), c.Acquire("q", 1, 1))
    accepted = DeliveryEnd(Outcome.ACCEPTED)
    engine.run(c.BeginTransaction(1), c.Retire(1, "q", 1, RowSet.single(0), accepted, ROLLED_BACK, settled=False))
    engine.run(c.Unsubscribe("q", 1))
    assert engine.run(c.Acquire("q", 3, 1)).rows.sequences().tolist() == []
    engine.run(c.DischargeTransaction(1, fail))
    assert engine.run(c.Acquire("q", 3, 9)).rows.sequences().tolist() == ([0, 1] if fail else [1])


@pytest.mark.parametrize("restart", [False, True])
def test_what_a_leases_selector_left_behind_is_offered_when_its_batch_has_ended(restart: bool) -> None:
    """Q2 Q16 C4: also if the lease was restored from a snapshot."""
    engine = Engine()
    engine.run(c.StartBroker(), c.DeclareQueue("q", options={"groups": "held"}))
    engine.run(c.Enqueue("q", 2, 1, attributes=Attributes(group=Coded(["a"], np.array([1, 1])))))
    enter = c.EnterLease("q", "l", "r", None, True, selector="odd")
    engine.run(enter, c.AcquireBatch("q", "l", "r", 0, selector="odd", matching=Odd()))
    if restart:
        engine = engine.from_snapshot()
        engine.run(c.StartBroker())
    engine.run(c.Subscribe("q"))
    assert engine.run(c.Acquire("q", 1, 1)).rows.sequences().tolist() == []
    engine.run(c.ReleaseLease("l", settle=True))
    assert engine.run(c.Acquire("q", 1, 1)).rows.sequences().tolist() == [0]
