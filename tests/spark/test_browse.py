"""S8 S9: batch reads look at a queue and its archive, and change nothing."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException

if TYPE_CHECKING:
    from conftest import Rig


@pytest.fixture
def archive(rig: Rig) -> Rig:
    """Ten messages archived, five waiting."""
    rig.declare("orders")
    rig.send("orders", 0, 10)
    rig.drain(rig.stream("orders"))
    rig.send("orders", 10, 5)
    return rig


def numbers(rig: Rig, **options: str) -> list[int]:
    return sorted(row.n for row in rig.look("orders", **options).selectExpr("cast(cast(body as string) as int) n").collect())


def test_a_look_shows_what_waits_and_takes_nothing(archive: Rig) -> None:
    assert numbers(archive) == numbers(archive, mode="browse") == [10, 11, 12, 13, 14]
    assert archive.counts("orders") == (5, 0, 10)


def test_the_archive_by_state_sequence_and_time(archive: Rig) -> None:
    assert numbers(archive, states="archived") == list(range(10))
    assert numbers(archive, states="available,archived,acquired") == list(range(15))
    assert numbers(archive, states="archived, available", startingSequence="3", endingSequence="11") == list(range(3, 12))
    rows = archive.look("orders", states="archived,available").select("sequenceNumber", "enqueuedTime").collect()
    # Python returns local times. Without a zone, the option is in UTC.
    times = {row.sequenceNumber: row.enqueuedTime.astimezone(timezone.utc) for row in rows}
    first_of_second = times[10].isoformat()
    every = "available,archived"
    assert numbers(archive, states=every, startingTimestamp=first_of_second) == [10, 11, 12, 13, 14]
    assert numbers(archive, states=every, endingTimestamp=first_of_second) == list(range(10))
    assert numbers(archive, states=every, startingTimestamp=(times[10] + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")) == []


def test_a_relative_time_is_fixed_when_the_read_is_loaded(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 3)
    until_now, last_hour = rig.look("orders", endingTimestamp="now"), rig.look("orders", startingTimestamp="-1h")
    rig.send("orders", 3, 2)
    assert [until_now.count(), until_now.count(), last_hour.count()] == [3, 3, 5]
    assert numbers(rig, startingTimestamp="yesterday", endingTimestamp="now") == list(range(5))
    assert numbers(rig, endingTimestamp="-1h") == []


def test_state_outcome_and_settled_time(archive: Rig) -> None:
    reader = archive.spark.read.format("amqp").options(url=archive.broker.url, queue="orders", states="available,archived")
    frame = reader.schema("sequenceNumber bigint, state string, outcome string, settledTime timestamp").load()
    rows = sorted(frame.collect())
    assert {(row.state, row.outcome) for row in rows[:10]} == {("archived", "accepted")}
    assert {(row.state, row.outcome, row.settledTime) for row in rows[10:]} == {("available", None, None)}
    assert all(datetime.now() - row.settledTime < timedelta(minutes=5) for row in rows[:10])


def test_ranges_become_tasks(archive: Rig) -> None:
    frame = archive.look("orders", states="archived", maxMessagesPerPartition="4")
    assert frame.rdd.getNumPartitions() == 3  # for ten messages
    assert frame.count() == 10
    assert archive.look("orders", states="archived", minPartitions="3").rdd.getNumPartitions() == 3


def test_an_empty_queue_is_an_empty_frame(rig: Rig) -> None:
    rig.declare("empty")
    assert rig.look("empty").collect() == []


def test_filters_are_pushed_only_where_spark_does_it(archive: Rig) -> None:
    conf = "spark.sql.python.filterPushdown.enabled"
    where = "sequenceNumber > 3 and sequenceNumber <= 12 and enqueuedTime >= timestamp'2000-01-01'"
    without = archive.look("orders", states="available,archived").where(where).count()
    with pytest.raises(PySparkException, match=conf):
        archive.look("orders", pushdown="true").count()
    archive.spark.conf.set(conf, "true")
    try:
        frame = archive.look("orders", states="available,archived", pushdown="true", minPartitions="3").where(where)
        assert frame.count() == without == 9
        # Nine numbers in three tasks: the range was narrowed before it was divided.
        assert sorted(len(part) for part in frame.select("sequenceNumber").rdd.glom().collect()) == [3, 3, 3]
        archived = archive.spark.read.format("amqp").schema("outcome string, body binary")
        pushed = archived.options(url=archive.broker.url, queue="orders", states="available,archived", pushdown="true").load()
        assert pushed.where("outcome = 'accepted'").count() == 10
    finally:
        archive.spark.conf.unset(conf)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "acquire"}, "use mode=browse"),
        ({"lease": "me"}, "has no meaning for spark.read"),
        ({"states": "gone"}, "available, acquired, delayed, deferred, archived"),
        ({"startingSequence": "9", "endingSequence": "3"}, "nothing could be read"),
    ],
)
def test_a_wrong_look_is_refused(rig: Rig, options: dict[str, str], says: str) -> None:
    rig.declare("orders")
    with pytest.raises(AnalysisException, match=says):
        rig.look("orders", **options).collect()


def test_a_queue_that_does_not_exist_is_named(rig: Rig) -> None:
    with pytest.raises(PySparkException, match="nowhere"):
        rig.look("nowhere").collect()


def test_a_fixed_archive_is_sent_again(archive: Rig) -> None:
    archive.declare("again")
    archive.write(archive.look("orders", states="archived").where("sequenceNumber < 3").drop("queue"), "again")
    assert archive.bodies("again") == ["0", "1", "2"]
