"""S11: any AMQP 1.0 broker as the source of a stream, each batch a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.connector.batch.reader import BatchReader
from penstock.connector.options import Options
from penstock.connector.schema import default_schema
from penstock.connector.stream.reader import StreamReader

from ..demo import foreign_broker
from .helpers import INITIAL, Queue, bodies, drained, next_batch, rows


def test_a_batch_is_a_file_that_goes_when_spark_has_committed_it(queue: Queue) -> None:
    queue.send(0, 100)
    reader = queue.reader()
    end = next_batch(reader, INITIAL)
    assert end == {"v": 1, "kind": "spool", "spool": end["spool"], "batch": 1, "manifests": {"1": end["manifests"]["1"]}}
    assert "batch-1.arrow" in queue.files()
    numbers = bodies(reader, INITIAL, end)
    assert numbers == bodies(reader, INITIAL, end)  # as often as it is read
    more, last = drained(reader, end)
    assert numbers + more == list(range(100))
    assert "batch-1.arrow" not in queue.files()
    assert last["batch"] >= 1


def test_the_demo_kills_in_the_midst_of_a_batch(queue: Queue) -> None:
    """Moment that `./dev demo --broker artemis` waits for: Spark has begun a batch, by its checkpoint, and not committed it."""
    work = queue.spool.parent
    offsets, commits = (work / "checkpoint" / name for name in ("offsets", "commits"))
    offsets.mkdir(parents=True)
    commits.mkdir()
    queue.send(0, 10)
    reader = queue.reader(maxMessagesPerTrigger="4")
    end = next_batch(reader, INITIAL)
    count = len(bodies(reader, INITIAL, end))
    assert foreign_broker.messages_in_progress(work) == 0
    (offsets / "0").touch()
    assert foreign_broker.messages_in_progress(work) == count > 0
    (commits / "0").touch()
    assert foreign_broker.messages_in_progress(work) == 0


def test_all_columns_of_a_message(queue: Queue) -> None:
    queue.send(0, 3)
    reader = queue.reader(("queue", "sequenceNumber", "enqueuedTime", "body", "messageId", "deliveryCount", "durable", "message"))
    end = next_batch(reader, INITIAL)
    row = rows(reader, INITIAL, end)[0]
    assert (row["queue"], row["body"], row["messageId"], row["deliveryCount"]) == (queue.name, b"0", "id-0", 0)
    assert row["sequenceNumber"] == 1 << 20
    assert row["message"].endswith(b"0")


def test_the_broker_is_told_when_the_file_is_there(queue: Queue) -> None:
    queue.send(0, 50)
    reader = queue.reader()
    numbers, _ = drained(reader)
    reader.stop()
    assert (sorted(numbers), queue.available()) == (list(range(50)), 0)


def test_a_batch_is_the_same_in_the_next_planner(queue: Queue) -> None:
    queue.send(0, 10)
    first = queue.reader()
    end = next_batch(first, INITIAL)
    numbers = bodies(first, INITIAL, end)
    first.stop()
    queue.send(10, 20)
    second = queue.reader()
    assert second.latestOffset(INITIAL, None) == end
    assert bodies(second, INITIAL, end) == numbers
    more, _ = drained(second, end)
    assert numbers + more == list(range(20))


def test_a_body_is_a_string_if_the_schema_declares_it(queue: Queue) -> None:
    queue.send_octets([Message(data=[octets]).encode() for octets in (b"\xc3\xa4", b"\xff")])
    options = Options({"url": queue.hidden.url, "queue": queue.name, "spool": str(queue.spool)})
    reader = StreamReader(options, StructType([StructField("body", StringType())]))
    queue.readers.append(reader)
    assert rows(reader, INITIAL, next_batch(reader, INITIAL)) == [{"body": "ä"}, {"body": None}]


def test_a_plain_broker_needs_a_spool_and_a_penstock_none(queue: Queue, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidOption, match=r"plain AMQP 1.0 broker \(.*\).*needs the option spool"):
        _without_spool(queue).latestOffset(INITIAL, None)
    reader = queue.reader(url=queue.broker.amqp_url)
    with pytest.raises(errors.InvalidOption, match="needs no spool"):
        reader.latestOffset(INITIAL, None)


def test_a_batch_read_is_refused(queue: Queue) -> None:
    reader = BatchReader(Options({"url": queue.hidden.url, "queue": queue.name}), default_schema())
    with pytest.raises(errors.InvalidRequest, match=r"plain AMQP 1.0 broker.*reads a stream"):
        reader.partitions()


def test_several_queues_are_one_batch(queue: Queue) -> None:
    second = f"{queue.name}-other"
    queue.client.call("queue.declare", queue=second)
    queue.send(0, 20)
    queue.send(20, 40, to=second)
    reader = queue.reader(queue=f"{queue.name},{second}")
    end, pairs = INITIAL, []
    reader.prepareForTriggerAvailableNow()
    while (start := end) != (end := reader.latestOffset(start, None)):
        pairs += [(row["queue"], int(row["body"])) for row in rows(reader, start, end)]
    reader.stop()
    assert sorted(pairs) == sorted([(queue.name, n) for n in range(20)] + [(second, n) for n in range(20, 40)])
    queue.client.call("queue.delete", queue=second)


def test_queues_come_and_go_under_a_checkpoint(queue: Queue) -> None:
    """A spool has no position in a queue: messages in its files have come, and other queues bring their own."""
    second = f"{queue.name}-other"
    queue.client.call("queue.declare", queue=second)
    queue.send(0, 20)
    reader = queue.reader()
    numbers, end = drained(reader)
    reader.stop()
    queue.released()
    for names in (f"{second},{queue.name}", second):
        queue.send(queue.sent, queue.sent + 20, to=second)
        reader = queue.reader(queue=names)
        more, end = drained(reader, end)
        numbers += more
        reader.stop()
        queue.released()
    assert numbers == list(range(60))
    queue.client.call("queue.delete", queue=second)


def test_the_limits_of_a_trigger_and_of_a_task(queue: Queue) -> None:
    queue.send_octets([Message(data=[b"x" * 1000]).encode() for _ in range(100)])
    reader = queue.reader(maxBytesPerTrigger="10k", maxMessagesPerPartition="4")
    reader.prepareForTriggerAvailableNow()
    end = next_batch(reader, INITIAL)
    parts = reader.partitions(INITIAL, end)
    sizes = [sum(batch.num_rows for batch in reader.read(part)) for part in parts]
    assert sizes == [3, 3, 4]
    reader.stop()
    alone = queue.reader(spool=str(queue.spool) + "-alone", maxBytesPerTrigger="1")
    alone.prepareForTriggerAvailableNow()
    assert len(rows(alone, INITIAL, next_batch(alone, INITIAL))) == 1  # larger than the limit, so alone


def test_a_selector_takes_only_what_matches(queue: Queue) -> None:
    made = [Message(data=[b"%d" % n], application_properties={"n": n}).encode() for n in range(20)]
    queue.send_octets(made)
    assert drained(queue.reader(selector="n >= 15"))[0] == list(range(15, 20))


def test_several_readers_share_a_queue(queue: Queue) -> None:
    queue.send(0, 500)
    assert sorted(drained(queue.reader(minReaders="3"))[0]) == list(range(500))


def _without_spool(queue: Queue) -> StreamReader:
    return StreamReader(Options({"url": queue.hidden.url, "queue": queue.name}), default_schema())
