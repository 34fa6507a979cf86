"""E2: the end of the last message or the last use of a queue deletes it, if its lifetime requires that, and no other queue.

Histories of queues with every lifetime. Links come and go. Messages are settled, returned, replaced, expired, purged, moved
and redriven, also in transactions. After each command, every queue whose lifetime has ended is deleted.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import decide
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, State
from penstock.broker_core.engine.decide.lifetimes import what_ends
from penstock.broker_core.engine.model.dispositions import DeliveryEnd
from penstock.broker_core.errors import PenstockError

from .ends import survives
from .harness import Engine

LIFETIMES = ("link", "unused", "empty", "unusedOrEmpty")
KINDS = {"fifo": {}, "last": {"key": "subject"}}
QUEUES = [f"{kind} {lifetime}" for kind in KINDS for lifetime in LIFETIMES]
NAMES = [*QUEUES, "dead"]
NAME, QUEUE = st.sampled_from(NAMES), st.sampled_from(QUEUES)
OUTCOMES = [DeliveryEnd(Outcome.ACCEPTED), DeliveryEnd(Outcome.REJECTED)]
DISPOSITIONS = st.sampled_from([*OUTCOMES, DeliveryEnd(cause=Cause.RELEASED), DeliveryEnd(cause=Cause.DEFERRED)])


class Lifetimes(RuleBasedStateMachine):
    begun = False  # all histories begin with the same commands, which are checked one by one only in the first

    @initialize()
    def begin(self) -> None:
        self.engine = Engine()
        self.looks = not Lifetimes.begun
        self.links: list[tuple[str, int]] = []
        self.holders: list[tuple[str, int]] = []
        for name in NAMES:
            self.declare(name)
        self.looks = Lifetimes.begun = True

    def declare(self, name: str) -> None:
        """Declare a queue for a link, with a message that a consumer holds."""
        if name in self.engine.state.queues:
            return
        kind, _, lifetime = name.partition(" ")
        options: dict[str, Any] = {"lifetime": lifetime or "empty", **({} if name == "dead" else {"deadLetterQueue": "dead"})}
        type_, maker = "lastvalue" if kind == "last" else "fifo", None if name == "dead" else c.Maker(kind, 99)
        self.engine.run(c.DeclareQueue(name, type_, {**options, **KINDS.get(kind, {})}, maker))
        self.links = [link for link in self.links if link[0] != name]
        self.holders = [holder for holder in self.holders if holder[0] != name]
        self.opens(name, makes=True)
        self.sends(name, 1, mortal=False)
        self.subscribes(name, 1)

    def run(self, command: c.Command[Any]) -> Any:
        """Run a command as the broker does. Refused and late commands change nothing."""
        state = self.engine.state
        before = {name for name in state.queues if what_ends(state, name) is None}
        try:
            looked_at = decide(state, command, c.Now(self.engine.wall, self.engine.up)).effects.may_end
        except PenstockError:
            return None
        queues_before = set(state.queues)
        reply = self.engine.run(command)
        for name in looked_at:
            self.engine.run(c.EndNode(name))
        assert [name for name in state.queues if name in before and what_ends(state, name) is not None] == [], command
        if not isinstance(command, c.StartBroker):
            assert not (queues_before - set(state.queues)).difference(looked_at)
        if self.looks:
            survives(self.engine)
        assert state.made == Counter(queue.user for queue in state.queues.values() if queue.user is not None)
        return reply

    @rule(name=NAME)
    def declares(self, name: str) -> None:
        self.declare(name)

    @rule(name=NAME, count=st.integers(1, 3), mortal=st.booleans())
    def sends(self, name: str, count: int, mortal: bool) -> None:
        key = Coded(["k"], np.ones(count, np.int64)) if name.startswith("last") else None
        expiry = np.full(count, self.engine.wall // 1000 + 2_000) if mortal else None
        self.run(c.Enqueue(name, count, 1, attributes=Attributes(key=key, expiry=expiry)))

    @rule(name=NAME)
    def opens(self, name: str, makes: bool = False) -> None:
        if (link := self.run(c.OpenLink(name, makes))) is not None:
            self.links.append((name, link))

    @precondition(lambda self: self.links)
    @rule(data=st.data())
    def closes(self, data: st.DataObject) -> None:
        self.run(c.CloseLink(*self.links.pop(data.draw(st.integers(0, len(self.links) - 1)))))

    @rule(name=NAME, credit=st.integers(1, 3))
    def subscribes(self, name: str, credit: int) -> None:
        if (holder := self.run(c.Subscribe(name))) is not None:
            self.holders.append((name, holder))
            self.run(c.Acquire(name, holder, credit))

    @rule(name=NAME)
    def asks(self, name: str) -> None:
        """Let a link ask for the deferred messages of a queue."""
        queue = self.engine.state.queues.get(name)
        if queue is not None and queue.counts[State.DEFERRED]:
            holder = self.run(c.Subscribe(name, by_number=True))
            self.holders.append((name, holder))
            block = queue.blocks[0]
            rows = np.flatnonzero(block.state[: block.filled] == State.DEFERRED)
            self.run(c.AcquireDeferred(name, holder, RowSet.of_sequences(rows)))

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), disposition=DISPOSITIONS, how=st.sampled_from(["now", "commit", "rollback", "lost"]))
    def ends(self, data: st.DataObject, disposition: DeliveryEnd, how: str) -> None:
        name, holder = data.draw(st.sampled_from(self.holders))
        if name not in self.engine.state.queues:
            return
        rows = self.held(name, holder)
        if how == "lost":
            self.holders.remove((name, holder))
            self.run(c.Unsubscribe(name, holder, disposition.cause or Cause.LINK_LOST, disposition.outcome))
        elif how == "now":
            self.run(c.command_of(disposition, name, holder, rows))
        else:
            number = self.run(c.BeginTransaction(1))
            self.run(c.Retire(number, name, holder, rows, disposition, DeliveryEnd(Outcome.REJECTED), settled=True))
            self.run(c.DischargeTransaction(number, how == "rollback"))

    def held(self, name: str, holder: int) -> RowSet:
        queue = self.engine.state.queues[name]
        return queue.held_by(holder, RowSet.range(0, queue.next_sequence))

    @rule(name=NAME)
    def purges(self, name: str) -> None:
        self.run(c.Purge(name))

    @rule(name=QUEUE)
    def moves(self, name: str) -> None:
        self.run(c.Move(name, "dead"))

    @rule(name=NAME)
    def redrives(self, name: str) -> None:
        self.run(c.Redrive(name))

    @rule(name=NAME)
    def leases(self, name: str) -> None:
        try:
            epoch, batch = self.engine.advance("lease", name, epoch=None, finished=0)
        except PenstockError:
            return
        if batch:
            self.engine.plan("lease", name, epoch=epoch, after=0, batch=batch)
        self.run(c.ReleaseLease("lease", settle=True))
        self.run(c.DeleteLease("lease"))

    @rule()
    def time_passes(self) -> None:
        self.engine.pass_time(5)
        self.run(c.Tick())

    @rule(really=st.sampled_from([False, False, True]))
    def restarts(self, really: bool) -> None:
        if really:
            wall = self.engine.wall
            self.engine = self.engine.recovered()
            self.engine.wall = wall
            self.links, self.holders = [], []
            self.run(c.StartBroker())


TestLifetimes = Lifetimes.TestCase
TestLifetimes.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
