"""Streams on Spark 4.0 and 4.1, without Spark: exactly once after a death at any step, by the same laws as on Spark 4.2."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core import errors
from penstock.connector.options import Options
from penstock.connector.schema import default_schema, source_schema
from penstock.connector.stream.reader import StreamReader
from penstock.connector.stream.replay import ReplayReader
from penstock.connector.stream.start_tracking import StartTracker

from ..spark_driver import SPARKS, STEPS, Checkpoint, Died, dying, run
from .helpers import INITIAL, Queue
from .recording import Site, recording


def numbers(batch: Any) -> list[tuple[str, int]]:
    return list(zip(batch.column("queue").to_pylist(), batch.column("sequenceNumber").to_pylist(), strict=True))


class Query:
    """A query of one Spark version: a checkpoint, and a reader for each run."""

    def __init__(self, of: Queue, spark: str, **options: str) -> None:
        self.queue, self.spark, self.options = of, spark, options
        self.checkpoint = Checkpoint()

    def reader(self) -> Any:
        reader = self.queue.reader(**self.options)
        return StartTracker(reader) if self.spark == "4.0" else reader

    def run(self, **how: Any) -> None:
        run(self.spark, self.checkpoint, self.reader(), numbers, **how)

    def dies(self, at: str, batch: int, **how: Any) -> bool:
        try:
            self.run(step=dying(at, batch), **how)
        except Died:
            return True
        return False

    @property
    def sequence(self) -> list[int]:
        return [number for _, number in self.checkpoint.rows]


@pytest.fixture(params=SPARKS)
def spark(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def second(queue: Queue) -> Iterator[Queue]:
    made = Queue(queue.broker, queue.client, queue.name[:150] + " second")
    yield made
    queue.client.call("queue.delete", queue=made.name, force=True)


# --- Exactly once ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", STEPS)
def test_a_driver_that_dies_after_a_step_of_each_batch_loses_and_repeats_nothing(queue: Queue, spark: str, at: str) -> None:
    queue.send(25)
    query = Query(queue, spark, lease="me", maxMessagesPerTrigger="5", minPartitions="2")
    for batch in range(at == "cleaned", 5):
        assert query.dies(at, batch)
    query.run()
    assert query.sequence == list(range(25))
    assert queue.counts() == (0, 0, 25)


@pytest.mark.parametrize("at", STEPS)
def test_a_broker_that_dies_with_the_driver_changes_nothing(queue: Queue, at: str) -> None:
    queue.send(15)
    query = Query(queue, "4.0", lease="me", maxMessagesPerTrigger="5", minPartitions="2")
    for batch in (1, 2):
        assert query.dies(at, batch)
        queue.broker.kill()
        queue.broker.start()
    query.run()
    assert query.sequence == list(range(15))
    assert queue.counts() == (0, 0, 15)


@pytest.mark.parametrize("at", STEPS)
def test_several_queues(queue: Queue, second: Queue, spark: str, at: str) -> None:
    queue.send(7)
    second.send(6)
    query = Query(queue, spark, queue=f"{queue.name},{second.name}", lease="me", maxMessagesPerTrigger="5")
    for batch in range(at == "cleaned", 3):
        assert query.dies(at, batch)
    query.run()
    expected = [(queue.name, i) for i in range(7)] + [(second.name, i) for i in range(6)]
    assert sorted(query.checkpoint.rows) == sorted(expected)
    assert (queue.counts(), second.counts()) == ((0, 0, 7), (0, 0, 6))


def test_the_name_of_a_lease_is_in_the_checkpoint(queue: Queue, spark: str) -> None:
    """So the option `lease` is not required."""
    queue.send(10)
    query = Query(queue, spark, maxMessagesPerTrigger="5")
    assert query.dies("planned", 0)
    assert query.dies("committed", 1)
    query.run()
    assert query.sequence == list(range(10))
    assert queue.counts() == (0, 0, 10)


def test_a_query_that_begins_at_an_empty_queue(queue: Queue, spark: str) -> None:
    """Spark plans an empty batch from the initial offset to the initial offset."""
    query = Query(queue, spark, lease="me")
    query.run()
    assert [json.loads(offset) for offset in query.checkpoint.offsets] == [INITIAL]
    queue.send(3)
    assert query.dies("logged", 1)
    query.run()
    assert query.sequence == [0, 1, 2]
    assert queue.counts() == (0, 0, 3)


def test_messages_that_arrive_while_a_query_runs(queue: Queue, spark: str) -> None:
    query = Query(queue, spark, lease="me")
    reader = query.reader()

    def send(step: str, batch: int) -> None:
        if step == "committed" and batch < 3:
            queue.send(2)

    run(spark, query.checkpoint, reader, numbers, step=send)
    assert query.sequence == [0, 1, 2, 3, 4, 5]
    assert queue.counts() == (0, 0, 6)


def test_a_checkpoint_goes_on_with_another_version_of_spark(queue: Queue) -> None:
    queue.send(30)
    query = Query(queue, "4.0", maxMessagesPerTrigger="5")
    for batch, at in enumerate(("planned", "committed", "logged", "written", "offered")):
        assert query.dies(at, batch)
        query.spark = "4.2" if query.spark == "4.0" else "4.0"
    query.run()
    assert query.sequence == list(range(30))
    assert queue.counts() == (0, 0, 30)


# --- One batch ---------------------------------------------------------------------------------------------------------------


def test_available_now_is_one_batch_and_the_next_run_settles_it(queue: Queue) -> None:
    queue.send(7)
    query = Query(queue, "4.0", maxMessagesPerTrigger="5")
    query.run(once=True)
    assert (query.sequence, queue.counts()) == ([0, 1, 2, 3, 4], (2, 5, 0))
    query.run(once=True)
    assert (query.sequence, queue.counts()) == ([0, 1, 2, 3, 4, 5, 6], (0, 2, 5))
    query.run(once=True)
    assert queue.counts() == (0, 0, 7)


def test_bytes_are_a_limit_too(queue: Queue) -> None:
    queue.send(4, b"x" * 40)
    query = Query(queue, "4.0", maxBytesPerTrigger="100")
    query.run()
    assert [len(rows) for rows in query.checkpoint.table.values()] == [2, 2]


def test_a_plan_is_repeated_unchanged(queue: Queue) -> None:
    """Spark plans a batch once for each place of the stream in its query."""
    queue.send(4)
    reader = StartTracker(queue.reader())
    end = reader.latestOffset()
    plans = [[vars(part) for part in reader.partitions(reader.initialOffset(), end)] for _ in range(2)]
    assert plans[0] == plans[1]


# --- Refusals ----------------------------------------------------------------------------------------------------------------

WRAPPED = r"triggerAvailableNowWrapper\.enabled.*set it to false"


def test_a_wrapper_that_asks_again_before_the_first_plan_is_refused(queue: Queue) -> None:
    queue.send(2)
    reader = StartTracker(queue.reader(lease="me"))
    reader.latestOffset()
    reader.initialOffset()
    with pytest.raises(errors.SparkUnsupported, match=WRAPPED):
        reader.latestOffset()
    query = Query(queue, "4.0", lease="me")
    query.run()
    assert query.sequence == [0, 1]  # nothing was read


def test_a_wrapper_that_asks_before_spark_names_its_last_offset_is_refused(queue: Queue) -> None:
    queue.send(4)
    query = Query(queue, "4.0", maxMessagesPerTrigger="2")
    query.run(once=True)
    (last,) = map(json.loads, query.checkpoint.offsets)
    wrapped = query.reader()
    wrapped.latestOffset()
    with pytest.raises(errors.SparkUnsupported, match=WRAPPED):
        wrapped.partitions(last, last)


def test_a_query_without_a_checkpoint_does_not_take_the_lease_of_another(queue: Queue) -> None:
    """Refuse also because the query may have a checkpoint, and the wrapper: its lease must not begin again."""
    queue.send(4)
    query = Query(queue, "4.0", lease="me", maxMessagesPerTrigger="2")
    query.run(once=True)
    run_of_the_lease = queue.lease()["run"]
    with pytest.raises(errors.LeaseInUse, match=r"delete the lease .*triggerAvailableNowWrapper"):
        query.reader().latestOffset()
    assert queue.lease()["run"] == run_of_the_lease
    query.run()
    assert query.sequence == [0, 1, 2, 3]


def test_a_spark_that_does_not_name_its_last_offset_is_refused(queue: Queue) -> None:
    """Both in the run that asks, and in the next one, whose log has the offset already."""
    queue.send(4)
    query = Query(queue, "4.0", maxMessagesPerTrigger="2")
    query.run(once=True)
    (last,) = map(json.loads, query.checkpoint.offsets)
    reader = query.reader()
    end = reader.latestOffset()
    with pytest.raises(errors.WrongOffset, match="asked for its end when the query was at"):
        reader.partitions(last, end)
    with pytest.raises(errors.WrongOffset, match="the offset names lease"):
        query.reader().partitions(last, end)
    assert queue.counts() == (0, 4, 0)


def test_an_older_driver_is_refused(queue: Queue) -> None:
    queue.send(4)
    query = Query(queue, "4.0", maxMessagesPerTrigger="2")
    zombie = query.reader()
    end = zombie.latestOffset()
    (part,) = zombie.partitions(zombie.initialOffset(), end)
    query.checkpoint.offsets.append(json.dumps(end))
    query.run()
    for call in (zombie.latestOffset, lambda: zombie.commit(end), lambda: list(zombie.read(part))):
        with pytest.raises(errors.Fenced):
            call()
    assert query.sequence == [0, 1, 2, 3]


def test_errors_have_their_codes(queue: Queue) -> None:
    reader = StartTracker(StreamReader(Options({"url": queue.broker.url, "queue": "missing"}), default_schema()))
    with pytest.raises(errors.QueueNotFound, match=r"^\[PENSTOCK\.QUEUE_NOT_FOUND\] there is no queue"):
        reader.latestOffset()


# --- Replays -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with recording(tmp_path) as running:
        running.send("q", body=[b"%d" % number for number in range(12)])
        running.settle("q", 12)
        running.record("q")
        yield running


def replayed(site: Site, spark: str) -> Any:
    options = {"url": site.plane.url, "queue": "q", "mode": "replay", "maxMessagesPerTrigger": "4", "endingSequence": "11"}
    reader = ReplayReader(Options(options), source_schema(("sequenceNumber",)))
    return StartTracker(reader) if spark == "4.0" else reader


def sequence(batch: Any) -> list[int]:
    return list(batch.column("sequenceNumber").to_pylist())


def test_a_replay(site: Site, spark: str) -> None:
    for at in STEPS:
        checkpoint = Checkpoint()
        for batch in range(at == "cleaned", 3):
            with pytest.raises(Died):
                run(spark, checkpoint, replayed(site, spark), sequence, step=dying(at, batch))
        run(spark, checkpoint, replayed(site, spark), sequence)
        assert (at, checkpoint.rows) == (at, list(range(12)))


def test_a_replay_with_the_wrapper_is_refused_when_it_restarts(site: Site) -> None:
    checkpoint = Checkpoint()
    run("4.0", checkpoint, replayed(site, "4.0"), sequence, once=True)
    wrapped, last = replayed(site, "4.0"), json.loads(checkpoint.offsets[-1])
    wrapped.latestOffset()
    with pytest.raises(errors.SparkUnsupported, match=WRAPPED):
        wrapped.partitions(last, last)
