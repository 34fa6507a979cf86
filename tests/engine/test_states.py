"""The table of transitions is the only way; what it lacks is a named error that changes nothing. The core stays pure."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import penstock.broker_core.engine
from penstock.broker_core import errors
from penstock.broker_core.engine import decide
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import ILLEGAL, NEXT_STATE, RETURN_COUNTS_ATTEMPT, TRANSITIONS, Cause, State, Verb
from penstock.broker_core.engine.commands import queues as c
from penstock.broker_core.engine.decide.queues import check_rows
from penstock.broker_core.engine.events import codec as journaling
from penstock.broker_core.engine.events import queues as e

from .harness import Engine


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("verb", Verb)
def test_what_the_table_lacks_is_refused(state: State, verb: Verb) -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 3, 1))
    queue = engine.state.queues["q"]
    queue.move(queue.blocks[0], slice(1, 2), State.AVAILABLE, state)
    rows = RowSet.single(1)
    if (state, verb) in TRANSITIONS:
        check_rows(queue, rows, verb)
        assert NEXT_STATE[verb, state] == TRANSITIONS[state, verb]
    else:
        assert NEXT_STATE[verb, state] == ILLEGAL
        with pytest.raises(errors.IllegalTransition, match=state.name):
            check_rows(queue, rows, verb)


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
    """Q11: with durability=header only a durable message is on disk before its sender is told."""
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
    assert len(engine.log) == events  # nothing new, nothing journaled
    assert engine.advance("L", epoch=epoch, finished=0, fresh=False, timeout=9) == (epoch, batch)
    assert engine.state.leases["L"].timeout == 9  # the option was changed between two runs
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
    back = journaling.decode(journaling.encode(event))
    assert type(back) is type(event)
    for name in event.__dataclass_fields__:
        assert np.all(getattr(back, name) == getattr(event, name)), name


def test_an_event_of_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(errors.DamagedJournal, match=r"moon\.rise"):
        journaling.decode(b'{"k": "moon.rise"}')


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


@pytest.mark.parametrize("path", sorted(Path(penstock.broker_core.engine.__file__).parent.rglob("*.py")), ids=lambda p: p.stem)
def test_the_core_imports_no_io_clock_thread_or_randomness(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in names} & FORBIDDEN
    assert not any(isinstance(node, ast.Name) and node.id == "open" for node in ast.walk(tree))
