"""Every message once from brokers of others, in both ways to settle, with a broker killed in each step of a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.connector.options import Options
from penstock.connector.schema import default_schema
from penstock.connector.stream import StreamReader

from ..brokers import RealBroker
from .helpers import INITIAL, bodies, drained, next_batch

COUNT, BATCH = 400, 100


def fill(broker: RealBroker, queue: str) -> None:
    with broker.connect() as connection:
        sender = connection.sender(queue)
        header = Header(durable=True)
        sender.send(
            [Message(header=header, properties=Properties(message_id=f"id-{n}"), data=[b"%d" % n]).encode() for n in range(COUNT)]
        )
        sender.flush()


def again(broker: RealBroker) -> None:
    broker.kill()
    broker.start()


@pytest.mark.parametrize("settle", ["spooled", "committed"])
@pytest.mark.parametrize("fixture", ["artemis_broker"])
def test_each_message_comes_once_whatever_is_lost(
    fixture: str, settle: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    broker: RealBroker = request.getfixturevalue(fixture)
    queue = broker.queue()
    fill(broker, queue)
    options = {"queue": queue, "spool": str(tmp_path / "spool"), "settle": settle, "maxMessagesPerTrigger": str(BATCH)}

    def planner() -> StreamReader:
        return StreamReader(Options({**options, **broker.options}), default_schema())

    def taken(reader: StreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        end = next_batch(reader, start)
        return end, bodies(reader, start, end)

    reader = planner()
    first, found = taken(reader, INITIAL)
    again(broker)  # before Spark has committed the batch
    assert bodies(reader, INITIAL, first) == found
    reader.commit(first)
    second, more = taken(reader, first)
    reader.stop()  # and another planner, to which Spark names the batch again
    reader = planner()
    assert bodies(reader, first, second) == more
    found += more
    reader.commit(second)
    rest, _ = drained(reader, second)
    reader.stop()
    assert sorted(found + rest) == list(range(COUNT))
