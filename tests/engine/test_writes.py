"""Writes: attempts of tasks under one id, repeated publishes, and the messages that were read for a repeated write."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import decide
from penstock.broker_core.engine.columns.limits import MAX_ENDED_WRITES, STAGE_AGE, STAGE_GRACE
from penstock.broker_core.engine.columns.states import State
from penstock.broker_core.engine.model.reads import SparkBatch
from penstock.broker_core.engine.model.stages import attempt_name

from .harness import SECOND, Engine

KEY = c.PublishKey("stream", "query", 4)


def stage(write: str, attempt: int, count: int = 1) -> c.StageMessages:
    return c.StageMessages(attempt_name(write, attempt), "q", count, 10)


@pytest.fixture
def engine() -> Engine:
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.DeclareQueue("source"))
    return engine


LIVES: list[Callable[[Engine], Engine]] = [lambda engine: engine, Engine.recovered, Engine.from_snapshot]


@pytest.mark.parametrize("life", LIVES)
def test_a_publish_names_attempts_and_the_others_go_with_it(engine: Engine, life: Callable[[Engine], Engine]) -> None:
    engine.run(stage("w", 7), stage("w", 3, 2), stage("w", 5, 100), stage("other", 3))
    engine = life(engine)
    assert engine.run(c.Publish([], None, "w", [3, 7])) == (3, False)
    assert engine.state.queues["q"].next_sequence == 3
    assert engine.state.queues["q"].staged.messages == 1
    engine = life(engine)
    # The answer was lost: a repetition publishes no further message.
    assert engine.run(c.Publish([], None, "w", [3, 7])) == (3, True)
    with pytest.raises(errors.Fenced, match="published already"):
        engine.run(stage("w", 9))
    assert engine.state.queues["q"].next_sequence == 3


@pytest.mark.parametrize("life", LIVES)
def test_an_abort_takes_all_attempts_also_those_that_come_later(engine: Engine, life: Callable[[Engine], Engine]) -> None:
    engine.run(stage("w", 1), stage("w", 2))
    engine = life(engine)
    assert engine.run(c.Discard([], "w")) == 2
    engine = life(engine)
    with pytest.raises(errors.Fenced, match="discarded already"):
        engine.run(stage("w", 3))
    with pytest.raises(errors.NotFound, match="nothing of it was published"):
        engine.run(c.Publish([], None, "w", [1, 2]))
    assert engine.run(c.Publish([], KEY, "other", [])) == (0, False)
    assert engine.run(c.Discard([], "unknown")) == 0
    with pytest.raises(errors.Fenced):
        engine.run(stage("unknown", 1))
    assert engine.state.queues["q"].staged.messages == 0
    assert not engine.state.writes


def test_a_missing_attempt_publishes_nothing(engine: Engine) -> None:
    engine.run(stage("w", 1))
    with pytest.raises(errors.NotFound):
        engine.run(c.Publish([], None, "w", [1, 2]))
    assert engine.run(c.Publish([], None, "w", [1])) == (1, False)


def test_a_plain_stage_is_published_once_and_may_be_made_again(engine: Engine) -> None:
    engine.run(c.StageMessages("s", "q", 2, 1), c.StageMessages("t", "q", 1, 1))
    assert engine.run(c.Publish(["s", "t"])) == (3, False)
    assert engine.run(c.Publish(["s", "t"])) == (3, True)
    engine.run(c.StageMessages("s", "q", 5, 1))
    assert engine.run(c.Publish(["s"])) == (5, False)
    engine.run(c.StageMessages("s", "q", 5, 1), c.Discard(["s"]))
    with pytest.raises(errors.NotFound, match="may have been sent"):
        engine.run(c.Publish(["s"]))


def test_as_many_writes_are_remembered_as_the_limit_says(engine: Engine) -> None:
    engine.run(stage("first", 1), c.Publish([], None, "first", [1]))
    for number in range(MAX_ENDED_WRITES - 1):
        engine.run(c.Discard([], f"w{number}"))
    assert engine.run(c.Publish([], None, "first", [1])) == (1, True)
    engine.run(c.Discard([], "one more"))
    assert len(engine.state.ended_writes) == MAX_ENDED_WRITES
    with pytest.raises(errors.NotFound, match="may have been sent"):
        engine.run(c.Publish([], None, "first", [1]))


@pytest.mark.parametrize("life", LIVES)
def test_the_age_of_a_stage_goes_on_over_a_restart(engine: Engine, life: Callable[[Engine], Engine]) -> None:
    engine.run(stage("w", 1))
    engine.pass_time(STAGE_AGE / SECOND / 2)
    engine.run(stage("late", 1))
    wall = engine.wall
    engine = life(engine)
    engine.wall, engine.up = wall, 0
    engine.run(c.StartBroker())
    engine.pass_time(STAGE_AGE / SECOND / 2)
    engine.run(c.Tick())
    assert list(engine.state.writes) == ["w", "late"]
    engine.pass_time(1)
    engine.run(c.Tick())
    assert list(engine.state.writes) == ["late"]
    (listed,) = engine.run(c.ListStages())
    assert listed == {
        "stage": "late",
        "queues": ["q"],
        "attempts": 1,
        "messages": 1,
        "bytes": 10,
        "age": STAGE_AGE / SECOND / 2 + 1,
    }
    engine.wall -= 365 * 86400 * SECOND  # the clock is set back: the engine's time stops, it does not decrease
    engine.run(c.Tick())
    assert engine.run(c.ListStages())[0]["age"] >= 0


def test_after_a_standstill_a_driver_has_time_to_publish(engine: Engine) -> None:
    """The host of broker and job was suspended for two days, and the job continues."""
    engine.run(stage("w", 1))
    engine.pass_time(3600)
    engine.wall += 2 * STAGE_AGE
    resumed = engine.up
    assert not decide(engine.state, c.Tick(), c.Now(engine.wall, engine.up + STAGE_GRACE, resumed)).events
    assert decide(engine.state, c.Tick(), c.Now(engine.wall, engine.up + STAGE_GRACE + 1, resumed)).events


def test_a_stage_that_another_publish_has_taken_is_called_published(engine: Engine) -> None:
    engine.run(c.StageMessages("s", "q", 2, 1), c.StageMessages("t", "q", 1, 1), c.Publish(["s"]))
    with pytest.raises(errors.NotFound, match="'s' was published already, 2 messages"):
        engine.run(c.Publish(["s", "t"]))
    with pytest.raises(errors.NotFound, match="'s' was published already, 2 messages"):
        engine.run(c.Publish(["s"], KEY))


# --- Messages that were read for a repeated write


class Query:
    """A lease on `source`, read for batches of Spark."""

    def __init__(self, engine: Engine, messages: int = 3) -> None:
        self.engine = engine
        self.epoch: int | None = None
        self.finished = 0
        engine.run(c.Enqueue("source", messages, 1))

    def take(self, **options: int) -> int:
        self.epoch, batch = self.engine.advance("l", "source", epoch=self.epoch, finished=self.finished, **options)
        return batch

    def read(self, batch: int, reader: SparkBatch | None) -> None:
        assert self.epoch is not None
        self.engine.run(c.ReadBatch("l", "r", self.epoch, batch, 0, 2**60, reader=reader))

    def finish(self, batch: int) -> tuple[int, int]:
        self.finished = batch
        return tuple(self.engine.run(c.FinishBatches("l", batch))[1:])  # type: ignore[return-value]

    @property
    def counts(self) -> tuple[int, int]:
        queue = self.engine.state.queues["source"]
        return queue.counts[State.AVAILABLE], queue.archived


@pytest.mark.parametrize("life", LIVES)
def test_what_was_read_for_a_repetition_and_never_sent_comes_back(engine: Engine, life: Callable[[Engine], Engine]) -> None:
    engine.run(c.Publish([], KEY, "before", []))
    query = Query(engine)
    batch = query.take()
    query.read(batch, SparkBatch("query", 2))  # an older checkpoint was restored
    assert engine.run(stage("w", 1), c.Publish([], KEY._replace(number=2), "w", [1])) == (0, True)
    query.engine = life(engine)
    assert query.finish(batch) == (0, 3)
    assert query.counts == (3, 0)


@pytest.mark.parametrize("life", LIVES)
def test_what_was_sent_is_settled_when_its_batch_is_repeated(engine: Engine, life: Callable[[Engine], Engine]) -> None:
    query = Query(engine)
    batch = query.take()
    query.read(batch, SparkBatch("query", 4))
    assert engine.run(stage("w", 1), c.Publish([], KEY, "w", [1])) == (1, False)
    engine = query.engine = life(engine)
    query.read(batch, SparkBatch("query", 4))  # Spark died before its own commit, and repeats the batch
    assert engine.run(c.Publish([], KEY, "again", [])) == (0, True)
    query.read(batch, SparkBatch("query", 1))  # or a batch of an older checkpoint
    assert engine.run(c.Publish([], KEY._replace(number=1), "older", [])) == (0, True)
    assert query.finish(batch) == (3, 0)
    assert query.counts == (0, 3)


def test_what_a_failed_attempt_had_read_is_not_taken_for_sent(engine: Engine) -> None:
    """Read for batch 5, which died before its publish; then an older checkpoint starts at 2."""
    engine.run(c.Publish([], KEY, "before", []))
    query = Query(engine)
    batch = query.take()
    query.read(batch, SparkBatch("query", 5))
    query.read(batch, SparkBatch("query", 2))
    engine.run(c.Publish([], KEY._replace(number=2), "w", []))
    assert query.finish(batch) == (0, 3)


def test_a_constant_key_in_foreach_batch_gives_back_too_and_each_series_counts_by_itself(engine: Engine) -> None:
    here = SparkBatch("a new query", 0)
    constant, other_key = c.PublishKey("txn", "always the same", 0), c.PublishKey("txn", "another", 0)
    engine.run(c.Publish([], constant, "long ago", []))
    query = Query(engine)
    batch = query.take()
    query.read(batch, here)
    engine.run(c.Publish([], other_key, "w", [], here))
    assert engine.run(c.Publish([], constant, "v", [], here)) == (0, True)
    assert query.finish(batch) == (0, 3)


@pytest.mark.parametrize("reader", [None, SparkBatch("query", 9)])
def test_nothing_comes_back_of_what_was_read_for_something_else(engine: Engine, reader: SparkBatch | None) -> None:
    engine.run(c.Publish([], KEY, "before", []))
    query = Query(engine)
    batch = query.take()
    query.read(batch, reader)
    query.read(batch, SparkBatch("query", 2) if reader is None else reader)
    engine.run(c.Publish([], KEY._replace(number=2), "w", []))
    assert query.finish(batch) == (3, 0)


def test_leases_that_end_leave_nothing_behind(engine: Engine) -> None:
    query = Query(engine)
    query.read(query.take(), SparkBatch("query", 0))
    assert engine.state.readers
    engine.run(c.ReleaseLease("l", settle=True))
    assert not engine.state.readers
    engine.run(c.DeleteLease("l"))
    query = Query(engine)
    query.read(query.take(), SparkBatch("query", 0))
    engine.run(c.DeleteQueue("source", force=True))
    assert not engine.state.readers
