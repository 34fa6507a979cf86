"""Messages of a client library that no reader could decode: their sender gets an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import Message as ProtonMessage
from proton.utils import BlockingConnection, SendException

from penstock import Broker
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.messages import MAX_SECTIONS
from penstock.broker_core.client import amqp as amqp_client
from penstock.broker_core.client.flight import Client
from penstock.broker_core.errors import PenstockError

GOOD = Message(application_properties={"k": "v"}, data=[b"x"]).encode()
# As go-amqp writes a map[string]any with a []any in it, which 3.2.5 does not allow.
LIST = b"\0St\xc1\x08\2\xa1\1k\xc0\2\1\x40\0Su\xa0\1x"
MANY = b"\0Su\xa0\0" * (MAX_SECTIONS + 1)
TWICE = b"\0St\xc1\x0b\4\xa1\1k\x54\1\xa1\1k\x54\2\0Su\xa0\1x"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", fsync="never") as running:
        with Client(running.url) as client:
            client.call("queue.declare", queue="q")
        yield running


def available(broker: Broker) -> int:
    with Client(broker.url) as client:
        return int(client.call("queue.stat", queue="q")["available"])


@pytest.mark.parametrize("properties", [{"k": [1, 2]}, {"k": {"a": 1}}])
def test_proton_is_told_that_its_properties_are_not_simple(broker: Broker, properties: dict[str, object]) -> None:
    connection = BlockingConnection(broker.amqp_url, timeout=20)
    sender = connection.create_sender("q")
    sender.send(ProtonMessage(body="good", properties={"k": "v"}))
    with pytest.raises(SendException):
        sender.send(ProtonMessage(body="bad", properties=properties))
    sender.send(ProtonMessage(body="good"))
    connection.close()
    assert available(broker) == 2


def test_proton_s_body_nested_forty_deep_comes_back(broker: Broker) -> None:
    body: list[object] = [1]
    for _ in range(39):
        body = [body]
    connection = BlockingConnection(broker.amqp_url, timeout=20)
    connection.create_sender("q").send(ProtonMessage(body=body))
    receiver = connection.create_receiver("q")
    assert receiver.receive(timeout=20).body == body
    receiver.accept()
    connection.close()
    with Client(broker.url) as client:
        [batch] = client.get(op="browse", queue="q", states=["archived", "available", "acquired"], columns=["body"])
    assert batch.column("body")[0].as_py() == b"[" * 40 + b"1" + b"]" * 40


@pytest.mark.parametrize("bad", [LIST, MANY, TWICE], ids=["list", "many", "twice"])
def test_one_among_a_hundred_is_rejected_and_the_others_are_there(broker: Broker, bad: bytes) -> None:
    with amqp_client.connect(broker.amqp_url) as connection:
        sender = connection.sender("q")
        sender.send([GOOD] * 50 + [bad] + [GOOD] * 50)
        with pytest.raises(PenstockError, match=r"key twice|more than 4096 sections|value that is not simple, but a list"):
            sender.flush()
    assert available(broker) == 100
