"""W4: all other clients and Spark receive each client's messages with the same values and the same octets."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from .conftest import Start
from .tap import Tap
from .test_each import ALL, NAMES
from .views import as_seen, bodies_between, body_as_seen, values_between

#: Of sender and receiver. A pair with proton, which shows each message unchanged, is enough for a client that is not among NAMES.
PAIRS = [*itertools.product(NAMES, NAMES), ("fe2o3_amqp", "proton"), ("proton", "fe2o3_amqp")]


def messages_between(sender: str, receiver: str) -> list[dict[str, Any]]:
    """One message for each form of body, all with the same properties."""
    properties: dict[str, Any] = {
        "correlation-id": {"string": "c-1"},
        "subject": "subject",
        "reply-to": "replies",
        "group-id": "group",
        "group-sequence": 7,
    }
    if sender != "qpid_jms":  # which makes its own
        properties |= {
            "message-id": {"string": "ID:m-1"},
            "user-id": "75736572",
            "content-encoding": "none",
            "reply-to-group-id": "others",
            "creation-time": 1_700_000_000_123,
            "absolute-expiry-time": 4_100_000_000_000,
        }
    application = values_between(sender, receiver)
    return [
        {"durable": True, "priority": 6, "properties": properties, "application": application, "body": body}
        for body in bodies_between(sender, receiver)
    ]


def check(sent: dict[str, Any], received: dict[str, Any], receiver: str) -> None:
    assert received["body"] == body_as_seen(sent["body"], receiver)
    assert received["application"] == {name: as_seen(value, receiver) for name, value in sent["application"].items()}
    assert (received["durable"], received["priority"], received["deliveryCount"]) == (True, 6, 0)
    for name, value in sent["properties"].items():
        if name in received["properties"] or receiver != "qpid_jms":
            assert received["properties"][name] == (as_seen(value, receiver) if isinstance(value, dict) else value), name


def browsed(flight: Client, queue: str, *columns: str) -> list[dict[str, Any]]:
    return [row for batch in flight.get(op="browse", queue=queue, columns=list(columns)) for row in batch.to_pylist()]


@pytest.mark.parametrize(("sender", "receiver"), PAIRS)
def test_each_receives_what_each_other_sends(
    sender: str, receiver: str, start: Start, broker: Broker, flight: Client, queue: str
) -> None:
    sent = messages_between(sender, receiver)
    with Tap(broker.amqp_url) as tap:
        start(sender, tap.url).send(queue, *sent)
        stored = [row["message"] for row in browsed(flight, queue, "message")]
        received = start(receiver, tap.url).receive(queue, len(sent))
        went, came = tap.sent(), tap.received()
    for original, arrival in zip(sent, received, strict=True):
        check(original, arrival, receiver)
    # A bare message leaves unchanged, to clients and to Spark.
    assert len(went) == len(sent)
    assert came == went
    assert stored == went


@pytest.mark.parametrize("sender", ALL)
def test_spark_reads_what_each_sends(sender: str, start: Start, broker: Broker, flight: Client, queue: str) -> None:
    sent = messages_between(sender, sender)
    start(sender, broker.amqp_url).send(queue, *sent)
    rows = browsed(flight, queue, "body", "subject", "correlationId", "groupId", "durable", "priority", "properties")
    for message, row in zip(sent, rows, strict=True):
        assert (row["subject"], row["correlationId"], row["groupId"]) == ("subject", "c-1", "group")
        assert (row["durable"], row["priority"]) == (True, 6)
        seen = dict(row["properties"])
        assert set(seen) == set(message["application"])
        assert (seen["yes"], seen["int"], seen["string"]) == ("true", "2000000000", "grüße, 世界 🦀")
        if "data" in message["body"]:
            assert row["body"].hex() == message["body"]["data"]
        elif "string" in message["body"].get("value", {}):
            assert row["body"].decode() == message["body"]["value"]["string"]


@pytest.mark.parametrize("receiver", ALL)
def test_what_spark_sent_every_client_receives(receiver: str, start: Start, broker: Broker, flight: Client, queue: str) -> None:
    import pyarrow as pa

    batch = pa.record_batch(
        {
            "body": pa.array([b"\x00\x01", b"two"], pa.binary()),
            "messageId": pa.array(["m-1", None]),
            "correlationId": pa.array(["c-1", None]),
            "subject": pa.array(["subject", None]),
            "priority": pa.array([6, None], pa.int16()),
            "durable": pa.array([True, None]),
            "properties": pa.array([[("colour", "blue")], None], pa.map_(pa.string(), pa.string())),
        }
    )
    flight.put({"op": "enqueue", "queue": queue}, batch.schema, [batch])
    first, second = start(receiver, broker.amqp_url).receive(queue, 2)
    assert first["body"] == {"data": "0001"}
    assert second["body"] == {"data": b"two".hex()}
    assert first["properties"]["subject"] == "subject"
    assert first["properties"]["correlation-id"] == {"string": "c-1"}
    assert first["application"] == {"colour": {"string": "blue"}}
    assert (first["durable"], first["priority"]) == (True, 6)
    assert second["application"] == {}
