"""Every message once from brokers of others, in order, in both ways to settle, and with a broker killed in a batch.

Some take many seconds to start again: they are killed under `./dev torture` alone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.broker_core.errors import InvalidRequest
from penstock.connector.foreign import intake
from penstock.connector.options import Options
from penstock.connector.schema import default_schema
from penstock.connector.stream.reader import StreamReader

from ..brokers import RealBroker
from .helpers import INITIAL, LIMIT, bodies, drained, next_batch

COUNT, BATCH = 400, 100
SETTLE = ("spooled", "committed")
BROKERS = ("artemis_broker", "rabbitmq", "qpid_broker_j")


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest) -> RealBroker:
    fixture = request.getfixturevalue(request.param)
    assert isinstance(fixture, RealBroker)
    return fixture


@pytest.fixture(autouse=True)
def _soon_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """RabbitMQ 3 is not asked to drain; its messages come immediately on loopback."""
    monkeypatch.setattr(intake, "SILENCE_S", 1.0)


def filled(broker: RealBroker) -> str:
    """A queue with the numbers up to COUNT."""
    queue = broker.queue()
    with broker.connect() as connection:
        sender = connection.sender(queue)
        header = Header(durable=True)
        sender.send(
            [
                Message(
                    header=header, properties=Properties(message_id=f"id-{n}"), application_properties={"n": n}, data=[b"%d" % n]
                ).encode()
                for n in range(COUNT)
            ]
        )
        sender.flush()
    return queue


def planner(broker: RealBroker, queue: str, folder: Path, **options: str) -> StreamReader:
    settings = {
        "queue": queue,
        "spool": str(folder / f"spool-{options.get('settle')}"),
        "maxMessagesPerTrigger": str(BATCH),
        **options,
    }
    return StreamReader(Options({**settings, **broker.options}), default_schema())


def left(broker: RealBroker, queue: str) -> int:
    """Messages that the broker still has for a consumer."""
    with broker.connect() as connection:
        return len(connection.receiver(queue).receive(timeout_s=0.3))


@pytest.mark.parametrize("settle", SETTLE)
def test_all_is_read_in_order_and_the_queue_is_empty_then(broker: RealBroker, settle: str, tmp_path: Path) -> None:
    queue = filled(broker)
    reader = planner(broker, queue, tmp_path, settle=settle)
    numbers, end = drained(reader)
    counts = reader.reportLatestOffset()["queues"][queue]
    reader.commit(end)
    reader.stop()
    assert numbers == list(range(COUNT))
    assert (counts["repeated"], counts["lostConnections"]) == (0, 0)
    assert left(broker, queue) == 0


def test_a_selector_takes_what_matches_or_is_refused(broker: RealBroker, tmp_path: Path) -> None:
    queue = filled(broker)
    reader = planner(broker, queue, tmp_path, selector="n >= 390")
    if broker.name == "rabbitmq":
        with pytest.raises(InvalidRequest, match="no selectors"):
            reader.latestOffset(INITIAL, LIMIT)
    else:
        assert drained(reader)[0] == list(range(390, COUNT))
    reader.stop()


@pytest.mark.parametrize("broker", BROKERS if os.environ.get("PENSTOCK_TORTURE_S") else BROKERS[:1], indirect=True)
def test_each_message_comes_once_whatever_is_lost(broker: RealBroker, tmp_path: Path) -> None:
    """The broker is killed before Spark has committed a batch, and then the planner after the next."""
    queues = {settle: filled(broker) for settle in SETTLE}

    def taken(reader: StreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        end = next_batch(reader, start, tries=3000)  # the broker was away for long, so the planner looks for it seldom
        return end, bodies(reader, start, end)

    readers = {settle: planner(broker, queues[settle], tmp_path, settle=settle) for settle in SETTLE}
    firsts = {settle: taken(readers[settle], INITIAL) for settle in SETTLE}
    broker.kill()
    broker.start()
    for settle in SETTLE:
        reader, (first, numbers) = readers[settle], firsts[settle]
        assert bodies(reader, INITIAL, first) == numbers
        reader.commit(first)
        second, more = taken(reader, first)
        reader.stop()  # and another planner, to which Spark names the batch again
        reader = planner(broker, queues[settle], tmp_path, settle=settle)
        assert bodies(reader, first, second) == more
        reader.commit(second)
        rest, _ = drained(reader, second)
        reader.stop()
        assert sorted(numbers + more + rest) == list(range(COUNT))
