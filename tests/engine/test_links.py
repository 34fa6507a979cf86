"""C8 Q6 Q10 Q12: outcomes of links in numbers that a random history does not reach, and limits."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import decode_message
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.types import Symbol
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import events as e
from penstock.broker_core.engine.columns.blocks import Block
from penstock.broker_core.engine.columns.limits import MAX_ANNOTATIONS, MAX_EXCLUDED, MAX_OVERLAYS
from penstock.broker_core.engine.columns.packing import unpack
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.states import RETURN_COUNTS_ATTEMPT, Cause, Outcome
from penstock.broker_core.engine.events import codec
from penstock.broker_core.engine.model.exclusions import Exclusions
from penstock.broker_core.messages.encoding import annotation
from penstock.broker_core.reading.slices import names_of, slice_of

from .conservation import conserved
from .harness import Engine


def engine_with(count: int, links: int = 1) -> Engine:
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", count, 1), *[c.Subscribe("q")] * links)
    return engine


def took(engine: Engine, holder: int, count: int) -> list[int]:
    return list(engine.run(c.Acquire("q", holder, count)).rows.sequences().tolist())


def test_which_ways_back_count_as_an_attempt() -> None:
    """C8 Q10: one table. A delivery counts if a consumer may have worked on the message. The broker's end never counts."""
    counted = {cause.name for cause, counts in RETURN_COUNTS_ATTEMPT.items() if counts}
    by_default = {"MODIFIED_BY_DEFAULT", "REJECTED_BY_DEFAULT"}
    assert counted - by_default == {
        "MODIFIED",
        "DEFERRED",
        "LOCK_TIMED_OUT",
        "LINK_LOST",
        "ROLLBACK",
        "LEASE_READ",
        "REJECTED",
    }
    assert by_default < counted


def test_what_a_link_excluded_is_passed_over_without_being_looked_at_again() -> None:
    """Q2 Q12: the link's position moves to the end of the queue, and only a return moves it back."""
    engine = engine_with(3000, links=2)
    assert took(engine, 1, 1000) == list(range(1000))
    assert took(engine, 3, 2000) == list(range(1000, 3000))
    engine.run(c.Release("q", 1, RowSet.range(0, 1000), exclude=True))
    link = engine.state.queues["q"].consumers.subscriptions[1]
    assert took(engine, 1, 10) == []
    assert (link.positions, link.epochs) == ([3000], [engine.state.queues["q"].returns[0].epoch])
    engine.run(c.Enqueue("q", 2, 1))
    assert took(engine, 1, 10) == [3000, 3001]
    assert took(engine, 3, 3) == [0, 1, 2]  # other links are not delayed
    engine.run(c.Release("q", 3, RowSet.range(0, 3)), c.Release("q", 1, RowSet.single(3000)))
    assert took(engine, 1, 10) == [3000]
    assert took(engine, 3, 2) == [0, 1]


def test_a_byte_limit_and_a_credit_count_what_is_offered_and_not_what_is_excluded() -> None:
    engine = engine_with(100)
    took(engine, 1, 50)
    engine.run(c.Release("q", 1, RowSet.of_sequences(np.arange(0, 50, 2)), exclude=True))
    engine.run(c.Release("q", 1, RowSet.of_sequences(np.arange(1, 50, 2))))
    assert engine.run(c.Acquire("q", 1, 99, 3)).rows.sequences().tolist() == [1, 3, 5]
    assert took(engine, 1, 23) == [*range(7, 50, 2), 50]


def test_excluded_messages_that_were_settled_make_room_for_others() -> None:
    engine = engine_with(2 * MAX_EXCLUDED, links=2)
    took(engine, 1, MAX_EXCLUDED)
    engine.run(c.Release("q", 1, RowSet.range(0, MAX_EXCLUDED), exclude=True))
    assert took(engine, 1, 2) == [MAX_EXCLUDED, MAX_EXCLUDED + 1]
    row = RowSet.single(MAX_EXCLUDED)
    before = engine.persisted()
    with pytest.raises(errors.ResourceLimit, match=f"more than {MAX_EXCLUDED}.*nothing was changed"):
        engine.run(c.Release("q", 1, row, exclude=True))
    assert engine.persisted() == before
    assert took(engine, 3, 5) == [0, 1, 2, 3, 4]
    engine.run(c.Settle("q", 3, RowSet.range(0, 5)), c.Release("q", 1, row, exclude=True))
    assert engine.state.queues["q"].consumers.subscriptions[1].excluded.count == MAX_EXCLUDED - 4
    assert took(engine, 1, 5) == list(range(MAX_EXCLUDED + 2, MAX_EXCLUDED + 7))


def test_what_every_link_refused_shows_in_stat() -> None:
    """Q12"""
    engine = engine_with(4, links=2)

    def refused() -> int:
        return int(engine.run(c.Stat("q"))[0]["refused"])

    took(engine, 1, 4)
    engine.run(c.Release("q", 1, RowSet.range(0, 3), exclude=True))
    assert refused() == 0
    took(engine, 3, 3)
    engine.run(c.Release("q", 3, RowSet.range(1, 3), Cause.MODIFIED, exclude=True))
    assert refused() == 2
    engine.run(c.Subscribe("q"))
    assert refused() == 0
    engine.run(c.Unsubscribe("q", 5), c.Unsubscribe("q", 1), c.Unsubscribe("q", 3))
    assert refused() == 0
    assert engine.run(c.Stat("q"))[0]["consumers"] == 0


def note(name: str, value: object) -> bytes:
    return encode({Symbol(name): value})


def merged(entries: Sequence[bytes]) -> Any:
    return decode_message(annotation.merged(b"", entries)).message_annotations


def test_annotations_of_any_number_of_attempts_are_kept_within_a_limit() -> None:
    engine = engine_with(2)
    engine.run(c.AlterQueue("q", {"maxAttempts": 0}))
    overlays, most = engine.state.queues["q"].blocks[0].overlays, 0

    def modify(*entries: bytes) -> None:
        for entry in entries:
            rows = engine.run(c.Acquire("q", 1, 2)).rows
            engine.run(c.Release("q", 1, rows, Cause.MODIFIED, annotations=entry))

    modify(note("first", True))
    for attempt in range(3 * MAX_OVERLAYS):
        modify(note("attempt", attempt))
        modify(note("why", "no route"))
        most = max(most, overlays.bytes)
    assert most < 2 * MAX_OVERLAYS * 100
    expected = {"first": True, "attempt": 3 * MAX_OVERLAYS - 1, "why": "no route"}
    for life in (engine, engine.recovered(), engine.from_snapshot()):
        kept = life.state.queues["q"].blocks[0].overlays
        assert [merged(kept.get(row)) for row in (0, 1)] == [expected] * 2
        assert kept.bytes == life.state.queues["q"].overlay_bytes == overlays.bytes


def test_annotations_of_one_message_are_bounded() -> None:
    engine = engine_with(1)
    engine.run(c.AlterQueue("q", {"maxAttempts": 0}))
    rows = engine.run(c.Acquire("q", 1, 1)).rows
    with pytest.raises(errors.ResourceLimit, match=f"{MAX_ANNOTATIONS} are kept: nothing was changed"):
        engine.run(c.Release("q", 1, rows, Cause.MODIFIED, annotations=b"x" * (MAX_ANNOTATIONS + 1)))
    large = "x" * (MAX_ANNOTATIONS - 20)
    for attempt in range(MAX_OVERLAYS):
        engine.run(c.Release("q", 1, rows, Cause.MODIFIED, annotations=note(f"a{attempt}", large)), c.Acquire("q", 1, 1))
    with pytest.raises(errors.ResourceLimit, match="KiB, which is the limit: nothing was changed"):
        engine.run(c.Release("q", 1, rows, Cause.MODIFIED, annotations=note("z", large)))
    assert len(merged(engine.recovered().state.queues["q"].blocks[0].overlays.get(0))) == MAX_OVERLAYS
    for attempt in range(2 * MAX_OVERLAYS):
        changed = note("a0", f"{attempt:<{len(large)}}")
        engine.run(c.Release("q", 1, rows, Cause.MODIFIED, annotations=changed), c.Acquire("q", 1, 1))


def test_equal_annotations_use_no_more_space_and_the_last_value_counts() -> None:
    engine = engine_with(2)
    engine.run(c.AlterQueue("q", {"maxAttempts": 0}))
    for entry in (b"0", b"1", b"2", b"0", b"1", b"0", b"1"):
        rows = engine.run(c.Acquire("q", 1, 2)).rows
        engine.run(c.Release("q", 1, rows, Cause.MODIFIED, annotations=entry))
    expected = {0: [b"2", b"0", b"1"], 1: [b"2", b"0", b"1"]}
    for life in (engine, engine.recovered(), engine.from_snapshot()):
        assert life.state.queues["q"].blocks[0].overlays.among(slice(0, 2)) == expected


def test_overlays_of_all_messages_of_a_queue_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["penstock.broker_core.engine.decide.links"], "MAX_OVERLAY_BYTES", 1000)
    engine = engine_with(20)
    took(engine, 1, 20)
    engine.run(c.Release("q", 1, RowSet.range(0, 10), annotations=b"12345678"))
    with pytest.raises(errors.ResourceLimit, match="nothing was changed"):
        engine.run(c.Release("q", 1, RowSet.range(10, 20), annotations=b"12345678"))
    assert engine.state.queues["q"].overlay_bytes == engine.from_snapshot().state.queues["q"].overlay_bytes == 720


@pytest.mark.parametrize("rejected", ["archive", "deadLetter", "return"])
def test_a_rejection_may_add_annotations(rejected: str) -> None:
    engine = engine_with(2)
    engine.run(c.DeclareQueue("dead"), c.AlterQueue("q", {"deadLetterQueue": "dead", "rejected": rejected}))
    took(engine, 1, 1)
    engine.run(c.Settle("q", 1, RowSet.single(0), Outcome.REJECTED, "why", b"note"))
    took(engine, 1, 2)
    held = engine.state.queues["q"].held_by(1, RowSet.range(0, 2))
    with pytest.raises(errors.ResourceLimit, match="nothing was changed"):
        engine.run(c.Settle("q", 1, held, Outcome.REJECTED, "why", b"x" * (MAX_ANNOTATIONS + 1)))
    for life in (engine, engine.recovered(), engine.from_snapshot()):
        queue = life.state.queues["dead" if rejected == "deadLetter" else "q"]
        assert queue.blocks[0].overlays.among(slice(0, 1)) == {0: [b"note"]}
        assert queue.overlay_bytes == life.from_snapshot().state.queues[queue.name].overlay_bytes > 0


def test_overlays_go_with_their_block_and_come_back_with_it() -> None:
    engine = engine_with(BLOCK_ROWS)
    took(engine, 1, BLOCK_ROWS)
    engine.run(c.Release("q", 1, RowSet.range(7, 9), annotations=b"why"))
    took(engine, 1, 2)
    engine.run(c.Settle("q", 1, RowSet.range(0, BLOCK_ROWS)), c.PackBlock("q", 0))
    queue = engine.state.queues["q"]
    assert (queue.blocks, queue.overlay_bytes) == ({}, 0)
    block = Block.restored(unpack(engine.packed[queue.packed[0].position]))
    assert slice_of(block, slice(5, 9), names_of(queue)).overlays == {2: [b"why"], 3: [b"why"]}


@pytest.mark.parametrize("rows", [slice(0, 6), np.array([0, 3, 5])], ids=["range", "scattered"])
def test_a_cut_says_who_is_not_first_and_what_was_added(rows: slice | np.ndarray) -> None:  # type: ignore[type-arg]
    engine = engine_with(6)
    assert (slice_of(engine.state.queues["q"].blocks[0], rows, names_of(engine.state.queues["q"])).returned, {}) == (0, {})
    took(engine, 1, 6)
    engine.run(c.Release("q", 1, RowSet.range(3, 5), Cause.MODIFIED_UNCOUNTED, annotations=b"a"))
    part = slice_of(engine.state.queues["q"].blocks[0], rows, names_of(engine.state.queues["q"]))
    numbers = list(range(6)) if isinstance(rows, slice) else rows.tolist()
    assert np.asarray(part.returned).tolist() == [int(n in (3, 4)) for n in numbers]
    assert part.attempts == 0
    assert part.overlays == {numbers.index(n): [b"a"] for n in (3, 4) if n in numbers}


@pytest.mark.parametrize("outcome", [o for o in Outcome if o not in (Outcome.ACCEPTED, Outcome.REJECTED)])
def test_a_default_outcome_that_settles_nothing_is_refused(outcome: Outcome) -> None:
    engine = engine_with(1)
    with pytest.raises(errors.InvalidRequest, match="accepted or rejected"):
        engine.run(c.Unsubscribe("q", 1, outcome=outcome))


def test_a_credit_of_nothing_gets_nothing_and_moves_nothing() -> None:
    engine = engine_with(3)
    assert took(engine, 1, 0) == took(engine, 1, -1) == []
    assert engine.run(c.Browse("q", 0, 0)) == c.Browsed(RowSet(), 0)
    assert took(engine, 1, 1) == [0]


COMMANDS: list[Callable[[int], c.Command[Any]]] = [
    lambda holder: c.Acquire("q", holder, 5),
    lambda holder: c.Settle("q", holder, RowSet.range(0, 2)),
    lambda holder: c.Release("q", holder, RowSet.range(0, 2), exclude=True, annotations=b"x"),
    lambda holder: c.Unsubscribe("q", holder),
    lambda holder: c.Browse("q", 0, 5),
    lambda holder: c.Subscribe("q"),
    lambda holder: c.Enqueue("q", 1, 1),
]


@pytest.mark.parametrize("again", [False, True])
def test_a_queue_that_is_deleted_under_its_links_is_not_found_and_nothing_else_breaks(again: bool) -> None:
    """With `again` it is declared again: another queue, in which the old links hold nothing."""
    engine = engine_with(5)
    engine.run(c.DeclareQueue("other"), c.Enqueue("other", 3, 1))
    took(engine, 1, 2)
    link = engine.run(c.Subscribe("other"))
    assert engine.run(c.Acquire("other", link, 2)).rows.count == 2
    with pytest.raises(errors.InUse):
        engine.run(c.DeleteQueue("q"))
    engine.run(c.DeleteQueue("q", force=True))
    if again:
        engine.run(c.DeclareQueue("q"), c.Enqueue("q", 5, 1))
        assert took(engine, engine.run(c.Subscribe("q")), 5) == [0, 1, 2, 3, 4]
    for make in COMMANDS[: 4 if again else None]:
        with pytest.raises(errors.IllegalTransition if again and "rows" in vars(make(1)) else errors.NotFound):
            engine.run(make(1))
    engine.run(c.Settle("other", link, RowSet.range(0, 2)))
    for life in (engine, engine.recovered(), engine.from_snapshot()):
        life.run(c.StartBroker(), c.Tick())
        assert all(conserved(queue) for queue in life.state.queues.values())
        assert life.run(c.Stat("other"))[0]["archived"] == 2


def test_exclusions_are_a_set() -> None:
    excluded, plain, random = Exclusions(), set[int](), np.random.default_rng(7)
    for _ in range(200):
        new = np.setdiff1d(random.integers(0, 3 * BLOCK_ROWS, 9), sorted(plain))
        excluded.add(RowSet.of_sequences(new))
        plain |= set(new.tolist())
    assert [(b << 16) + int(r) for b, rows in sorted(excluded.items()) for r in rows] == sorted(plain)
    assert excluded.count == len(plain)


class Nothing:
    """A selector that was not evaluated for any row."""

    def known(self, queue: Any, block: int) -> Any:
        return np.zeros(0, np.bool_)


@pytest.mark.parametrize("levels", [1, 3])
def test_what_another_link_has_not_passed_is_left_to_it(levels: int) -> None:
    """C2 C4: a later link acquires only rows that an earlier one has passed, level by level. A return before that link's
    position belongs to it again. A link that has ended has passed all rows."""
    engine = Engine()
    engine.run(c.DeclareQueue("q", "priority" if levels > 1 else "fifo", {"levels": levels} if levels > 1 else {}))
    first, second, third = (engine.run(c.Subscribe("q")) for _ in range(3))
    engine.run(c.Enqueue("q", 4, 1))
    assert engine.run(c.Acquire("q", third, 1)).rows.sequences().tolist() == [0]
    queue = engine.state.queues["q"]
    queue.consumers.subscriptions[first].selector = "TRUE"
    assert not engine.run(c.Acquire("q", first, 9, matching=Nothing())).rows
    places = queue.consumers.subscriptions[second].positions.copy()
    assert not engine.run(c.Acquire("q", second, 9, behind=(first,))).rows
    assert queue.consumers.subscriptions[second].positions[0] == places[0], "the rows are offered to it again"
    queue.consumers.subscriptions[first].selector = None
    assert engine.run(c.Acquire("q", first, 1)).rows.sequences().tolist() == [1]
    engine.run(c.Release("q", first, RowSet.single(1)), c.Release("q", third, RowSet.single(0)))
    assert not engine.run(c.Acquire("q", second, 9, behind=(first,))).rows
    assert engine.run(c.Acquire("q", first, 2)).rows.sequences().tolist() == [0, 1]
    engine.run(c.Release("q", first, RowSet.range(0, 2), exclude=True))
    assert not engine.run(c.Acquire("q", second, 9, behind=(first,))).rows
    assert engine.run(c.Acquire("q", first, 1)).rows.sequences().tolist() == [2]  # it has passed the messages that it refuses
    assert engine.run(c.Acquire("q", second, 9, behind=(first,))).rows.sequences().tolist() == [0, 1]
    engine.run(c.Unsubscribe("q", first))
    assert engine.run(c.Acquire("q", second, 9, behind=(first,))).rows.sequences().tolist() == [2, 3]


def test_an_event_without_annotations_is_what_older_versions_read() -> None:
    plain = json.loads(codec.encode(e.Returned("q", 1, RowSet.single(0), 0)))
    assert set(plain) == {"k", "queue", "holder", "rows", "cause"}
    event = e.Returned("q", 1, RowSet.single(0), 8, annotations=b"\x00\xc1")
    assert json.loads(codec.encode(event))["annotations"] == {"bytes": base64.b64encode(b"\x00\xc1").decode()}
    assert codec.decode(codec.encode(event)) == event
