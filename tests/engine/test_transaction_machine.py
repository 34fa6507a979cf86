"""C11 Q1 Q13 C8: histories of transactions over two queues against a simple model, with a recovery after each command.

A third queue has little room for the dead letters of one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.limits import TRANSACTION_AGE
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import RETURN_COUNTS_ATTEMPT, Cause, Outcome, State
from penstock.broker_core.engine.model.dispositions import DeliveryEnd

from .conservation import conserved
from .harness import SECOND, Engine

QUEUES = ("a", "b")
LETTERS, ATTEMPTS, ROOM = "dead", 2, 2  # the dead-letter queue of "a", its `maxAttempts`, and the messages that fit
ALL = (*QUEUES, LETTERS)
FEW = st.integers(1, 4)
DISPOSITIONS = st.sampled_from(
    [
        DeliveryEnd(Outcome.ACCEPTED),
        DeliveryEnd(Outcome.REJECTED, error="bad"),
        DeliveryEnd(Outcome.REJECTED, error="worse"),
        DeliveryEnd(cause=Cause.RELEASED),
        DeliveryEnd(cause=Cause.MODIFIED),
        DeliveryEnd(cause=Cause.MODIFIED, exclude=True, annotations=b"note"),
        DeliveryEnd(cause=Cause.DEFERRED),
    ]
)
BAD = st.sampled_from(
    [DeliveryEnd(Outcome.REJECTED, error=error) for error in ("bad", "worse", None)] + [DeliveryEnd(cause=Cause.MODIFIED)]
)
DEFAULTS = st.sampled_from([DeliveryEnd(cause=Cause.RELEASED), DeliveryEnd(cause=Cause.ROLLBACK), DeliveryEnd(Outcome.REJECTED)])


@dataclass
class Message:
    holder: int | None = None  # the link that holds it
    outcome: Outcome = Outcome.NONE
    attempts: int = 0
    deferred: bool = False

    @property
    def state(self) -> State:
        if self.outcome or self.holder is not None:
            return State.ARCHIVED if self.outcome else State.ACQUIRED
        return State.DEFERRED if self.deferred else State.AVAILABLE

    def end(self, disposition: DeliveryEnd) -> None:
        self.holder = None
        if disposition.outcome is not None:
            self.outcome = disposition.outcome
        elif disposition.cause is not None:
            self.attempts += RETURN_COUNTS_ATTEMPT[disposition.cause]
            self.deferred |= disposition.cause is Cause.DEFERRED


@dataclass
class Open:
    posted: list[str] = field(default_factory=list)  # the queue of each message
    outcomes: dict[tuple[str, int], tuple[DeliveryEnd, DeliveryEnd, bool]] = field(default_factory=dict)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine()
        self.queues: dict[str, list[Message]] = {name: [] for name in ALL}
        self.links: dict[int, str] = {}
        self.by_number: dict[int, str] = {}  # links that ask for deferred messages
        self.open: dict[int, Open] = {}
        options = {
            "a": {"deadLetterQueue": LETTERS, "maxAttempts": ATTEMPTS},
            LETTERS: {"maxMessages": ROOM, "overflow": "reject"},
        }
        for name in ALL:
            self.engine.run(c.DeclareQueue(name, options=options.get(name, {})))

    @initialize(counts=st.tuples(st.integers(3, 4), FEW))
    def begins(self, counts: tuple[int, int]) -> None:
        for name, count in zip(QUEUES, counts, strict=True):
            self.enqueues(name, count)
            self.attaches(name)
            self.takes(max(self.links), 4)
        self.declares()

    def ended(self, ends: list[tuple[str, int, DeliveryEnd]]) -> None:
        """Apply the ends of one command: undeliverable messages become dead letters, up to the room."""
        room, dying = self.room(), 0
        for queue, row, disposition in ends:
            message = self.queues[queue][row]
            message.end(disposition)
            if queue == "a" and (message.outcome == Outcome.REJECTED or (not message.outcome and message.attempts >= ATTEMPTS)):
                message.outcome = Outcome.DEAD_LETTERED
                dying += 1
        self.queues[LETTERS] += [Message() for _ in range(min(dying, room))]

    def room(self) -> int:
        """Return the room for dead letters, without the room of messages that wait for a commit."""
        posted = sum(queue == LETTERS for work in self.open.values() for queue in work.posted)
        return ROOM - posted - sum(not message.outcome for message in self.queues[LETTERS])

    @rule(queue=st.sampled_from(QUEUES), count=FEW)
    def enqueues(self, queue: str, count: int) -> None:
        self.engine.run(c.Enqueue(queue, count, 10))
        self.queues[queue] += [Message() for _ in range(count)]

    @precondition(lambda self: len(self.links) < 4)
    @rule(queue=st.sampled_from(ALL))
    def attaches(self, queue: str) -> None:
        self.links[self.engine.run(c.Subscribe(queue))] = queue

    @precondition(lambda self: len(self.open) < 3)
    @rule()
    def declares(self) -> None:
        self.open[self.engine.run(c.BeginTransaction(1))] = Open()

    @precondition(lambda self: self.links)
    @rule(data=st.data(), credit=FEW)
    def acquires(self, data: st.DataObject, credit: int) -> None:
        self.takes(data.draw(st.sampled_from(sorted(self.links))), credit)

    def takes(self, holder: int, credit: int) -> None:
        queue = self.links[holder]
        for sequence in self.engine.run(c.Acquire(queue, holder, credit)).rows.sequences().tolist():
            message = self.queues[queue][sequence]
            assert message.state is State.AVAILABLE  # no link held it
            message.holder = holder

    @rule(queue=st.sampled_from(ALL), count=FEW)
    def asks(self, queue: str, count: int) -> None:
        deferred = [row for row, message in enumerate(self.queues[queue]) if message.state is State.DEFERRED][:count]
        if deferred:
            holder = self.engine.run(c.Subscribe(queue, by_number=True))
            self.by_number[holder] = queue
            assert not self.engine.run(c.AcquireDeferred(queue, holder, of(deferred)))
            for row in deferred:
                self.queues[queue][row].holder = holder

    @precondition(lambda self: self.open)
    @rule(data=st.data(), queues=st.lists(st.sampled_from(ALL), min_size=1, max_size=3), count=FEW)
    def posts(self, data: st.DataObject, queues: list[str], count: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.open)))
        for queue in queues:
            if queue == LETTERS and count > self.room():
                with pytest.raises(errors.QueueFull):
                    self.engine.run(c.Post(number, queue, count, 10))
                continue
            self.engine.run(c.Post(number, queue, count, 10))
            self.open[number].posted += [queue] * count

    def held(self) -> list[tuple[str, int, int]]:
        """Return (queue, sequence, holder) of the messages that open links hold."""
        return [
            (queue, sequence, message.holder)
            for queue, messages in self.queues.items()
            for sequence, message in enumerate(messages)
            if message.holder in self.links or message.holder in self.by_number
        ]

    def some(self, data: st.DataObject) -> tuple[str, int, list[int]]:
        queue, _, holder = data.draw(st.sampled_from(self.held()))
        mine = [sequence for _, sequence, link in self.held() if link == holder]
        return queue, holder, sorted(data.draw(st.lists(st.sampled_from(mine), min_size=1, unique=True)))

    @precondition(lambda self: self.open and self.held())
    @rule(data=st.data(), disposition=DISPOSITIONS, default=DEFAULTS, settled=st.booleans())
    def retires(self, data: st.DataObject, disposition: DeliveryEnd, default: DeliveryEnd, settled: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.open)))
        queue, holder, rows = self.some(data)
        self.says(number, queue, holder, rows, (disposition, default, settled))

    @precondition(lambda self: any(queue == "a" and holder in self.links for queue, _, holder in self.held()))
    @rule(dispositions=st.lists(BAD, min_size=4, max_size=4), default=DEFAULTS, fail=st.booleans())
    def works_off(self, dispositions: list[DeliveryEnd], default: DeliveryEnd, fail: bool) -> None:
        """Settle each message of a link with another outcome in one transaction."""
        number = self.engine.run(c.BeginTransaction(2))
        self.open[number] = Open()
        holder = next(holder for queue, _, holder in self.held() if queue == "a" and holder in self.links)
        self.takes(holder, 4)
        mine = [row for queue, row, link in self.held() if link == holder]
        for row, disposition in zip(mine, dispositions, strict=False):
            self.says(number, "a", holder, [row], (disposition, default, True))
        self.discharged(number, fail)

    def says(self, number: int, queue: str, holder: int, rows: list[int], word: tuple[DeliveryEnd, DeliveryEnd, bool]) -> None:
        disposition, default, settled = word
        command = c.Retire(number, queue, holder, of(rows), disposition, default, settled)
        others = {key for transaction, work in self.open.items() if transaction != number for key in work.outcomes}
        if others & {(queue, row) for row in rows}:
            try:
                self.engine.run(command)
            except errors.TransactionRolledBack:
                return
            raise AssertionError("a message in two transactions")
        self.engine.run(command)
        self.open[number].outcomes.update({(queue, row): (disposition, default, settled) for row in rows})

    @precondition(lambda self: self.held())
    @rule(data=st.data(), disposition=DISPOSITIONS)
    def ends_outside(self, data: st.DataObject, disposition: DeliveryEnd) -> None:
        """Settle a message immediately, which removes it from its transaction."""
        queue, holder, rows = self.some(data)
        self.engine.run(c.command_of(disposition, queue, holder, of(rows)))
        self.ended([(queue, row, disposition) for row in rows])
        for row in rows:
            for work in self.open.values():
                work.outcomes.pop((queue, row), None)

    @precondition(lambda self: len(self.links) > 1)
    @rule(data=st.data())
    def loses_a_link(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(sorted([*self.links, *self.by_number])))
        queue = self.links.pop(holder, None) or self.by_number.pop(holder)
        spoken_of = {key for work in self.open.values() for key in work.outcomes}
        gone = [row for row, message in enumerate(self.queues[queue]) if message.holder == holder]
        back = [row for row in gone if (queue, row) not in spoken_of]
        assert self.engine.run(c.Unsubscribe(queue, holder)).sequences().tolist() == back
        self.ended([(queue, row, DeliveryEnd(cause=Cause.LINK_LOST)) for row in back])

    @precondition(lambda self: self.open)
    @rule(data=st.data(), fail=st.booleans())
    def discharges(self, data: st.DataObject, fail: bool) -> None:
        self.discharged(data.draw(st.sampled_from(sorted(self.open))), fail)

    def discharged(self, number: int, fail: bool) -> None:
        before = len(self.engine.log)
        assert self.engine.run(c.DischargeTransaction(number, fail)) is None
        assert len(self.engine.log) <= before + 1  # all or nothing
        work = self.open[number]
        if fail:
            self.undo(work)
        else:
            self.ended([(queue, row, disposition) for (queue, row), (disposition, _, _) in work.outcomes.items()])
            for queue in work.posted:
                self.queues[queue].append(Message())
        del self.open[number]

    def undo(self, *works: Open) -> None:
        self.ended(
            [
                (queue, row, default)
                for work in works
                for (queue, row), (_, default, settled) in work.outcomes.items()
                if settled or self.queues[queue][row].holder not in {*self.links, *self.by_number}
            ]
        )

    @precondition(lambda self: self.open)
    @rule(really=st.sampled_from([False, False, True]))
    def time_passes(self, really: bool) -> None:
        if not really:
            return
        self.engine.pass_time(TRANSACTION_AGE / SECOND + 1)
        self.engine.run(c.TimeOutTransactions())
        self.undo(*self.open.values())
        for number, work in self.open.items():
            if work.posted or work.outcomes:  # one without work never times out
                assert isinstance(self.engine.run(c.DischargeTransaction(number)), errors.TransactionTimedOut)
            else:
                self.engine.run(c.DischargeTransaction(number, fail=True))
        self.open.clear()

    @rule(really=st.sampled_from([False, False, True]), snapshot=st.booleans())
    def restarts(self, really: bool, snapshot: bool) -> None:
        if not really:
            return
        self.engine = self.engine.from_snapshot() if snapshot else self.engine.recovered()
        self.engine.run(c.StartBroker())
        held = [(queue, row) for queue, messages in self.queues.items() for row, m in enumerate(messages) if m.holder is not None]
        self.ended([(queue, row, DeliveryEnd(cause=Cause.BROKER_LOST)) for queue, row in held])
        self.links.clear()
        self.by_number.clear()
        self.open.clear()
        assert not self.engine.state.stages

    @invariant()
    def the_queues_are_as_the_model(self) -> None:
        for engine in (self.engine, self.engine.recovered()):
            for name, messages in self.queues.items():
                queue = engine.state.queues[name]
                assert conserved(queue)
                assert queue.next_sequence == len(messages)
                block = queue.blocks.get(0)
                if block is None:
                    continue
                everything = slice(0, block.filled)
                assert block.state[everything].tolist() == [message.state for message in messages]
                assert np.broadcast_to(block.outcome.get(everything), len(messages)).tolist() == [m.outcome for m in messages]
                assert np.broadcast_to(block.attempts.get(everything), len(messages)).tolist() == [m.attempts for m in messages]

    @invariant()
    def what_was_posted_is_staged(self) -> None:
        staged = sum(part.count for stage in self.engine.state.stages.values() for part in stage.parts)
        assert staged == sum(len(work.posted) for work in self.open.values())


def of(rows: list[int]) -> RowSet:
    return RowSet.of_sequences(np.array(rows, np.int64))


TestTransactions = Machine.TestCase
TestTransactions.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
