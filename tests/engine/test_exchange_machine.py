"""E1 E2 E3: histories of exchanges against a simple model, with the conservation law and a recovery after every command."""

from __future__ import annotations

from ast import literal_eval
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import decide
from penstock.broker_core.engine.columns.attributes import NO_ATTRIBUTES, Coded
from penstock.broker_core.engine.columns.rowset import as_array
from penstock.broker_core.engine.model.routes import Examined, plan

from .conservation import conserved
from .harness import Engine
from .test_routes import by_expression

QUEUES = ("a", "b", "c")
EXCHANGES = ("d", "f", "t")
KINDS = {"d": "direct", "f": "fanout", "t": "topic"}
KEYS = st.sampled_from(["", "k", "k.l", "l"])
PATTERNS = st.sampled_from(["", "#", "k", "k.*", "*.l", "k.#", "l"])
ROWS = st.sampled_from([None, (), (0,), (1, 2)])  # the rows that a selector accepts, of three messages; None: no selector


class Exchanges(RuleBasedStateMachine):
    """The model: for each queue the numbers of its messages, in order; for each exchange its bindings."""

    @initialize()
    def begin(self) -> None:
        self.engine = Engine()
        self.sent = 0
        self.queues: dict[str, list[int]] = {}
        self.kinds: dict[str, tuple[str, str | None]] = {}  # exchange → unroutable, alternate
        self.bindings: dict[str, list[tuple[str, str, Any]]] = {}  # exchange → (queue, key, rows of its selector)
        self.stages: dict[str, list[tuple[str, list[int]]]] = {}
        self.stored: dict[int, int] = {}  # log position → the number of the first message stored there
        for name in QUEUES[:2]:
            self.run(c.DeclareQueue(name))
            self.queues[name] = []
        for name in EXCHANGES[1:]:
            self.run(c.DeclareExchange(name, KINDS[name]))
            self.kinds[name], self.bindings[name] = ("refuse", None), []

    def run(self, command: c.Command[Any]) -> Any:
        ending = decide(self.engine.state, command, c.Now(self.engine.wall, 0)).effects.may_end
        reply = self.engine.run(command)
        for name in ending:
            self.engine.run(c.EndNode(name))
        return reply

    @rule(name=st.sampled_from(QUEUES))
    def declare_queue(self, name: str) -> None:
        assert self.run(c.DeclareQueue(name)) is (name not in self.queues)
        self.queues.setdefault(name, [])

    @precondition(lambda self: self.queues)
    @rule(data=st.data())
    def delete_queue(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.queues)))
        self.run(c.DeleteQueue(name))
        del self.queues[name]
        for exchange, bindings in self.bindings.items():
            self.bindings[exchange] = [binding for binding in bindings if binding[0] != name]
        for stage, parts in self.stages.items():  # a deleted queue loses its staged messages
            self.stages[stage] = [part for part in parts if part[0] != name]

    @rule(name=st.sampled_from(EXCHANGES), data=st.data())
    def declare_exchange(self, name: str, data: st.DataObject) -> None:
        if name in self.kinds:
            unroutable, alternate = self.kinds[name]
        else:
            names = [*self.queues, *self.kinds]
            alternate = data.draw(st.sampled_from([None, *sorted(names)]))
            unroutable = "alternate" if alternate else data.draw(st.sampled_from(["refuse", "drop"]))
        options = {"unroutable": unroutable, "alternate": alternate}
        assert self.run(c.DeclareExchange(name, KINDS[name], options)) is (name not in self.kinds)
        self.kinds[name] = unroutable, alternate
        self.bindings.setdefault(name, [])

    @precondition(lambda self: self.kinds)
    @rule(data=st.data())
    def delete_exchange(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.kinds)))
        self.run(c.DeleteExchange(name))
        del self.kinds[name], self.bindings[name]

    @precondition(lambda self: self.kinds and self.queues)
    @rule(data=st.data(), rows=ROWS, key=PATTERNS)
    def bind(self, data: st.DataObject, rows: Any, key: str) -> None:
        exchange, queue = data.draw(st.sampled_from(sorted(self.kinds))), data.draw(st.sampled_from(sorted(self.queues)))
        key = "" if exchange == "f" else key
        binding = (queue, key, rows)
        new = self.run(c.Bind(exchange, queue, key, selector=None if rows is None else f"lets through {rows}"))
        assert new is (binding not in self.bindings[exchange])
        if new:
            self.bindings[exchange].append(binding)

    @precondition(lambda self: any(self.bindings.values()))
    @rule(data=st.data(), every=st.booleans())
    def unbind(self, data: st.DataObject, every: bool) -> None:
        exchange = data.draw(st.sampled_from(sorted(name for name, bindings in self.bindings.items() if bindings)))
        queue, key, _ = data.draw(st.sampled_from(self.bindings[exchange]))
        left = [binding for binding in self.bindings[exchange] if binding[0] != queue or (not every and binding[1] != key)]
        assert self.run(c.Unbind(exchange, queue, None if every else key)) == len(self.bindings[exchange]) - len(left)
        self.bindings[exchange] = left

    def targets(self, exchange: str, key: str, row: int) -> tuple[set[str], bool]:
        """Return the queues to which the model routes a message, and whether it is refused."""
        seen: list[str] = []
        place: str | None = exchange
        while place in self.kinds and place not in seen:
            assert place is not None
            seen.append(place)
            queues = {
                queue
                for queue, pattern, rows in self.bindings[place]
                if (place == "f" or (key == pattern if place == "d" else by_expression(pattern, key)))
                and (rows is None or row in rows)
            }
            if queues or self.kinds[place][0] == "drop":
                return queues, False
            place = self.kinds[place][1]
        return ({place}, False) if place in self.queues and place is not None else (set(), True)

    @precondition(lambda self: self.kinds)
    @rule(data=st.data(), keys=st.lists(KEYS, min_size=3, max_size=3), staged=st.booleans())
    def send(self, data: st.DataObject, keys: list[str], staged: bool) -> None:
        exchange = data.draw(st.sampled_from(sorted(self.kinds)))
        names = sorted({key for key in keys if key})
        coded = Coded(names, np.array([names.index(key) + 1 if key else 0 for key in keys]))
        needed = plan(self.engine.state.exchanges.by_name, self.engine.state.queues, exchange, coded)
        examined = {
            inside.exchange: Examined(
                inside.version,
                {n: np.array(literal_eval(str(b.selector).removeprefix("lets through ")), np.int64) for n, b in inside.bindings},
            )
            for inside in needed.inside
        }
        stage = f"stage {self.sent}" if staged else None
        attributes = dict.fromkeys(needed.rules, NO_ATTRIBUTES)
        before = len(self.engine.log)
        sent = self.run(c.Route(exchange, 3, 10, b"", coded, True, examined, attributes, stage=stage))
        if len(self.engine.log) > before:
            assert len(self.engine.log) == before + 1, "one event"
            self.stored[self.engine.log[-1][1]] = self.sent
        expected = [self.targets(exchange, key, row) for row, key in enumerate(keys)]
        assert as_array(sent.unroutable).tolist() == [row for row, (_, refused) in enumerate(expected) if refused]
        arrived = {
            queue: [self.sent + row for row, (queues, _) in enumerate(expected) if queue in queues] for queue in self.queues
        }
        self.sent += 3
        if stage is None:
            for queue, numbers in arrived.items():
                self.queues[queue] += numbers
        elif any(arrived.values()):
            self.stages[stage] = list(arrived.items())

    @precondition(lambda self: self.stages)
    @rule(publish=st.booleans())
    def end_stage(self, publish: bool) -> None:
        name, parts = self.stages.popitem()
        self.run(c.Publish([name]) if publish else c.Discard([name]))
        for queue, numbers in parts if publish else ():
            if queue in self.queues:
                self.queues[queue] += numbers

    @invariant()
    def the_engine_has_what_the_model_has(self) -> None:
        state = self.engine.state
        assert set(state.queues) == set(self.queues)
        assert set(state.exchanges.by_name) == set(self.kinds)
        for name, numbers in self.queues.items():
            locations = [block.locations(slice(0, block.filled)) for block in state.queues[name].blocks.values()]
            rows = [
                row for location in locations for row in zip(location.position, location.payload_row, location.rows, strict=True)
            ]
            assert [self.stored[at] + first + i for at, first, count in rows for i in range(count)] == numbers
            assert conserved(state.queues[name])

    @invariant()
    def a_recovery_and_a_snapshot_say_the_same(self) -> None:
        persisted = self.engine.persisted()
        assert self.engine.recovered().persisted() == persisted
        assert self.engine.from_snapshot().persisted() == persisted


Exchanges.TestCase.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestExchanges = Exchanges.TestCase
