"""Q13 Q20 Q21: redrives, moves and copies, and alterations and pauses of queues in use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.states import Outcome, State
from penstock.broker_core.engine.model import retention

from .conservation import lowest_live_position
from .ends import DLQ, cell, fate, make, queue, survives, taken
from .harness import Engine


# Redrive
def test_dead_letters_go_back_to_where_they_came_from() -> None:
    """Q13: each to its first queue, also through several dead-letter queues, as ordinary messages, in order, within limits."""
    engine = make(3)
    engine.run(c.DeclareQueue("r", options=DLQ), c.Enqueue("r", 2, 7), c.AlterQueue("dead", {"deadLetterQueue": "deader"}))
    engine.run(c.DeclareQueue("deader"))
    for name, count in (("q", 3), ("r", 2)):
        engine.run(c.Settle(name, taken(engine, name=name), RowSet.range(0, count), Outcome.REJECTED, "no"))
    engine.run(c.Settle("dead", taken(engine, 1, "dead"), RowSet.single(0), Outcome.REJECTED, "no again"))
    assert engine.run(c.Redrive("dead", messages=3)) == (3, 4, 0)
    assert (queue(engine).counts[State.AVAILABLE], queue(engine, "r").counts[State.AVAILABLE]) == (2, 1)
    assert engine.run(c.Redrive("dead", messages=3, first=4)) == (1, None, 0)
    assert engine.run(c.Redrive("deader")) == (1, None, 0)
    assert (queue(engine).counts[State.AVAILABLE], queue(engine, "r").counts[State.AVAILABLE]) == (3, 2)
    locations = queue(engine).blocks[0].locations(slice(3, 6))
    assert list(zip(locations.payload_row.tolist(), locations.rows.tolist(), strict=True)) == [(1, 2), (0, 1)]
    assert [cell(engine, row, name) for row in (3, 4, 5) for name in ("origin", "reason", "came_from", "attempts")] == [0] * 12
    assert [fate(engine, row, "dead") for row in range(5)] == ["dead_lettered", "moved", "moved", "moved", "moved"]
    survives(engine)


def test_only_those_named_go_back() -> None:
    """Q13 U5: ranges in any order, which may overlap. A repetition moves nothing."""
    engine = make(9)
    engine.run(c.Settle("q", taken(engine), RowSet.range(0, 9), Outcome.REJECTED))
    command = c.Redrive("dead", ranges=(5, 6, 2, 2, 5, 5, 8, 2**62 - 1))
    assert engine.run(command) == (4, None, 0)
    locations = queue(engine).blocks[0].locations(slice(9, 13))
    assert [row + i for row, rows in zip(locations.payload_row, locations.rows, strict=True) for i in range(rows)] == [2, 5, 6, 8]
    assert [engine.run(again) for again in (command, c.Redrive("dead", ranges=()))] == [(0, None, 0)] * 2
    assert engine.run(c.Redrive("dead", messages=2, ranges=(0, 2**62 - 1))) == (2, 2, 0)
    survives(engine)


@pytest.mark.parametrize("limits", [{"maxBytes": 100}, {"maxBytes": 100, "maxMessages": 2}])
def test_a_message_that_is_too_large_for_the_target_keeps_back_no_other(limits: dict[str, int]) -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("from"), c.DeclareQueue("to", options=limits), c.Enqueue("from", 4, np.array([1000, 1, 101, 2])))
    assert engine.run(c.Move("from", "to")) == c.Shifted(2, None, 2)
    assert engine.state.queues["to"].bytes == 3
    with pytest.raises(errors.ResourceLimit, match="full"):
        engine.run(c.Move("from", "to"))


def test_a_dead_letter_whose_queue_is_gone_or_full_stays() -> None:
    """Q13."""
    engine = make(3, maxMessages=1, overflow="reject")
    assert queue(engine).next_sequence == 1
    engine.run(c.Settle("q", taken(engine, 1), RowSet.single(0), Outcome.REJECTED), c.Enqueue("q", 1, 1))
    assert engine.run(c.Redrive("dead")) == (0, None, 1)
    engine.run(c.DeleteQueue("q"))
    assert engine.run(c.Redrive("dead")) == (0, None, 1)
    engine.run(c.DeclareQueue("q"))
    assert engine.run(c.Redrive("dead")) == (1, None, 0)
    survives(engine)


def test_only_the_newest_value_of_a_key_goes_back() -> None:
    """Q13 Q17: a dead letter never replaces a newer value."""
    engine = Engine()
    engine.run(c.DeclareQueue("dead"), c.DeclareQueue("q", "lastvalue", {"key": "subject", **DLQ}))
    key = Attributes(key=Coded(["k"], np.array([1])))
    for _ in range(2):
        engine.run(c.Enqueue("q", 1, 1, attributes=key))
        sequence = queue(engine).next_sequence - 1
        engine.run(c.Settle("q", taken(engine), RowSet.single(sequence), Outcome.REJECTED))
    assert queue(engine, "dead").live == 2
    assert engine.run(c.Redrive("dead")) == (1, None, 1)
    assert cell(engine, 0, "key")
    assert queue(engine).live == 1
    assert queue(engine, "dead").live == 1
    engine.run(c.Settle("q", taken(engine), RowSet.single(2), Outcome.REJECTED), c.Enqueue("q", 1, 1, attributes=key))
    assert engine.run(c.Redrive("dead")) == (0, None, 2)
    survives(engine)


@pytest.mark.parametrize("command", [c.Move("other", "q"), c.Copy("other", "q"), c.Redrive("dead")])
def test_no_operator_brings_a_last_value_queue_more_keys_than_it_keeps(command: c.Command[Any]) -> None:
    """Q13 Q17 Q20: `maxKeys` applies to moved, copied and redriven messages; known keys are accepted."""
    engine, keys = Engine(), Attributes(key=Coded(["a", "b", "c"], np.array([1, 2, 0, 3])))
    engine.run(c.DeclareQueue("dead"), c.DeclareQueue("q", "lastvalue", {"key": "subject", **DLQ}))
    engine.run(c.DeclareQueue("other", "lastvalue", {"key": "subject"}), c.Enqueue("other", 4, 1, attributes=keys))
    engine.run(c.Enqueue("q", 4, 1, attributes=keys))
    engine.run(c.Settle("q", taken(engine), RowSet.range(0, 4), Outcome.REJECTED), c.AlterQueue("q", {"maxKeys": 2}))
    engine.run(c.Enqueue("q", 1, 1, attributes=Attributes(key=Coded(["b"], np.array([1])))), c.Purge("q"))
    assert engine.run(command) == (3, None, 1)
    assert {name for name, _ in queue(engine).keys.names()} == {"a", "b"}
    assert queue(engine).live == 3
    survives(engine)


def test_a_redrive_of_what_retention_took_is_nothing() -> None:
    """Q13 Q24: only messages with a retained payload come back."""
    engine = make(2, deadLetterQueue="nowhere")
    engine.run(c.Settle("q", taken(engine), RowSet.range(0, 2), Outcome.REJECTED))
    engine.retain(engine.log[-1][1] + 8)
    assert engine.state.dropped
    assert engine.run(c.Redrive("q")) == (0, None, 0)


@pytest.fixture
def done_with() -> Engine:
    """Build two full blocks without live messages; each has a dead letter that stayed, because no other queue could take it."""
    engine = make(0, deadLetterQueue="nowhere")
    engine.run(c.Enqueue("q", 2 * BLOCK_ROWS, 1))
    holder = taken(engine, 2 * BLOCK_ROWS)
    letters = RowSet.of_sequences(LETTERS)
    engine.run(c.Settle("q", holder, letters, Outcome.REJECTED, "why"))
    engine.run(c.Settle("q", holder, RowSet.range(0, 2 * BLOCK_ROWS).minus(letters)))
    return engine


LETTERS = np.array([5, BLOCK_ROWS + 7])


def archive(engine: Engine) -> None:
    """Pack blocks as housekeeping does."""
    for name, number in list(engine.state.finished.leaving):
        engine.run(c.PackBlock(name, number))
    assert engine.state.finished.leaving == []


def test_a_block_stays_in_memory_for_its_dead_letters(done_with: Engine) -> None:
    """Q13: they can be redriven, however many messages followed. Afterwards the block leaves memory as any other."""
    archive(done_with)
    for life in (done_with.from_snapshot(), done_with.recovered(), done_with):
        archive(life)
        assert sorted(queue(life).blocks) == [0, 1]
        assert life.run(c.Stat("q"))[0]["stayed"] == 2
    assert done_with.run(c.Redrive("q")) == (2, None, 0)
    holder = taken(survives(done_with))
    done_with.run(c.Settle("q", holder, RowSet.of_sequences(LETTERS)))
    archive(done_with)
    assert (list(queue(done_with).blocks), sorted(queue(done_with).packed), queue(done_with).stayed) == ([], [0, 1], 0)
    survives(done_with)


def test_so_many_blocks_stay_for_dead_letters(done_with: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_KEPT_BLOCKS", 1)
    again = done_with.recovered()
    archive(again)
    assert (list(queue(again).blocks), sorted(queue(again).packed)) == ([1], [0])
    assert again.run(c.Redrive("q")) == (1, None, 0)
    survives(again)


def test_what_retention_took_keeps_no_block_in_memory(done_with: Engine) -> None:
    done_with.retain(done_with.log[-1][1] + 8)
    archive(done_with)
    assert not queue(done_with).blocks
    survives(done_with)


def test_a_queue_that_is_gone_keeps_nothing_in_memory(done_with: Engine) -> None:
    done_with.run(c.DeleteQueue("q"), c.DeclareQueue("q"))
    done_with.retain(done_with.log[-1][1] + 8)
    assert done_with.state.finished.leaving == []


# Move and copy
def test_move_and_copy_are_by_reference_and_one_event() -> None:
    """Q20: only AVAILABLE messages, in order. A copied message stays in its queue."""
    engine = make(6)
    engine.run(c.DeclareQueue("t"))
    taken(engine, 1)
    before = len(engine.log)
    assert engine.run(c.Move("q", "t", messages=2)) == (2, 3, 0)
    assert engine.run(c.Copy("q", "t", first=3, last=4)) == (2, None, 0)
    assert len(engine.log) == before + 2
    assert [fate(engine, row) for row in range(6)] == ["acquired", "moved", "moved", "available", "available", "available"]
    assert queue(engine, "t").blocks[0].locations(slice(0, 4)).payload_row.tolist() == [1, 3]
    assert queue(engine, "t").bytes == 11 + 12 + 13 + 14
    assert queue(engine, "t").origins == []
    survives(engine)
    assert engine.run(c.Move("q", "t")) == (3, None, 0)
    assert engine.run(c.Move("q", "t")) == (0, None, 0)
    survives(engine)


def test_what_waits_for_its_time_keeps_it_on_the_way() -> None:
    """Q18 Q20: moved and copied in order with the others, and due at the same time. A past time makes it an ordinary message."""
    now = Engine().wall // 1000
    engine = make(5, attributes=Attributes(due=np.array([0, now + 3_000, now + 5_000, 0, now + 60_000])))
    engine.run(c.StartBroker(), c.DeclareQueue("t"), c.DeclareQueue("u"))
    taken(engine, 1)
    engine.pass_time(3)
    engine.run(c.Tick())
    assert engine.run(c.Copy("q", "u", messages=3)) == (3, 4, 0)
    assert engine.run(c.Move("q", "t")) == (4, None, 0)
    assert [fate(engine, row) for row in range(5)] == ["acquired", *["moved"] * 4]
    assert [fate(engine, row, "t") for row in range(4)] == ["available", "delayed", "available", "delayed"]
    assert [fate(engine, row, "u") for row in range(3)] == ["available", "delayed", "available"]
    later = survives(engine).recovered()
    later.wall = engine.wall
    later.pass_time(2)
    later.run(c.StartBroker(), c.Tick())
    assert [fate(later, row, "t") for row in range(4)] == [*["available"] * 3, "delayed"]
    assert queue(later, "u").counts[State.AVAILABLE] == 3
    survives(later)


def test_a_delayed_message_that_dies_is_a_dead_letter_at_once() -> None:
    """Q13 Q18"""
    now = Engine().wall // 1000
    engine = make(1, attributes=Attributes(due=np.array([now + 60_000]), expiry=np.array([now + 1_000])), expired="deadLetter")
    engine.pass_time(3)
    engine.run(c.Tick())
    assert fate(engine, 0, "dead") == "available"
    survives(engine)


def test_a_move_into_what_cannot_take_it_is_refused_and_changes_nothing() -> None:
    engine = make(2)
    engine.run(c.DeclareQueue("small", options={"maxMessages": 1, "overflow": "reject"}))
    engine.run(c.DeclareQueue("last", "lastvalue", {"key": "subject"}))
    assert engine.run(c.Move("q", "small")) == (1, None, 1)
    before = engine.persisted()
    for target, error in (
        ("small", errors.ResourceLimit),
        ("last", errors.InvalidRequest),
        ("q", errors.InvalidRequest),
        ("nowhere", errors.NotFound),
    ):
        for command in (c.Move("q", target), c.Copy("q", target)):
            with pytest.raises(error):
                engine.run(command)
    assert engine.persisted() == before


def test_a_moved_dead_letter_still_knows_where_it_came_from() -> None:
    engine = make(1)
    engine.run(c.DeclareQueue("t"), c.Settle("q", taken(engine), RowSet.single(0), Outcome.REJECTED, "why"), c.Move("dead", "t"))
    assert queue(engine, "t").origins == ["q"]
    assert queue(engine, "t").blocks[0].errors == {0: "why"}
    assert engine.run(c.Redrive("t")) == (1, None, 0)
    assert fate(engine, 1) == "available"
    survives(engine)


def test_a_dead_letter_that_is_at_home_already_is_not_redriven() -> None:
    engine = make(1)
    engine.run(c.Settle("q", taken(engine), RowSet.single(0), Outcome.REJECTED), c.Move("dead", "q"))
    assert engine.run(c.Redrive("q")) == (0, None, 1)
    assert queue(engine).next_sequence == 2
    survives(engine)


def test_a_purge_is_bounded_and_ends_where_it_is_told() -> None:
    """Q20."""
    engine = make(6)
    assert [engine.run(c.Purge("q", 2, end=5)) for _ in range(4)] == [2, 2, 1, 0]
    assert fate(engine, 5) == "available"


def test_a_payload_lives_as_long_as_any_queue_refers_to_it() -> None:
    """Q20 Q24: retention counts references; an archived message counts by its highest one."""
    engine = make(1)
    oldest = lowest_live_position(engine.state)
    engine.run(c.Settle("q", taken(engine), RowSet.single(0), Outcome.REJECTED))
    engine.run(c.Enqueue("dead", 1, 1))
    assert lowest_live_position(engine.state) == oldest
    engine.retain(engine.log[-1][1])
    assert not engine.state.dropped  # the dead letter needs the payload
    engine.run(c.DeleteQueue("q"))
    assert lowest_live_position(engine.recovered().state) == oldest
    engine.run(c.Settle("dead", taken(engine, 1, "dead"), RowSet.single(0)))
    following = lowest_live_position(engine.state)
    engine.retain(following or 0)
    assert engine.state.dropped.pairs() == [[0, following]]
    assert (following or 0) > (oldest or 0)


# Alterations and pauses
def test_a_living_queue_is_altered() -> None:
    """Q21: other options are refused by name, with the alterable ones, and nothing is changed."""
    engine = make(1)
    assert engine.run(c.AlterQueue("q", {"maxAttempts": "1", "deadLetterQueue": "dead"})) is True
    assert engine.run(c.AlterQueue("q", {"maxAttempts": 1})) is False
    assert queue(engine).rules.max_attempts == 1
    engine.run(c.Unsubscribe("q", taken(engine)))
    assert fate(engine) == "dead_lettered"
    assert engine.run(c.AlterQueue("q", {"maxAttempts": None})) is True
    assert "maxAttempts" not in queue(engine).options
    before = survives(engine).persisted()
    for options, names in (
        ({"groups": "held"}, ["groups", "none", "maxAttempts"]),
        ({"maxAttempts": 5, "lifetime": "link"}, ["lifetime"]),
        ({"colour": "red"}, ["colour", "maxAttempts"]),
        ({"rejected": "sometimes"}, ["rejected", "archive"]),
    ):
        with pytest.raises(errors.InvalidRequest) as refused:
            engine.run(c.AlterQueue("q", options))
        assert all(name in str(refused.value) for name in names)
    assert engine.persisted() == before


def test_a_paused_queue_delivers_nothing_until_it_is_resumed() -> None:
    """Q21: sends continue, and links find the messages after the pause. A restart keeps the pause."""
    engine = make(2)
    holder = taken(engine, 1)
    assert engine.run(c.PauseQueue("q")) is True
    assert engine.run(c.PauseQueue("q")) is False
    engine.run(c.Enqueue("q", 1, 1))
    assert not engine.run(c.Acquire("q", holder, 9)).rows
    assert engine.advance("L", epoch=None, finished=0)[1] == 0
    again = survives(engine).recovered()
    assert again.run(c.Stat("q"))[0]["paused"]
    assert not again.run(c.Acquire("q", again.run(c.Subscribe("q")), 9)).rows
    assert engine.run(c.PauseQueue("q", paused=False)) is True
    assert engine.run(c.Acquire("q", holder, 9)).rows == RowSet.range(1, 3)
