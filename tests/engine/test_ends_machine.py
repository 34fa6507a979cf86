"""Q12 Q13 Q20 Q21 Q23: histories of three queues with dead letters, moves, copies and redrives, against a simple model.

`q` and `r` send their dead letters to `dead`, which has room for a few. The dead letters of `dead` go to `q`. Each message
exists as often as it was sent and copied. After every command a recovery and a snapshot give the same state.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import events as e
from penstock.broker_core.engine.columns.attributes import Attributes
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome, Reason, State
from penstock.broker_core.engine.events import Moved, codec

from .ends import survives
from .harness import Engine

NAMES = ("q", "r", "dead")
TTL, WAIT = 10, 13  # seconds: at any look a message is alive, or was expired for longer than one round of housekeeping
DELAY = 20  # longer than one wait
RETRY = 5  # shorter
SELDOM = st.sampled_from([False, False, True])
LEFT = st.sampled_from([Cause.LINK_LOST, Cause.MODIFIED_BY_DEFAULT, Cause.MODIFIED_BY_DEFAULT, Cause.RELEASED])
HOW = st.sampled_from(["reject", "modify", "release", "accept", "defer"])
WORK = st.sampled_from(["reject", "reject", "modify", "modify", "send", "wait", "redrive", "accept", "defer", "ask"])


@dataclass
class Message:
    payload: tuple[int, int]  # its place in the log: record and row
    state: State = State.AVAILABLE
    outcome: Outcome = Outcome.NONE
    holder: int = 0
    attempts: int = 0
    defaulted: int = 0  # attempts that a default outcome ended
    expires: float | None = None
    due: float = 0.0  # DELAYED until then
    reason: Reason = Reason.NONE
    origin: tuple[str, int] | None = None  # the first queue that gave it up, and its place there
    stayed: bool = False
    deferred: bool = False  # it returns to DEFERRED

    def seen(self) -> tuple[Any, ...]:
        holder = self.holder if self.state == State.ACQUIRED else 0
        attempts = self.attempts, self.defaulted
        marks = self.reason, self.origin, self.stayed, self.deferred
        return (self.payload, self.state, self.outcome, holder, *attempts, *marks)


@dataclass
class Model:
    rows: list[Message] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    paused: bool = False

    @property
    def live(self) -> int:
        return sum(message.state != State.ARCHIVED for message in self.rows)

    def room(self) -> float:
        return self.options.get("maxMessages", float("inf")) - self.live


class EndsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.engine, self.now = Engine(), 0.0
        self.models: dict[str, Model] = {}
        self.links: dict[int, str] = {}
        self.by_number: dict[int, str] = {}  # links that ask for deferred messages
        self.sent: Counter[tuple[int, int]] = Counter()
        for name, options in (
            ("dead", {"maxMessages": 5, "deadLetterQueue": "q", "expired": "deadLetter"}),
            ("q", {"deadLetterQueue": "dead", "maxAttempts": 2, "expired": "deadLetter"}),
            ("r", {"deadLetterQueue": "dead", "expired": "deadLetter", "retryDelay": RETRY * 1000}),
        ):
            self.engine.run(c.DeclareQueue(name, options=options))
            self.models[name] = Model(options=options)
        for name in ("q", "q", "r", "dead"):
            self.subscribe(name)

    @initialize(counts=st.tuples(st.integers(2, 4), st.integers(2, 4)))
    def begin(self, counts: tuple[int, int]) -> None:
        self.send("q", counts[0], mortal=False)
        self.send("r", counts[1], mortal=True)
        self.send("r", 1, mortal=False, later=True)

    # Each rule runs a command in the engine, and does the same to the model.
    @rule(name=st.sampled_from(["q", "r"]), count=st.integers(1, 4), mortal=st.booleans(), later=SELDOM)
    def sends(self, name: str, count: int, mortal: bool, later: bool) -> None:
        self.send(name, count, mortal, later)

    def send(self, name: str, count: int, mortal: bool, later: bool = False) -> None:
        now = np.full(count, self.engine.wall // 1000)
        attributes = Attributes(expiry=now + TTL * 1000 if mortal else None, due=now + DELAY * 1000 if later else None)
        self.engine.run(c.Enqueue(name, count, 7, attributes=attributes))
        position = self.engine.log[-1][1]
        expires, due = self.now + TTL if mortal else None, self.now + DELAY if later else 0.0
        for row in range(count):
            self.sent[position, row] += 1
            self.models[name].rows.append(self.placed(Message((position, row), expires=expires, due=due)))

    def placed(self, message: Message) -> Message:
        message.state = State.DELAYED if message.due > self.now else State.AVAILABLE
        return message

    @precondition(lambda self: len(self.links) < 5)
    @rule(name=st.sampled_from(NAMES))
    def subscribe(self, name: str) -> None:
        self.links[self.engine.run(c.Subscribe(name))] = name

    @precondition(lambda self: self.links)
    @rule(data=st.data(), credit=st.integers(1, 5))
    def acquire(self, data: st.DataObject, credit: int) -> None:
        self.takes(data.draw(st.sampled_from(sorted(self.links))), credit)

    def takes(self, holder: int, credit: int) -> None:
        name = self.links[holder]
        got = self.engine.run(c.Acquire(name, holder, credit)).rows.sequences().tolist()
        model = self.models[name]
        free = [n for n, message in enumerate(model.rows) if message.state == State.AVAILABLE and not self.is_over(message)]
        assert got == ([] if model.paused else free[:credit])
        for row in got:
            model.rows[row].state, model.rows[row].holder = State.ACQUIRED, holder

    @property
    def holders(self) -> list[int]:
        return [holder for holder in sorted([*self.links, *self.by_number]) if self.held(holder)]

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), how=HOW, most=st.integers(1, 3))
    def end(self, data: st.DataObject, how: str, most: int) -> None:
        self.ends(data.draw(st.sampled_from(self.holders)), how, most)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 3))
    def asks(self, name: str, count: int) -> None:
        self.ask(name, count)

    def ask(self, name: str, count: int) -> None:
        """Let a link ask for deferred messages. If some have expired, they end, and the link gets none."""
        model = self.models[name]
        rows = [n for n, message in enumerate(model.rows) if message.state == State.DEFERRED][:count]
        over = [row for row in rows if self.is_over(model.rows[row])]
        if not rows or model.paused:
            return
        link = self.engine.run(c.Subscribe(name, by_number=True))
        self.by_number[link] = name
        command = c.AcquireDeferred(name, link, RowSet.of_sequences(np.array(rows, np.int64)))
        assert self.engine.run(command).sequences().tolist() == over
        self.expire(name, over)
        for row in rows if not over else ():
            model.rows[row].state, model.rows[row].holder = State.ACQUIRED, link

    def expire(self, name: str, rows: list[int], rooms: dict[str, float] | None = None) -> None:
        options = self.models[name].options
        if options.get("expired") == "deadLetter" and options.get("deadLetterQueue"):
            self.dead_letter(name, rows, Reason.EXPIRED, rooms)
        else:
            self.archive(name, rows, Outcome.EXPIRED)

    @rule(work=st.lists(st.tuples(st.sampled_from([*NAMES, "dead"]), WORK, st.integers(1, 3)), min_size=2, max_size=6))
    def work(self, work: list[tuple[str, str, int]]) -> None:
        """Links take and end messages in turn, while time passes."""
        for name, how, credit in work:
            holder = min((link for link, of in self.links.items() if of == name), default=None)
            if holder is None:
                self.subscribe(name)
                continue
            if how == "wait":
                self.wait()
            elif how == "redrive":
                self.redrive(name, credit)
            elif how == "ask":
                self.ask(name, credit)
            elif how == "send":
                self.send(name, credit, mortal=True)
            else:
                self.takes(holder, credit)
                if self.held(holder):
                    self.ends(holder, how, credit)

    def ends(self, holder: int, how: str, most: int) -> None:
        name = self.name_of(holder)
        rows = self.held(holder)[:most]
        chosen = RowSet.of_sequences(np.array(rows, np.int64))
        if how in ("accept", "reject"):
            outcome = Outcome.ACCEPTED if how == "accept" else Outcome.REJECTED
            self.engine.run(c.Settle(name, holder, chosen, outcome, "why" if how == "reject" else None))
            self.settle(name, rows, outcome)
        else:
            cause = {"release": Cause.RELEASED, "modify": Cause.MODIFIED, "defer": Cause.DEFERRED}[how]
            self.engine.run(c.Release(name, holder, chosen, cause))
            self.give_back(name, rows, counts=how != "release", defers=how == "defer")

    @precondition(lambda self: self.links)
    @rule(data=st.data(), cause=LEFT)
    def lose(self, data: st.DataObject, cause: Cause) -> None:
        holder = data.draw(st.sampled_from(sorted([*self.links, *self.by_number])))
        rows, name = self.held(holder), self.name_of(holder)
        self.engine.run(c.Unsubscribe(name, holder, cause))
        (self.links if holder in self.links else self.by_number).pop(holder)
        self.give_back(name, rows, counts=cause != Cause.RELEASED, by_default=cause == Cause.MODIFIED_BY_DEFAULT)

    @rule()
    def restart(self) -> None:
        self.engine = survives(self.engine).recovered()
        self.engine.wall, self.engine.up = int(self.engine.wall + self.now * 1_000_000), int(self.now * 1_000_000)
        held = {name: [n for n, m in enumerate(model.rows) if m.state == State.ACQUIRED] for name, model in self.models.items()}
        self.engine.run(c.StartBroker())
        self.links, self.by_number = {}, {}
        for name in self.engine.state.queues:
            self.give_back(name, held[name], counts=False)

    @rule()
    def wait(self) -> None:
        self.engine.pass_time(WAIT)
        self.now += WAIT
        over = {
            name: [n for n, m in enumerate(model.rows) if self.waits(m) and m.state != State.DEFERRED and self.is_over(m)]
            for name, model in self.models.items()
        }
        before = len(self.engine.log)
        self.engine.run(c.Tick())
        rooms = {name: model.room() for name, model in self.models.items()}  # decided before the first message moves
        for name in self.in_order(before):
            self.expire(name, over[name], rooms)
        for model in self.models.values():
            for message in model.rows:
                if message.state == State.DELAYED:
                    self.placed(message)

    @rule(
        name=st.sampled_from(NAMES),
        option=st.sampled_from(["maxAttempts", "rejected", "expired", "deadLetterQueue", "defaultOutcomeCounts", "retryDelay"]),
        data=st.data(),
    )
    def alter(self, name: str, option: str, data: st.DataObject) -> None:
        values: dict[str, list[Any]] = {
            "maxAttempts": [0, 1, 2],
            "defaultOutcomeCounts": [False, True],
            "retryDelay": [0, RETRY * 1000],
            "rejected": ["deadLetter", "archive", "return"],
            "expired": ["deadLetter", "archive"],
            "deadLetterQueue": [None, "q", "dead", "missing"],
        }
        value = data.draw(st.sampled_from(values[option]))
        self.engine.run(c.AlterQueue(name, {option: value}))
        self.models[name].options = {**self.models[name].options, option: value}

    @rule(name=st.sampled_from(NAMES), dies=st.booleans())
    def pause(self, name: str, dies: bool) -> None:
        """A paused queue delivers nothing, with or without a restart; a resumed one delivers everything."""
        model = self.models[name]
        assert self.engine.run(c.PauseQueue(name)) is True
        model.paused = True
        if dies:
            self.restart()
        for holder in sorted(link for link, of in self.links.items() if of == name):
            self.takes(holder, 2)
        assert self.engine.run(c.PauseQueue(name, paused=False)) is True
        model.paused = False
        for holder in sorted(link for link, of in self.links.items() if of == name):
            self.takes(holder, 2)

    @rule(copy=st.booleans(), names=st.permutations(NAMES), count=st.integers(1, 4))
    def shift(self, copy: bool, names: list[str], count: int) -> None:
        source, target = names[0], names[1]
        rows = self.models[source].rows
        waiting = ((n, m) for n, m in enumerate(rows) if self.waits(m))
        candidates = [n for n, m in waiting if m.state == State.DEFERRED or not self.is_over(m)][:count]
        going = candidates[: int(min(len(candidates), max(0, self.models[target].room())))]
        command = (c.Copy if copy else c.Move)(source, target, count)
        if candidates and not going:
            with pytest.raises(errors.ResourceLimit):
                self.engine.run(command)
            return
        assert self.engine.run(command).messages == len(going)
        letters = [rows[row] for row in going]
        if copy:
            self.sent.update(message.payload for message in letters)
        else:
            self.archive(source, going, Outcome.MOVED)
        self.arrive(target, letters)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 3), really=SELDOM)
    def purge(self, name: str, count: int, really: bool) -> None:
        if really:
            rows = [n for n, message in enumerate(self.models[name].rows) if self.waits(message)][:count]
            assert self.engine.run(c.Purge(name, count)) == len(rows)
            self.archive(name, rows, Outcome.PURGED)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 6))
    def redrives(self, name: str, count: int) -> None:
        self.redrive(name, count)

    def redrive(self, name: str, count: int) -> None:
        model = self.models[name]
        away = (State.AVAILABLE, State.DEFERRED)
        candidates = [n for n, m in enumerate(model.rows) if m.stayed or (m.state in away and m.origin is not None)][:count]
        here = [n for n in candidates if model.rows[n].stayed]
        back = here[: int(min(len(here), max(0, model.room())))]
        done = len(back)
        for row in back:
            message = model.rows[row]
            expires = None if message.reason == Reason.EXPIRED else message.expires
            reason = message.reason if message.origin else Reason.NONE
            model.rows[row] = replace(Message(message.payload), expires=expires, origin=message.origin, reason=reason)
        groups: dict[str, list[int]] = {}
        for row in candidates:
            origin = model.rows[row].origin
            if row not in here and origin is not None:
                groups.setdefault(origin[0], []).append(row)
        rooms = {origin: self.models[origin].room() for origin in groups}
        for origin in sorted(groups, key=self.engine.state.queues[name].origins.index):
            going = groups[origin][: int(min(len(groups[origin]), max(0, rooms[origin])))] if origin != name else []
            letters = [model.rows[row] for row in going]
            self.archive(name, going, Outcome.MOVED)
            for message in letters:
                self.models[origin].rows.append(Message(message.payload, expires=message.expires))
            done += len(going)
        assert self.engine.run(c.Redrive(name, count))[::2] == (done, len(candidates) - done)

    # The model
    def held(self, holder: int) -> list[int]:
        rows = self.models[self.name_of(holder)].rows
        return [n for n, message in enumerate(rows) if message.state == State.ACQUIRED and message.holder == holder]

    def name_of(self, holder: int) -> str:
        return self.links.get(holder) or self.by_number[holder]

    def in_order(self, before: int) -> list[str]:
        """Return the queues of later events in the log, in the order in which their dead letters get room."""
        events = [codec.decode(meta) for meta, _ in self.engine.log[before:]]
        return list(dict.fromkeys(event.queue for event in events if isinstance(event, (Moved, e.Expired))))

    def is_over(self, message: Message) -> bool:
        return message.expires is not None and message.expires <= self.now

    def waits(self, message: Message) -> bool:
        return message.state in (State.AVAILABLE, State.DELAYED, State.DEFERRED)

    def settle(self, name: str, rows: list[int], outcome: Outcome) -> None:
        options = self.models[name].options
        policy = options.get("rejected", "deadLetter")
        if outcome == Outcome.REJECTED and policy == "return":
            self.give_back(name, rows, counts=True)
        elif outcome == Outcome.REJECTED and policy == "deadLetter" and options.get("deadLetterQueue"):
            self.dead_letter(name, rows, Reason.REJECTED)
        else:
            self.archive(name, rows, outcome)

    def give_back(
        self,
        name: str,
        rows: list[int],
        counts: bool,
        rooms: dict[str, float] | None = None,
        by_default: bool = False,
        defers: bool = False,
    ) -> None:
        model = self.models[name]
        most = model.options.get("maxAttempts", 20)
        for row in rows:
            model.rows[row].deferred |= defers
            model.rows[row].state = State.DEFERRED if model.rows[row].deferred else State.AVAILABLE
            model.rows[row].attempts += counts
            model.rows[row].defaulted += by_default
        all_count = model.options.get("defaultOutcomeCounts", False)
        counted = {n: model.rows[n].attempts - (0 if all_count else model.rows[n].defaulted) for n in rows}
        failed = counts and (all_count or not by_default)
        last = [n for n in rows if failed and most and counted[n] >= most]
        self.dead_letter(name, last, Reason.DELIVERY_LIMIT, rooms)
        waits = failed and model.options.get("retryDelay")
        for message in (model.rows[n] for n in rows if waits and n not in last and not model.rows[n].deferred):
            message.due, message.state = self.now + RETRY, State.DELAYED

    def archive(self, name: str, rows: list[int], outcome: Outcome) -> None:
        for row in rows:
            message = self.models[name].rows[row]
            self.models[name].rows[row] = replace(message, state=State.ARCHIVED, outcome=outcome)

    def arrive(self, name: str, letters: list[Message]) -> None:
        for m in letters:
            letter = Message(m.payload, expires=m.expires, due=m.due, reason=m.reason, origin=m.origin)
            self.models[name].rows.append(self.placed(letter))

    def dead_letter(self, name: str, rows: list[int], reason: Reason, rooms: dict[str, float] | None = None) -> None:
        source = self.models[name].rows
        into = self.models[name].options.get("deadLetterQueue")
        rooms = {queue: model.room() for queue, model in self.models.items()} if rooms is None else rooms
        room = rooms.get(into, 0) if into != name else 0
        if reason == Reason.EXPIRED and self.expires_into_itself(name):
            room = 0
        for row in rows:
            message = source[row]
            round_again = message.origin is not None and message.origin[0] == into and message.reason == reason
            goes = room > 0 and not round_again
            if goes:
                room = rooms[into] = room - 1
                expires = None if reason == Reason.EXPIRED else message.expires
                letter = Message(message.payload, expires=expires, reason=reason, origin=message.origin or (name, row))
                self.models[into].rows.append(letter)
            self.archive(name, [row], Outcome.DEAD_LETTERED)
            if not goes:
                source[row].stayed, source[row].reason = True, reason

    def expires_into_itself(self, name: str) -> bool:
        seen, target = set(), name
        while target in self.models and self.models[target].options.get("expired") == "deadLetter":
            target = self.models[target].options.get("deadLetterQueue")
            if target == name:
                return True
            if target in seen:
                return False
            seen.add(target)
        return False

    @invariant()
    def the_same(self) -> None:
        for name, model in self.models.items():
            queue = self.engine.state.queues[name]
            blocks = [queue.blocks[number] for number in sorted(queue.blocks)]
            assert sum(block.filled for block in blocks) == len(model.rows)
            rows = []
            for block in blocks:
                every = slice(0, block.filled)
                columns = {
                    column: np.broadcast_to(getattr(block, column).get(every), block.filled).tolist()
                    for column in (
                        *("outcome", "holder", "attempts", "defaulted"),
                        *("reason", "origin", "came_from", "stayed", "deferred"),
                    )
                }
                for row in range(block.filled):
                    (location,) = zip(*(part.tolist() for part in block.locations(slice(row, row + 1))[:5]), strict=True)
                    state, at = State(block.state[row]), {column: values[row] for column, values in columns.items()}
                    origin = (queue.origins[at["origin"] - 1], at["came_from"] - 1) if at["origin"] else None
                    holder = at["holder"] if state == State.ACQUIRED else 0
                    attempts = at["attempts"], at["defaulted"]
                    marks = at["reason"], origin, bool(at["stayed"]), bool(at["deferred"])
                    rows.append((location[2:4], state, at["outcome"], holder, *attempts, *marks))
            assert rows == [message.seen() for message in model.rows], name
            assert queue.stayed == sum(message.stayed for message in model.rows)

    @invariant()
    def nothing_is_lost(self) -> None:
        """Each sent or copied message exists once, alive or ended; moved messages and dead letters count at their new place."""
        left = Counter[tuple[int, int]]()
        for model in self.models.values():
            gone = [m for m in model.rows if m.outcome == Outcome.MOVED or (m.outcome == Outcome.DEAD_LETTERED and not m.stayed)]
            left.update(message.payload for message in model.rows)
            left.subtract(message.payload for message in gone)
        assert left == self.sent

    @invariant()
    def a_restart_finds_the_same(self) -> None:
        survives(self.engine)


TestEndsMachine = EndsMachine.TestCase
TestEndsMachine.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
