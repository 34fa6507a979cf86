"""S3: outcomes of single messages of a batch: recorded while it is read, applied once when it is settled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import State
from penstock.broker_core.engine.decide import outcomes as decide_outcomes
from penstock.broker_core.engine.model import batch_outcomes
from penstock.broker_core.engine.model.batch_outcomes import NOT_KEPT, RowsOutcome, with_newer

from .harness import Engine
from .test_transactions import attempts, states


def of(*sequences: int) -> RowSet:
    return RowSet.of_sequences(np.array(sequences, np.int64))


def rows_outcome(outcome: str, *sequences: int, error: str | None = None) -> RowsOutcome:
    return RowsOutcome(outcome, error, of(*sequences))


class Query:
    """A query on queue `q` that has read its first batch."""

    def __init__(self, messages: int = 6, **options: Any) -> None:
        self.engine = Engine()
        self.engine.run(c.DeclareQueue("dead"), c.DeclareQueue("q", options=options), c.Enqueue("q", messages, 10))
        self.epoch, self.batch = self.engine.advance("l", epoch=None, finished=0, messages=messages)
        self.engine.read("l", epoch=self.epoch, batch=self.batch)
        self.writes = 0

    def stage(self, *entries: RowsOutcome, epoch: int | None = None, batch: int | None = None, name: str | None = None) -> str:
        self.writes += name is None
        stage = name or f"w{self.writes}"
        self.engine.run(c.StageOutcomes(stage, "l", batch or self.batch, epoch or self.epoch, list(entries)))
        return stage

    def write(self, *entries: RowsOutcome) -> None:
        self.engine.run(c.Publish([self.stage(*entries)]))

    def finish(self, **options: Any) -> None:
        self.epoch, self.batch = self.engine.advance("l", epoch=self.epoch, finished=self.batch, **options)


def test_outcomes_take_effect_when_the_batch_settles() -> None:
    """Q12 Q13: the queue's policy applies as for an outcome of a link."""
    query = Query(deadLetterQueue="dead")
    query.write(
        rows_outcome("rejected", 0, error="bad"),
        rows_outcome("released", 1),
        rows_outcome("modified", 2),
        rows_outcome("accepted", 3),
    )
    assert states(query.engine) == "hhhhhh"
    before = len(query.engine.log)
    query.engine.run(c.FinishBatches("l", query.batch))
    assert b'"together"' in query.engine.log[before][0]  # one event: all or nothing
    assert states(query.engine) == "D..AAA"
    assert attempts(query.engine) == [0, 0, 1, 0, 0, 0]
    dead = query.engine.state.queues["dead"]
    assert (dead.counts[State.AVAILABLE], dead.blocks[0].errors) == (1, {0: "bad"})
    recovered = query.engine.recovered()
    assert recovered.persisted() == query.engine.persisted()


def test_the_last_one_wins() -> None:
    query = Query()
    query.write(rows_outcome("rejected", 0, 1, 2, error="first"))
    query.write(rows_outcome("released", 1), rows_outcome("rejected", 1, error="again"), rows_outcome("accepted", 2))
    query.engine.run(c.FinishBatches("l", query.batch))
    assert states(query.engine) == "RRAAAA"
    assert query.engine.state.queues["q"].blocks[0].errors == {0: "first", 1: "again"}


def test_what_is_staged_says_nothing_before_its_publish() -> None:
    query = Query()
    query.stage(rows_outcome("rejected", 0))
    discarded = query.stage(rows_outcome("rejected", 1))
    query.engine.run(c.Discard([discarded]))
    query.engine.run(c.FinishBatches("l", query.batch))
    assert states(query.engine) == "AAAAAA"


def test_parts_of_one_write_are_said_at_once_or_not_at_all() -> None:
    query = Query()
    parts = [query.stage(rows_outcome("rejected", 0)), query.stage(rows_outcome("rejected", 1))]
    with pytest.raises(errors.NotFound):
        query.engine.run(c.Publish([*parts, "of a task that was lost"]))
    assert not query.engine.state.leases["l"].batches[query.batch].outcomes
    key = c.PublishKey("txn", "job", 1)
    assert query.engine.run(c.Publish(parts, key)) == (0, False)
    again = query.stage(rows_outcome("accepted", 0))
    assert query.engine.run(c.Publish([again], key)) == (0, True)  # a repetition, with any outcomes
    query.engine.run(c.FinishBatches("l", query.batch))
    assert states(query.engine) == "RRAAAA"


def test_a_zombie_settles_nothing() -> None:
    """S4: an outcome contains the epoch of its read."""
    query = Query()
    early = query.stage(rows_outcome("rejected", 0))
    epoch = query.epoch
    query.epoch, _ = query.engine.plan("l", epoch=None, after=0, batch=1)  # the query was restarted elsewhere
    with pytest.raises(errors.Fenced, match="nothing was settled"):
        query.stage(rows_outcome("rejected", 1), epoch=epoch)
    with pytest.raises(errors.Fenced, match="nothing was settled"):
        query.engine.run(c.Publish([early]))
    query.write(rows_outcome("released", 0))  # the current reader sends its own outcome
    query.engine.run(c.FinishBatches("l", query.batch))
    assert states(query.engine) == ".AAAAA"


@pytest.mark.parametrize("end", [c.DeleteLease("l"), c.DeleteQueue("q")])
@pytest.mark.parametrize("life", [lambda engine: engine, Engine.recovered, Engine.from_snapshot])
def test_a_zombie_of_a_lease_that_was_deleted_says_nothing_for_the_next_one_of_its_name(
    end: c.Command[Any], life: Callable[[Engine], Engine]
) -> None:
    """S3: both leases begin with batch 1 and hold the same messages. Epochs are never reused."""
    query = Query()
    for _ in range(3):
        query.engine.plan("l", epoch=None, after=0, batch=query.batch)
    epoch = query.engine.state.leases["l"].epoch
    query.engine.run(c.ReleaseLease("l", settle=False), end)
    query.engine = life(query.engine)
    if "q" not in query.engine.state.queues:
        query.engine.run(c.DeclareQueue("q"), c.Enqueue("q", 6, 10))
    query.epoch, query.batch = query.engine.advance("l", run="another", epoch=None, finished=0)
    assert query.batch == 1
    query.engine.read("l", run="another", epoch=query.epoch, batch=1)
    for old in range(1, epoch + 2):
        with pytest.raises(errors.Fenced):
            query.stage(rows_outcome("rejected", 0), epoch=old)
        with pytest.raises(errors.Fenced):
            query.engine.run(c.RenewLease("l", old))
        with pytest.raises(errors.Fenced):
            query.engine.run(c.SetAside("l", 1, old, {"no": of(0)}))
    query.write(rows_outcome("rejected", 1))
    query.engine.run(c.RenewLease("l", query.epoch))


def test_another_run_of_a_lease_renews_nothing_and_sets_nothing_aside() -> None:
    """S3: if the request names its run. A request without a run is accepted."""
    query = Query()
    for run, refused in (("another", True), ("r", False), (None, False)):
        for command in (c.RenewLease("l", query.epoch, run), c.SetAside("l", 1, query.epoch, {"no": of(0)}, run)):
            if refused:
                with pytest.raises(errors.Fenced):
                    query.engine.run(command)
            else:
                query.engine.run(command)


def test_a_write_that_spark_repeats_after_the_end_is_a_no_op() -> None:
    query = Query()
    first = query.batch
    query.write(rows_outcome("rejected", 0))
    late = query.stage(rows_outcome("released", 1))
    query.engine.run(c.FinishBatches("l", query.batch))
    query.engine.run(c.Publish([late]))
    query.engine.run(c.Publish([query.stage(rows_outcome("rejected", 0), batch=first)]))
    assert states(query.engine) == "RAAAAA"
    assert query.engine.read("l", epoch=query.epoch, batch=first) == list(range(6))  # the same rows as before


def test_what_was_given_back_can_be_settled_by_nobody() -> None:
    query = Query()
    query.engine.run(c.ReleaseLease("l", settle=False))
    with pytest.raises(errors.PenstockError, match=r"[Nn]othing was settled"):
        query.stage(rows_outcome("rejected", 0), epoch=query.engine.state.leases["l"].epoch)
    with pytest.raises(errors.NotFound):
        query.engine.run(c.StageOutcomes("s", "no such lease", 1, 1, [rows_outcome("rejected", 0)]))


def test_messages_that_the_batch_does_not_hold_are_refused() -> None:
    query = Query()
    query.engine.run(c.Enqueue("q", 3, 1))
    with pytest.raises(errors.NotFound, match="does not hold all"):
        query.stage(rows_outcome("rejected", 5, 6))
    with pytest.raises(errors.InvalidRequest, match="allowed are accepted, rejected, released, modified"):
        query.stage(rows_outcome("refused", 1))
    assert not query.engine.state.stages


def test_an_operator_settles_a_lease_as_its_sink_has_said() -> None:
    query = Query()
    query.write(rows_outcome("rejected", 0, 1))
    query.engine.run(c.SettleRow("l", 1, "accepted"))
    query.engine.run(c.ReleaseLease("l", settle=True))
    assert states(query.engine) == "RAAAAA"


def test_one_run_takes_what_it_released_only_once() -> None:
    """An availableNow run would otherwise never end."""
    query = Query()
    query.write(rows_outcome("released", 0, 1), rows_outcome("modified", 2))
    finished = query.batch
    query.finish(exclude=True, fail_on_data_loss=True)
    assert query.batch == finished  # no message is left for this run
    assert states(query.engine) == "...AAA"
    query.epoch, batch = query.engine.advance("l", epoch=query.epoch, finished=finished)
    assert batch == finished + 1


@pytest.mark.parametrize("snapshot", [False, True])
def test_outcomes_survive_a_restart(snapshot: bool) -> None:
    query = Query()
    query.write(rows_outcome("rejected", 0, error="bad"))
    waiting = query.stage(rows_outcome("released", 1), rows_outcome("modified", 2))
    query.engine = query.engine.from_snapshot() if snapshot else query.engine.recovered()
    query.engine.run(c.StartBroker(), c.Publish([waiting]), c.FinishBatches("l", query.batch))
    assert states(query.engine) == "R..AAA"


def test_errors_beyond_the_limit_lose_their_texts_and_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit applies to one record, to the records of a write and to the writes of a batch. Later outcomes still win."""
    monkeypatch.setattr(decide_outcomes, "MAX_OUTCOMES", 2)
    monkeypatch.setattr(batch_outcomes, "MAX_OUTCOMES", 2)
    query = Query()
    name = query.stage(*(rows_outcome("rejected", row, error=str(row)) for row in range(2)))
    query.stage(rows_outcome("rejected", 2, error="2"), rows_outcome("released", 5), name=name)
    query.write(rows_outcome("rejected", 3, error="3"), rows_outcome("rejected", 4, error="4"))
    query.engine.run(c.Publish([name]))
    query.write(rows_outcome("accepted", 1))
    for engine in (query.engine.from_snapshot(), query.engine.recovered(), query.engine):
        engine.run(c.FinishBatches("l", query.batch))
        assert states(engine) == "RARRR."
        texts = engine.state.queues["q"].blocks[0].errors
        assert set(texts) == {0, 2, 3, 4}
        assert sum(text == NOT_KEPT for text in texts.values()) in (2, 3)
        assert all(text in (NOT_KEPT, str(row)) for row, text in texts.items())


def test_as_many_different_errors_as_messages_are_said_in_time() -> None:
    """20,000 outcomes of 20,000 messages: the cost of one does not grow with the number before it."""
    rows = 20_000
    began = time.process_time()
    outcomes = with_newer([], [RowsOutcome("rejected", f"row {row}", RowSet.single(row)) for row in range(rows)])
    first = time.process_time() - began
    again = [RowsOutcome("rejected", f"again {row}", RowSet.single(row)) for row in range(0, rows, 2)]
    outcomes = with_newer(outcomes, again)
    assert time.process_time() - began < 20 * first + 1
    assert len(outcomes) <= 10_001
    assert sum(entry.rows.count for entry in outcomes) == rows
    assert outcomes[-1].error == NOT_KEPT


def test_entries_of_a_batch_are_disjoint() -> None:
    earlier = [rows_outcome("rejected", 0, 1, 2, 3), rows_outcome("released", 2, 3), rows_outcome("rejected", 3)]
    outcomes = with_newer(with_newer([], earlier), [rows_outcome("accepted", 0)])
    rows_by_outcome = {entry.outcome: entry.rows.sequences().tolist() for entry in outcomes}
    assert rows_by_outcome == {"rejected": [1, 3], "released": [2], "accepted": [0]}


# --- Messages that the reader could not decode


def aside(query: Query, reasons: dict[str, RowSet], **overrides: int) -> int:
    names = {"batch": query.batch, "epoch": query.epoch, **overrides}
    count: int = query.engine.run(c.SetAside("l", names["batch"], names["epoch"], reasons))
    return count


def stat(query: Query, queue: str = "q") -> dict[str, Any]:
    counts: dict[str, Any] = query.engine.run(c.Stat(queue))[0]
    return counts


@pytest.mark.parametrize("rejected", ["deadLetter", "archive", "return"])
def test_what_nobody_can_decode_is_a_dead_letter_when_the_batch_settles(rejected: str) -> None:
    query = Query(deadLetterQueue="dead", rejected=rejected)
    assert aside(query, {"cut short": of(1, 2)}) == 2
    assert aside(query, {"cut short": of(1, 2), "other": of(2, 3)}) == 1  # a repeated task sends the same again
    query.write(rows_outcome("released", 0))
    assert states(query.engine) == "hhhhhh"
    query.finish()
    assert states(query.engine, "dead") == "..."
    dead = query.engine.state.queues["dead"].blocks[0]
    assert [dead.errors[row] for row in range(3)] == ["malformed: cut short"] * 2 + ["malformed: other"]
    assert stat(query)["malformed"] == stat(query)["deadLettered"] == 3
    assert stat(query, "dead")["malformed"] == 0


def test_without_a_dead_letter_queue_it_is_archived_as_rejected_and_counted() -> None:
    query = Query()
    assert aside(query, {"cut short": of(1)}) == 1
    query.finish()
    assert stat(query)["malformed"] == 1
    block = query.engine.state.queues["q"].blocks[0]
    assert block.errors == {1: "malformed: cut short"}
    assert [engine.state.queues["q"].malformed for engine in (query.engine.recovered(), query.engine.from_snapshot())] == [1, 1]


def test_what_is_set_aside_survives_a_restart_and_goes_with_a_batch_that_is_given_back() -> None:
    query = Query()
    aside(query, {"cut short": of(1)})
    for engine in (query.engine.recovered(), query.engine.from_snapshot()):
        batch = engine.state.leases["l"].batches[query.batch]
        assert [(entry.outcome, entry.error) for entry in batch.outcomes] == [("malformed", "malformed: cut short")]
    query.engine.run(c.ReleaseLease("l", settle=False))
    assert stat(query)["available"] == 6
    assert stat(query)["malformed"] == 0


def test_an_older_reader_and_a_batch_that_has_ended_set_nothing_aside() -> None:
    query = Query()
    with pytest.raises(errors.Fenced):
        aside(query, {"why": of(1)}, epoch=query.epoch + 1)
    with pytest.raises(errors.DataLoss):
        aside(query, {"why": of(1)}, batch=7)
    first = query.batch
    assert aside(query, {"why": of(40)}) == 0  # not in this batch
    query.finish()
    assert aside(query, {"why": of(1)}, batch=first) == 0  # already set aside
    assert stat(query)["malformed"] == 0


def test_reasons_of_a_batch_are_bounded() -> None:
    query = Query(messages=200)
    for number in range(150):
        aside(query, {f"reason {number}": of(number)})
    outcomes = query.engine.state.leases["l"].batches[query.batch].outcomes
    assert len(outcomes) == decide_outcomes.MAX_MALFORMED_TEXTS + 1
    assert sum(entry.rows.count for entry in outcomes) == 150


# --- Messages that an operator discards


def test_a_discarded_message_ends_whoever_holds_it() -> None:
    query = Query(messages=4)
    engine = query.engine
    engine.run(c.Enqueue("q", 4, 10))  # 4 to 7
    holder = engine.run(c.Subscribe("q"))
    engine.run(c.Acquire("q", holder, 2))  # 4 and 5
    epoch = query.epoch
    assert engine.run(c.DiscardMessages("q", 3, 6, "lost")) == 4
    block = engine.state.queues["q"].blocks[0]
    assert {row: block.errors[row] for row in sorted(block.errors)} == dict.fromkeys(range(3, 7), "lost")
    assert block.counts[State.ARCHIVED] == 4
    assert engine.state.leases["l"].epoch == epoch + 1
    assert engine.run(c.DiscardMessages("q", 3, 6, "again")) == 0
    assert 3 not in engine.state.leases["l"].batches[query.batch].rows
    with pytest.raises(errors.NotFound):
        engine.run(c.DiscardMessages("q", 0, 8, "too many"))
