"""S11: any AMQP 1.0 broker as the source of a stream, each batch a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker_core import errors

from .helpers import INITIAL, Queue, bodies, drained, next_batch, rows


def test_a_batch_is_a_file_that_goes_when_spark_has_committed_it(queue: Queue) -> None:
    queue.send(0, 100)
    reader = queue.reader()
    end = next_batch(reader, INITIAL)
    assert end == {"v": 5, "spool": end["spool"], "batch": 1}
    assert "batch-1.arrow" in queue.files()
    found = bodies(reader, INITIAL, end)
    assert found == bodies(reader, INITIAL, end)  # as often as it is read
    more, last = drained(reader, end)
    assert found + more == list(range(100))
    assert "batch-1.arrow" not in queue.files()
    assert last["batch"] >= 1


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
    found, _ = drained(reader)
    reader.stop()
    assert (sorted(found), queue.available()) == (list(range(50)), 0)


def test_a_batch_is_the_same_in_the_next_planner(queue: Queue) -> None:
    queue.send(0, 10)
    first = queue.reader()
    end = next_batch(first, INITIAL)
    found = bodies(first, INITIAL, end)
    first.stop()
    queue.send(10, 20)
    second = queue.reader()
    assert second.latestOffset(INITIAL, None) == end
    assert bodies(second, INITIAL, end) == found
    more, _ = drained(second, end)
    assert found + more == list(range(20))


def test_a_plain_broker_needs_a_spool_and_a_penstock_none(queue: Queue, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidOption, match=r"plain AMQP 1.0 broker \(.*\).*needs the option spool"):
        _without_spool(queue).latestOffset(INITIAL, None)
    reader = queue.reader(url=queue.broker.amqp_url)
    with pytest.raises(errors.InvalidOption, match="needs no spool"):
        reader.latestOffset(INITIAL, None)


def _without_spool(queue: Queue):  # type: ignore[no-untyped-def]
    from penstock.connector.options import Options
    from penstock.connector.schema import default_schema
    from penstock.connector.stream import StreamReader

    return StreamReader(Options({"url": queue.hidden.url, "queue": queue.name}), default_schema())
