"""A payload that is damaged on the disk is reported, the messages around it are delivered, and a command removes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.amqp import Message, decode_message
from penstock.broker_core.cli.main import main
from penstock.broker_core.client import amqp as amqp_client
from penstock.broker_core.client.flight import Client

from .helpers import Reader, browse, plant

DAMAGED = 17
OTHERS = [number for number in range(60) if number != DAMAGED]


def marked(number: int) -> bytes:
    return b"message %02d of sixty" % number


def encoded(number: int) -> pa.RecordBatch:
    message = Message(application_properties={"even": number % 2 == 0}, data=[marked(number)]).encode()
    return pa.record_batch({"message": pa.array([message])})


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """Sixty messages, a record each, one of them damaged."""
    data = tmp_path / "data"
    plant(data, "q", *map(encoded, range(60)))
    [segment] = data.glob("*.seg")
    octets = bytearray(segment.read_bytes())
    place = octets.index(marked(DAMAGED))
    octets[place] ^= 1
    segment.write_bytes(octets)
    with Broker(data) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.url) as connected:
        yield connected


def received(broker: Broker, count: int, *, accept: bool = False, **options: Any) -> list[bytes]:
    intact: list[bytes] = []
    with amqp_client.connect(broker.amqp_url) as connection, connection.receiver("q", credit=100, **options) as receiver:
        while len(intact) < count:
            deliveries = receiver.receive(timeout_s=30)
            assert deliveries, f"{count - len(intact)} messages did not come"
            intact += [decode_message(delivery.payload).data[0] for delivery in deliveries]
            if accept:
                receiver.accept(deliveries)
        receiver.drain()
        assert receiver.receive(timeout_s=0) == []
    return intact


def discard(broker: Broker, *arguments: str) -> int:
    return main(["queue", "discard", "q", *arguments, "--url", broker.url])


def test_an_amqp_client_gets_the_others_again_and_again(broker: Broker, client: Client) -> None:
    for browse_only in (True, False, False):
        assert received(broker, 59, browse=browse_only) == [marked(number) for number in OTHERS]
    stat = client.call("queue.stat", queue="q")
    assert (stat["available"], stat["acquired"]) == (60, 0)
    [named] = stat["damaged"]
    assert named.startswith("message 17 of queue 'q' cannot be read: ")
    assert ".seg, offset " in named
    assert named.endswith("`penstock queue discard q --sequence 17`")
    assert "/" not in named
    assert all(row["deliveryCount"] == 2 for row in browse(client, "q", "deliveryCount", first=18))


def test_a_selector_matches_the_others(broker: Broker, client: Client) -> None:
    assert received(broker, 30, selector="even = TRUE") == [marked(number) for number in range(0, 60, 2)]
    assert received(broker, 29, selector="even = FALSE") == [marked(number) for number in range(1, 60, 2) if number != DAMAGED]
    assert len(client.call("queue.stat", queue="q")["damaged"]) == 1


def test_the_command_that_is_named_ends_it_while_a_receiver_holds_the_others(broker: Broker, client: Client) -> None:
    with amqp_client.connect(broker.amqp_url) as connection, connection.receiver("q", credit=100) as receiver:
        deliveries: list[Any] = []
        while len(deliveries) < 59:
            deliveries += receiver.receive(timeout_s=30)
        assert client.call("queue.stat", queue="q")["acquired"] == 60
        assert discard(broker, "--sequence", "17", "--error", "the disk has lost it") == 0
        receiver.accept(deliveries)
    stat = client.call("queue.stat", queue="q")
    assert (stat["available"], stat["acquired"], stat["archived"], stat["damaged"]) == (0, 0, 60, [])
    ended = browse(client, "q", "sequenceNumber", "outcome", "error", "body", states=["archived"])
    assert [row for row in ended if row["outcome"] != "accepted"] == [
        {"sequenceNumber": 17, "outcome": "purged", "error": "the disk has lost it", "body": None}
    ]
    assert [row["body"] for row in ended if row["outcome"] == "accepted"] == [marked(number) for number in OTHERS]


def test_a_query_is_told_which_one_and_goes_on_when_it_is_discarded(broker: Broker, client: Client) -> None:
    reader = Reader(client, "q")
    number = reader.advance()
    with pytest.raises(errors.DamagedJournal, match=r"message 17 of queue 'q' .*seg, offset .*discard q --sequence 17`"):
        reader.read(number)
    assert discard(broker, "--sequence", "17") == 0
    with pytest.raises(errors.Fenced):
        reader.read(number)
    reader.epoch = None  # the query is started again
    assert reader.advance(fresh=False) == number
    assert [row["body"] for row in reader.read(number)] == [marked(number) for number in OTHERS]


def test_peek_shows_what_is_before_it(broker: Broker, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["queue", "peek", "q", "--from", "0", "--count", "1", "--json", "--url", broker.url]) == 0
    assert [row["sequenceNumber"] for row in json.loads(capfd.readouterr().out)] == [0]
    assert main(["queue", "peek", "q", "--count", "60", "--json", "--url", broker.url]) != 0
    out, err = capfd.readouterr()
    assert [row["sequenceNumber"] for row in json.loads(out)] == list(range(17))
    assert "penstock queue discard q --sequence 17" in err
    assert main(["queue", "peek", "q", "--from", "18", "--count", "5", "--json", "--url", broker.url]) == 0


def test_what_is_discarded_is_there_and_within_the_limit(
    broker: Broker, client: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    assert discard(broker, "--sequence", "60") != 0
    assert "has messages 0 to 59, not 60 to 60" in capfd.readouterr().err
    assert discard(broker, "--sequence", "5", "--to", "4") != 0
    assert discard(broker, "--sequence", "5", "--to", "9") == 0
    assert "5 messages of q discarded" in capfd.readouterr().out
    assert discard(broker, "--sequence", "5", "--to", "9") == 0  # they have ended: nothing more happens
    assert "0 messages" in capfd.readouterr().out
    assert client.call("queue.stat", queue="q")["archived"] == 5
