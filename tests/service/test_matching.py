"""Q8: a selector is evaluated once for each block, as it fills, outside of the broker's lock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core.actions import lease_advance
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS
from penstock.broker_core.engine.columns.states import Outcome
from penstock.broker_core.engine.commands import Redrive
from penstock.broker_core.messages import batch_checks
from penstock.broker_core.messages.columns import STRING_MAP
from penstock.broker_core.messages.encoding.arriving import arrived
from penstock.broker_core.messages.payloads import store, stored_sizes
from penstock.broker_core.selectors import parse
from penstock.broker_core.service import bitmaps, matching
from penstock.broker_core.service.broker import BrokerService

from ..journal.lying_disk import LyingDisk
from .helpers import running

RED = parse("colour = 'red'")


def colours(count: int, *places: int, queue: str = "q", named: str = "colour") -> c.Enqueue:
    """So many messages, red ones at these places."""
    red = set(places)
    maps = [[(named, "red" if place in red else "blue")] for place in range(count)]
    arrays = [pa.array([b"x"] * count, pa.binary()), pa.array(maps, STRING_MAP)]
    batch = batch_checks.validate(pa.record_batch(arrays, names=["body", "properties"]))
    return c.Enqueue(queue, count, stored_sizes(batch), store(batch))


def evaluations(monkeypatch: Any) -> list[int]:
    """Rows of each evaluation from now on."""
    sequences: list[int] = []
    evaluate = matching.matches

    def counted(selector: Any, payload: pa.RecordBatch, presence: Any) -> Any:
        sequences.append(payload.num_rows)
        return evaluate(selector, payload, presence)

    monkeypatch.setattr(matching, "matches", counted)
    return sequences


class Taker:
    """A link with a selector, as a plane carries it."""

    def __init__(self, service: BrokerService, text: str = "colour = 'red'", queue: str = "q") -> None:
        self.service, self.queue, self.selector = service, queue, parse(text)
        self.holder = service.submit(c.Subscribe(queue, selector=self.selector.text))

    def look(self, most: int = 1000) -> tuple[list[int], int | None]:
        """One acquisition: its rows, and the block that is not evaluated."""
        with self.service.turn() as turn:
            view = self.service.matching.view(self.queue, self.selector.text)
            taken, _ = turn.execute(c.Acquire(self.queue, self.holder, most, matching=view))
        return taken.rows.sequences().tolist(), taken.unevaluated

    def take(self, most: int = 1000) -> list[int]:
        while True:
            rows, unknown = self.look(most)
            if rows or unknown is None:
                return rows
            assert self.service.matching.look_further(self.queue, self.selector, unknown)


@pytest.fixture
def service() -> Any:
    with running(LyingDisk()) as running_service:
        running_service.submit(c.DeclareQueue("q"))
        yield running_service


def test_a_link_gets_what_matches_in_order_and_nothing_where_nobody_has_looked(service: BrokerService) -> None:
    service.submit(colours(5, 1, 3))
    taker = Taker(service)
    assert taker.look() == ([], 0)
    assert taker.look() == ([], 0)  # it stays: unevaluated rows are never skipped
    assert taker.take() == [1, 3]
    assert taker.take() == []
    service.submit(colours(3, 0, 2))
    assert taker.look() == ([], 0)
    assert taker.take(1) == [5]
    assert taker.look() == ([7], None)


def test_nothing_is_evaluated_twice_and_what_comes_is_evaluated_alone(service: BrokerService, monkeypatch: Any) -> None:
    rows = evaluations(monkeypatch)
    service.submit(colours(100, *range(50)))
    first, second = Taker(service), Taker(service, "(colour)  =  'red'")
    assert first.take(20) == list(range(20))
    assert second.take(20) == list(range(20, 40))
    assert sum(rows) == 100
    service.submit(colours(7, 0))
    service.submit(colours(1, 0))
    assert first.take(100) == [*range(40, 50)]
    assert first.take(100) == [100, 107]
    assert second.take() == []
    assert sum(rows) == 108
    assert Taker(service, "colour <> 'red'").take(1) == [50]
    assert sum(rows) == 216  # another selector


def test_a_large_block_is_evaluated_chunk_by_chunk(service: BrokerService, monkeypatch: Any) -> None:
    rows = evaluations(monkeypatch)
    monkeypatch.setattr(matching, "CHUNK_ROWS", 1000)
    service.submit(colours(3500, 2500))
    taker = Taker(service)
    looks = 0
    while not taker.look()[0]:
        assert service.matching.look_further("q", RED, 0)
        looks += 1
    assert (looks, rows) == (3, [1000, 1000, 1000])


def test_an_earlier_place_that_comes_back_is_offered_before_a_later_one(service: BrokerService) -> None:
    service.submit(colours(10, 0, 2, 4, 6, 8))
    first, second = Taker(service), Taker(service)
    assert first.take(2) == [0, 2]
    assert second.take(2) == [4, 6]
    with service.turn() as turn:
        turn.execute(c.Unsubscribe("q", first.holder))
    assert second.take(10) == [0, 2, 8]


def test_encoded_and_columnar_records_of_any_size_are_evaluated_in_their_order(service: BrokerService) -> None:
    from penstock.broker_core.amqp import Message

    def encoded(*values: str) -> c.Enqueue:
        batch = arrived([Message(application_properties={"colour": value}, data=[b""]).encode() for value in values])
        return c.Enqueue("q", batch.batch.num_rows, batch.sizes, store(batch.batch))

    service.submit(encoded("red"), colours(2, 1), encoded("blue", "red"), colours(5000, 4999), encoded("red"), colours(1, 0))
    assert Taker(service).take() == [0, 2, 4, 5004, 5005, 5006]
    assert Taker(service, "colour = 'red' OR JMSPriority = 4").take(3) == [1, 3, 5]


def test_bitmaps_have_a_budget_and_what_went_is_evaluated_again(service: BrokerService, monkeypatch: Any) -> None:
    rows = evaluations(monkeypatch)
    service.matching._cache = bitmaps.Cache(2 * bitmaps.ENTRY_BYTES + 100)
    service.submit(colours(200, *range(200)))
    for number in range(5):
        taker = Taker(service, f"colour = 'red' AND {number} = {number}")
        assert taker.take(1) == [number]
        assert service.matching._cache.bytes <= 2 * bitmaps.ENTRY_BYTES + 100
    assert sum(rows) == 1000
    assert Taker(service, "colour = 'red' AND 0 = 0").take(1) == [5]
    assert sum(rows) == 1200


def test_a_queue_that_is_declared_again_is_another(service: BrokerService) -> None:
    service.submit(colours(3, 0, 1, 2))
    assert Taker(service).take() == [0, 1, 2]
    service.submit(c.DeleteQueue("q", force=True), c.DeclareQueue("q"), colours(3, 2))
    assert Taker(service).take() == [2]


def test_a_view_of_a_queue_says_nothing_of_another_of_its_name(service: BrokerService) -> None:
    service.submit(colours(3, 0, 1, 2))
    view = service.matching.prepared("q", RED)
    service.submit(c.DeleteQueue("q", force=True), c.DeclareQueue("q"), colours(3))
    enter = c.EnterLease("q", "lease", "r", None, True, selector=RED.text)
    acquire = c.AcquireBatch("q", "lease", "r", 0, selector=RED.text, matching=view)
    assert service.submit(enter, c.FinishBatches("lease", 0), acquire) == c.LeasedBatch(None, 0)


def test_what_has_ended_is_not_read_again(service: BrokerService, monkeypatch: Any) -> None:
    service.submit(colours(10, *range(10)))
    plain = service.submit(c.Subscribe("q"))
    rows = service.submit(c.Acquire("q", plain, 6)).rows
    service.submit(c.Settle("q", plain, rows, Outcome.ACCEPTED))
    counted = evaluations(monkeypatch)
    assert Taker(service).take() == [6, 7, 8, 9]
    assert counted == [4]


def test_a_restart_evaluates_anew_from_the_journal(tmp_path: Path) -> None:
    disk = LyingDisk()
    with running(disk) as service:
        service.submit(c.DeclareQueue("q"), colours(5, 2), colours(1, 0))
        assert Taker(service).take(1) == [2]
    with running(disk) as service:
        assert Taker(service).take() == [2, 5]


def test_a_link_with_a_selector_is_never_served_without(service: BrokerService) -> None:
    from penstock.broker_core.errors import InvalidRequest

    service.submit(colours(1))
    taker = Taker(service)
    with pytest.raises(InvalidRequest, match="has a selector"):
        service.submit(c.Acquire("q", taker.holder, 1))


def test_a_browser_with_a_selector_sees_what_matches_and_takes_nothing(service: BrokerService) -> None:
    service.submit(colours(6, 1, 2, 5))

    def look(place: int) -> tuple[list[int], int, int | None]:
        with service.turn() as turn:
            view = service.matching.view("q", RED.text)
            seen, _ = turn.execute(c.Browse("q", place, 2, matching=view))
        return seen.rows.sequences().tolist(), seen.next, seen.unevaluated

    assert look(0) == ([], 0, 0)
    assert service.matching.look_further("q", RED, 0)
    assert look(0)[:2] == ([1, 2], 3)
    assert look(3) == ([5], 6, None)
    assert look(6) == ([], 6, None)


@pytest.mark.parametrize(("messages", "blocks"), [(1, 1), (BLOCK_ROWS + 1, 2), (None, 3)])
def test_for_a_lease_as_much_is_evaluated_as_it_takes(messages: int | None, blocks: int) -> None:
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("q"))
        for _ in range(3):
            service.submit(colours(BLOCK_ROWS, *range(BLOCK_ROWS)))
        view = service.matching.prepared("q", RED, messages)
        assert [view.bitmap(block).rows for block in range(3)] == [BLOCK_ROWS] * blocks + [0] * (3 - blocks)


def test_a_lease_gets_what_matches_and_keeps_its_selector_under_a_checkpoint(service: BrokerService) -> None:
    from penstock.broker_core.errors import WrongOffset

    service.submit(colours(10, 3, 4, 9))

    def advance(selector: str | None, finished: int = 0, run: str = "r", epoch: int | None = None) -> Any:
        view = None if selector is None else service.matching.prepared("q", parse(selector), 2)
        return service.submit(
            c.EnterLease("q", "lease", run, epoch, finished == 0, selector=selector),
            c.FinishBatches("lease", finished),
            c.AcquireBatch("q", "lease", run, finished, 2, selector=selector, matching=view),
        )

    epoch, batch, *_ = advance("colour = 'red'")
    _, rows = service.submit(c.ReadBatch("lease", "r", epoch, batch, 0, 1 << 60))
    assert rows.sequences().tolist() == [3, 4]
    for different in (None, "colour = 'blue'"):
        with pytest.raises(WrongOffset, match="put `selector` back as it was"):
            advance(different, 1)
    epoch, batch, *_ = advance("colour = 'red'", 1)
    _, rows = service.submit(c.ReadBatch("lease", "r", epoch, batch, 0, 1 << 60))
    assert rows.sequences().tolist() == [9]
    assert service.submit(c.ListLeases())[0]["selector"] == "colour = 'red'"
    service.submit(c.ReleaseLease("lease", settle=True))
    service.submit(c.DeleteLease("lease"))  # else it lives for a while
    assert advance(None, 0, "another")[1] == 1  # a new run may have another
    assert service.submit(c.ListLeases())[0]["selector"] is None


def test_a_lease_that_no_message_matches_says_so_after_a_while(service: BrokerService, monkeypatch: Any) -> None:
    monkeypatch.setattr(matching, "CHUNK_ROWS", 2)
    monkeypatch.setattr(matching, "LEASE_CHUNKS", 1)
    service.submit(colours(10, 9))
    times = iter(range(0, 1000, 3))
    view = service.matching.prepared("q", RED, 1, clock=lambda: float(next(times)))
    assert view.bitmap(0).rows == 4
    again = service.matching.prepared("q", RED, 1)
    assert again.bitmap(0).rows == 10


def test_what_nobody_has_looked_at_yet_is_said_and_asked_for_again(service: BrokerService, monkeypatch: Any) -> None:
    monkeypatch.setattr(matching, "LOOK_S", -1.0)
    monkeypatch.setattr(matching, "CHUNK_ROWS", 10)
    service.submit(colours(101, 100))
    enter = c.EnterLease("q", "lease", "r", None, True, selector=RED.text)
    wanted = c.AcquireBatch("q", "lease", "r", 0, selector=RED.text)
    answers = [
        lease_advance.advance(service, enter, c.FinishBatches("lease", 0), wanted, 0.0, gone=lambda: False) for _ in range(3)
    ]
    assert [(answer.leased.batch, answer.is_unfinished) for answer in answers] == [(0, True), (0, True), (1, False)]


def test_a_caller_who_leaves_while_messages_are_evaluated_begins_no_lease(service: BrokerService) -> None:
    """A dead planner is one: its query, started again, has the lease by now."""
    service.submit(colours(4, 1))
    enter = c.EnterLease("q", "lease", "r", None, True, selector=RED.text)
    wanted = c.AcquireBatch("q", "lease", "r", 0, selector=RED.text)
    finish = c.FinishBatches("lease", 0)
    advance, _ = lease_advance.advance(service, enter, finish, wanted, 0.0, gone=lambda: service.matching._cache.bytes > 0)
    assert (advance.epoch, advance.batch) == (None, 0)
    assert service.state.leases == {}


def test_a_lease_goes_past_what_matches_and_is_not_for_it(service: BrokerService) -> None:
    """Messages that were returned unread are not acquired again by this run. Later rows are not evaluated yet."""
    service.submit(colours(BLOCK_ROWS, 0), colours(1, 0))
    enter = c.EnterLease("q", "lease", "r", None, True, selector=RED.text)
    finish = c.FinishBatches("lease", 0, exclude=True)
    wanted = c.AcquireBatch("q", "lease", "r", 0, 1, exclude=True, selector=RED.text)
    epoch, batch, *_ = lease_advance.advance(service, enter, finish, wanted, 0.0, gone=lambda: False).leased
    again = replace(enter, epoch=epoch)
    # Never read: given back, and not for this one any more.
    advance, _ = lease_advance.advance(
        service, again, replace(finish, finished=batch), replace(wanted, finished=batch), 0.0, gone=lambda: False
    )
    assert advance.batch == batch + 1
    _, rows = service.submit(c.ReadBatch("lease", "r", advance.epoch, advance.batch, 0, 1 << 60))
    assert rows.sequences().tolist() == [BLOCK_ROWS]


def test_a_dead_letter_that_stayed_and_comes_back_is_offered_to_whom_it_matches(service: BrokerService) -> None:
    """Q13: evaluated while it was ARCHIVED, since it may become AVAILABLE again."""
    service.submit(c.DeclareQueue("d", options={"rejected": "deadLetter", "deadLetterQueue": "nobody's"}))
    service.submit(colours(4, 1, 3, queue="d"))
    plain = service.submit(c.Subscribe("d"))
    rows = service.submit(c.Acquire("d", plain, 2)).rows
    service.submit(c.Settle("d", plain, rows, Outcome.REJECTED))
    taker = Taker(service, queue="d")
    assert taker.take() == [3]
    assert service.submit(Redrive("d")).messages == 2
    assert taker.take() == [1]
