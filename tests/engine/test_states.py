"""Only the table of transitions changes states; other transitions are errors that change nothing. The core has no I/O."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock.broker_core.engine
from penstock.broker_core import errors
from penstock.broker_core.engine import apply, decide
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import events as e
from penstock.broker_core.engine.columns.attributes import NO_ATTRIBUTES, Attributes, Coded
from penstock.broker_core.engine.columns.limits import EXPIRY_PERIOD
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import RETURN_COUNTS_ATTEMPT, TRANSITIONS, Cause, Outcome, State, Verb
from penstock.broker_core.engine.decide.decision import check_rows
from penstock.broker_core.engine.events import codec
from penstock.broker_core.engine.model.queue import Queue

from .conservation import conserved, counted
from .harness import Engine

ENGINE = Path(penstock.broker_core.engine.__file__).parent


# For each verb, options of queue `q` and a command that applies the verb to message 0.
FIRST, DELAY, TTL = RowSet.single(0), 100, 10  # seconds; a delayed message expires before it is due
KEY = Attributes(key=Coded(["k"], np.array([1])))
VERBS: dict[Verb, tuple[dict[str, Any], Callable[[Engine, int], Any]]] = {
    Verb.DUE: ({}, lambda engine, holder: passes(engine, DELAY)),
    Verb.ACQUIRE: ({}, lambda engine, holder: acquires(engine)),
    Verb.SETTLE: ({}, lambda engine, holder: engine.run(c.Settle("q", holder, FIRST))),
    Verb.RETURN: ({}, lambda engine, holder: engine.run(c.Release("q", holder, FIRST))),
    Verb.PURGE: ({}, lambda engine, holder: engine.run(c.Purge("q"))),
    Verb.EXPIRE: ({"messageTtl": 1000 * TTL}, lambda engine, holder: (passes(engine, TTL), acquires(engine))),
    Verb.REPLACE: ({"key": "subject"}, lambda engine, holder: engine.run(c.Enqueue("q", 1, 1, attributes=KEY))),
    Verb.REDRIVE: ({"deadLetterQueue": "gone"}, lambda engine, holder: engine.run(c.Redrive("q"))),
    Verb.MOVE: ({}, lambda engine, holder: engine.run(c.Move("q", "other"))),
    Verb.DEAD_LETTER: (
        {"messageTtl": 1000 * TTL, "expired": "deadLetter", "deadLetterQueue": "other"},
        lambda engine, holder: (
            passes(engine, TTL),
            acquires(engine),
            engine.run(c.Settle("q", holder, FIRST, Outcome.REJECTED)),
        ),
    ),
    Verb.DROP: ({"overflow": "ring", "maxMessages": 1}, lambda engine, holder: engine.run(c.Enqueue("q", 1, 1))),
    # The second step of a return: no command does it alone.
    Verb.DEFER: ({}, lambda engine, holder: engine.run(c.Release("q", holder, FIRST, Cause.DEFERRED))),
    Verb.DELAY: ({}, lambda engine, holder: happens(engine, e.Delayed("q", FIRST, engine.wall // 1000 + 1000, engine.wall))),
}


def acquires(engine: Engine) -> None:
    """Acquire the message, or ask for it if it is deferred."""
    if engine.state.queues["q"].counts[State.DEFERRED]:
        engine.run(c.AcquireDeferred("q", engine.run(c.Subscribe("q", by_number=True)), FIRST))
    else:
        engine.run(c.Acquire("q", engine.run(c.Subscribe("q")), 1))


def happens(engine: Engine, event: e.Event) -> None:
    position = 8 * (len(engine.log) + 1)
    engine.log.append((codec.encode(event), position))
    apply(engine.state, event, position)


def passes(engine: Engine, seconds: int) -> None:
    engine.pass_time(seconds + EXPIRY_PERIOD / 1000)
    engine.run(c.Tick())


def brought_to(state: State, verb: Verb) -> tuple[Engine, int]:
    """Create an engine whose queue `q` has one message in this state; return it and the link that may hold the message."""
    options, _ = VERBS[verb]
    kind = "lastvalue" if verb is Verb.REPLACE else "fifo"
    engine = Engine()
    engine.run(c.DeclareQueue("other"), c.DeclareQueue("q", kind, options))
    now = engine.wall // 1000
    expiry = np.array([now + 1000 * TTL]) if "messageTtl" in options else None
    retry = state is State.DELAYED and verb is Verb.REPLACE  # a message that its sender delayed is not replaced before it is due
    due = np.array([now + 1000 * DELAY]) if state is State.DELAYED and not retry else None
    engine.run(c.Enqueue("q", 1, 1, attributes=replace(KEY if verb is Verb.REPLACE else NO_ATTRIBUTES, expiry=expiry, due=due)))
    holder: int = engine.run(c.Subscribe("q"))
    if state in (State.ACQUIRED, State.ARCHIVED, State.DEFERRED) or retry:
        engine.run(c.Acquire("q", holder, 1))
    if state is State.ARCHIVED:
        engine.run(c.Settle("q", holder, FIRST, Outcome.REJECTED))  # without its dead-letter queue it stays
    if state is State.DEFERRED:
        engine.run(c.Release("q", holder, FIRST, Cause.DEFERRED))
    if retry:
        engine.run(c.Release("q", holder, FIRST, Cause.MODIFIED, retry=c.Retry(after=1000 * DELAY)))
    assert engine.state.queues["q"].blocks[0].state[0] == state
    return engine, holder


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("verb", Verb)
def test_commands_do_to_a_message_what_the_table_says_and_nothing_else(state: State, verb: Verb) -> None:
    engine, holder = brought_to(state, verb)
    queue = engine.state.queues["q"]
    before = outcome_of(queue)
    # Commands that name messages are refused; others skip messages in another state.
    named = verb in (Verb.SETTLE, Verb.RETURN, Verb.DEFER, Verb.DEAD_LETTER) and state is not State.ACQUIRED
    with pytest.raises(errors.IllegalTransition) if named else nullcontext():
        VERBS[verb][1](engine, holder)
    moves = (state, verb) in TRANSITIONS
    expected = TRANSITIONS[state, verb] if moves else state
    assert queue.blocks[0].state[0] == expected
    assert outcome_of(queue) == (OUTCOMES.get(verb, Outcome.NONE) if moves else before)
    assert conserved(queue)
    again = engine.recovered().state.queues["q"]
    assert (again.blocks[0].state[0], outcome_of(again)) == (expected, outcome_of(queue))


def outcome_of(queue: Queue) -> int:
    return int(np.asarray(queue.blocks[0].outcome.get(np.array([0]))).reshape(-1)[0])


OUTCOMES = {
    Verb.SETTLE: Outcome.ACCEPTED,
    Verb.PURGE: Outcome.PURGED,
    Verb.EXPIRE: Outcome.EXPIRED,
    Verb.REPLACE: Outcome.REPLACED,
    Verb.MOVE: Outcome.MOVED,
    Verb.DEAD_LETTER: Outcome.DEAD_LETTERED,
    Verb.DROP: Outcome.DROPPED,
}


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("verb", Verb)
def test_rows_move_as_the_table_says_and_else_there_is_an_error_that_changes_nothing(state: State, verb: Verb) -> None:
    """Rows in several states move together or not at all."""
    engine, _ = brought_to(state, Verb.PURGE)
    engine.run(c.Enqueue("q", 2, 1))
    queue = engine.state.queues["q"]
    block = queue.blocks[0]
    for rows in (slice(0, 1), np.array([0]), slice(0, 3), np.array([0, 2])):
        before, counts = block.state.copy(), list(queue.counts)
        sources = {State(code) for code in block.state[rows]}
        if all((source, verb) in TRANSITIONS for source in sources):
            queue.move(block, rows, verb)
            expected = before.copy()
            expected[rows] = [TRANSITIONS[State(code), verb] for code in before[rows]]
            assert block.state.tolist() == expected.tolist()
            assert counted(queue)
            break
        with pytest.raises(errors.IllegalTransition, match=f"{verb.name.lower()} .*{State(before[0]).name}"):
            queue.move(block, rows, verb)
        with pytest.raises(errors.IllegalTransition, match=State(before[0]).name):
            check_rows(queue, RowSet.of([(0, rows)]), verb)
        assert block.state.tolist() == before.tolist()
        assert queue.counts == counts


STATES = {state.name for state in State}


@pytest.mark.parametrize("path", sorted((ENGINE / "events").glob("*.py")), ids=lambda p: p.stem)
def test_what_applies_events_names_no_state(path: Path) -> None:
    """An event names a verb. The table names the states before and after."""
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    assert not names & {"State", *STATES}


def test_every_cause_says_whether_the_attempt_counts() -> None:
    assert set(RETURN_COUNTS_ATTEMPT) == set(Cause)


def test_rows_that_are_not_there_are_refused() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 3, 1))
    holder = engine.run(c.Subscribe("q"))
    for rows in (RowSet.range(2, 5), RowSet.single(99_999), RowSet.range(0, 70_000)):
        before = engine.persisted()
        with pytest.raises(errors.IllegalTransition):
            engine.run(c.Settle("q", holder, rows))
        assert engine.persisted() == before


def test_a_rejected_message_keeps_its_error_in_the_archive() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 2, 1))
    holder = engine.run(c.Subscribe("q"))
    engine.run(c.Acquire("q", holder, 2))
    engine.run(
        c.Settle("q", holder, RowSet.single(1), penstock.broker_core.engine.columns.states.Outcome.REJECTED, "no such customer")
    )
    for life in (engine, engine.recovered(), engine.from_snapshot()):
        assert life.state.queues["q"].blocks[0].errors == {1: "no such customer"}


def test_what_the_reply_to_a_sender_waits_for_follows_the_queue_and_then_the_header() -> None:
    """Q11: with durability=header only durable messages are on disk before the reply to their sender."""
    engine = Engine()
    engine.run(c.DeclareQueue("all"), c.DeclareQueue("header", options={"durability": "header"}))

    def waits(queue: str, durable: bool) -> bool:
        return decide(engine.state, c.Enqueue(queue, 1, 1, durable=durable), c.Now(0, 0)).waits

    assert [waits("all", True), waits("all", False), waits("header", True), waits("header", False)] == [True, True, True, False]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"durabilty": "all"}, "durabilty.*durability"),
        ({"durability": "some"}, "durability.*all, header"),
        ({"durability": 1}, "1"),
    ],
)
def test_a_wrong_queue_option_is_refused_by_name_and_changes_nothing(options: dict[str, object], named: str) -> None:
    engine = Engine()
    with pytest.raises(errors.InvalidRequest, match=named):
        engine.run(c.DeclareQueue("q", options=options))
    assert not engine.state.queues


def test_declaring_the_same_again_changes_nothing_and_something_else_is_refused() -> None:
    engine = Engine()
    assert engine.run(c.DeclareQueue("q")) is True
    assert engine.run(c.DeclareQueue("q", options={"durability": "all"})) is False
    with pytest.raises(errors.AlreadyExists):
        engine.run(c.DeclareQueue("q", options={"durability": "header"}))
    assert len(engine.log) == 1


def test_a_lease_keeps_its_timeout_whichever_call_takes_it_up() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 4, 1))
    epoch, batch = engine.advance("L", epoch=None, finished=0, messages=2, timeout=7)
    epoch, _ = engine.plan("L", epoch=None, after=0, batch=batch)  # a restarted query plans first
    assert engine.state.leases["L"].timeout == 7
    engine.read("L", epoch=epoch, batch=batch)
    events = len(engine.log)
    assert engine.advance("L", epoch=epoch, finished=0, fresh=False, timeout=7) == (epoch, batch)
    assert len(engine.log) == events  # no change, no event
    assert engine.advance("L", epoch=epoch, finished=0, fresh=False, timeout=9) == (epoch, batch)
    assert engine.state.leases["L"].timeout == 9  # the option changed between two runs
    assert engine.recovered().state.leases["L"].timeout == 9


def test_time_never_runs_backwards() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 1, 1))
    later = engine.state.time
    engine.wall -= 3_600_000_000
    engine.run(c.Enqueue("q", 1, 1))
    assert engine.recovered().state.queues["q"].blocks[0].runs.time.array().tolist() == [later, later]


@pytest.mark.parametrize(
    "event",
    [
        e.Enqueued("q", 5, 3, np.array([1, 2, 3], np.uint16), 17),
        e.Acquired("q", 2, RowSet.range(3, 90_000), "lease", 4),
        e.HoldersLost({"a": RowSet.single(1), "b": RowSet.of([(2, np.arange(0, 60_000, 2))])}, 4),
        e.Published(["s1", "s2"], c.PublishKey("stream", "id", 3), 9),
        e.QueueDeclared("ö/", "fifo", {"a": {"b": 1}}),
    ],
    ids=lambda event: event.kind,
)
def test_events_survive_the_journal(event: e.Event) -> None:
    back = codec.decode(codec.encode(event))
    assert type(back) is type(event)
    for name in event.__dataclass_fields__:
        assert np.all(getattr(back, name) == getattr(event, name)), name


def test_an_event_of_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(errors.DamagedJournal, match=r"moon\.rise"):
        codec.decode(b'{"k": "moon.rise"}')
    text = r"holds an event 'lease.deleted' with the field 'moon', which this Penstock \S+ does not know.*A downgrade is refused"
    with pytest.raises(errors.DamagedJournal, match=text):
        codec.decode(b'{"k": "together", "parts": {"events": [{"k": "lease.deleted", "lease": "a", "moon": {"rows": {}}}]}}')
    with pytest.raises(errors.DamagedJournal, match=r"holds an event 'published' with a key of 4 parts, which this Penstock"):
        codec.decode(b'{"k": "published", "time": 1, "key": ["txn", "a", 1, "moon"]}')


FORBIDDEN = {
    "os",
    "io",
    "time",
    "datetime",
    "threading",
    "asyncio",
    "random",
    "secrets",
    "uuid",
    "socket",
    "pathlib",
    "pyarrow",
    "mmap",
}


@pytest.mark.parametrize("path", sorted(ENGINE.rglob("*.py")), ids=lambda p: p.stem)
def test_the_core_imports_no_io_clock_thread_or_randomness(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level}
    assert not {name.split(".")[0] for name in names} & FORBIDDEN
    assert not any(isinstance(node, ast.Name) and node.id == "open" for node in ast.walk(tree))
