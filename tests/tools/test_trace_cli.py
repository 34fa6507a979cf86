"""U10: one command shows where a message is and what happened to it: queues, dead letters, archive, several brokers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core.client.amqp import Connection, connect
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from ..waiting import until
from .conftest import Run

LIMIT_S = 60


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker", fsync="never", archive_after_s=0.2) as running:
        yield running


@pytest.fixture
def amqp(broker: Broker) -> Iterator[Connection]:
    with connect(broker.amqp_url, timeout_s=LIMIT_S) as connection:
        yield connection


def put(client: Client, queue: str, **columns: list[str]) -> None:
    rows = len(next(iter(columns.values())))
    batch = pa.record_batch({"body": pa.array([b"body"] * rows), **{name: pa.array(texts) for name, texts in columns.items()}})
    client.put({"op": "enqueue", "queue": queue}, batch.schema, [batch])


def with_dead_letters(client: Client) -> None:
    client.call("queue.declare", queue="orders-dead")
    client.call("queue.declare", queue="orders", options={"deadLetterQueue": "orders-dead"})


def all_recorded(client: Client) -> bool:
    return not client.call("archive.status")["unrecorded"]


def traced(penstock: Run, url: str, *arguments: str) -> list[dict[str, Any]]:
    output = penstock("trace", "--json", *arguments, url=url)
    assert output.returncode == 0, output.stderr
    messages: list[dict[str, Any]] = json.loads(output.stdout)
    return messages


def named(text: str) -> str:
    """Replace the random container id of our client."""
    return re.sub(r"penstock-client-\w+", "CLIENT", text)


def events(message: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event["event"], event["queue"]) for event in message["events"]]


def test_the_whole_life_of_a_message(penstock: Run, broker: Broker, client: Client, amqp: Connection) -> None:
    """Sent, rejected with an error, dead-lettered, redriven, delivered again and accepted; recorded in two archives."""
    with_dead_letters(client)
    put(client, "orders", messageId=["4710", "4711", "4712"], correlationId=["a", "order-7", "b"])
    receiver = amqp.receiver("orders", credit=3)
    received = receiver.receive(3, timeout_s=LIMIT_S)
    receiver.reject(received[1:2], "no such product")
    output = penstock("trace", "4711", url=broker.url)
    lines = output.stdout.splitlines()
    assert lines[0] == "message 4711, correlation id order-7"
    assert lines[1] == "waits in orders-dead (sequence number 0)"
    assert [named(line[25:]) for line in lines[3:5]] == [
        "arrived in orders (sequence number 1)",
        "dead-lettered to orders-dead (sequence number 0): rejected: amqp:not-allowed: no such product; last delivered to CLIENT",
    ]
    amqp.close()
    assert penstock("queue", "redrive", "orders-dead", url=broker.url).returncode == 0
    with connect(broker.amqp_url, timeout_s=LIMIT_S) as connection:
        receiver = connection.receiver("orders", credit=3)
        received = []
        while len(received) < 3:
            received += receiver.receive(3, timeout_s=LIMIT_S)
        (held,) = traced(penstock, broker.url, "4711")
        assert named(held["where"]) == "held in orders (sequence number 3) by CLIENT"
        receiver.accept(received)
        until(lambda: client.call("queue.stat", queue="orders")["acquired"] == 0, "the messages are settled")
    until(lambda: all_recorded(client), "all is recorded")
    for way in (["4711"], ["order-7"], ["--queue", "orders-dead", "--sequence", "0"], ["--where", "JMSMessageID = '4711'"]):
        (message,) = traced(penstock, broker.url, *way)
        assert [name for name, _ in events(message) if name not in ("failed", "recorded")] == [
            "arrived",
            "dead-lettered",
            "redriven",
            "settled",
        ], way
        assert events(message).count(("recorded", "orders")) == 2, message
        assert ("recorded", "orders-dead") in events(message)
        times = [event["time"] for event in message["events"] if event["time"] is not None]
        assert times == sorted(times)
        assert named(message["where"]) == "settled in orders as accepted by CLIENT"


def test_a_message_in_a_batch_of_a_query(penstock: Run, broker: Broker, client: Client) -> None:
    client.call("queue.declare", queue="orders")
    put(client, "orders", messageId=["1", "2"])
    lease = {"queue": "orders", "lease": "etl", "run": "r"}
    epoch = client.call("lease.advance", **lease, epoch=None, finished=0, fresh=True, messages=1)["epoch"]
    ticket = {"op": "batch", "lease": "etl", "run": "r", "epoch": epoch, "batch": 1, "first": 0, "last": 9, "columns": ["body"]}
    list(client.get(**ticket, query="q-1", queryBatch=16))
    (message,) = traced(penstock, broker.url, "1")
    assert message["where"] == "held in orders (sequence number 0) by q-1 (etl)"
    assert [event["text"] for event in message["events"]][1] == ("in batch 1 of lease etl, read: read in batch 16 of query q-1")


def test_a_message_without_an_id_is_followed_by_its_payload(
    penstock: Run, broker: Broker, client: Client, amqp: Connection
) -> None:
    with_dead_letters(client)
    put(client, "orders", subject=["one", "two"])
    receiver = amqp.receiver("orders", credit=1)
    receiver.reject(receiver.receive(1, timeout_s=LIMIT_S), "no")
    amqp.close()
    until(lambda: client.call("queue.stat", queue="orders")["available"] == 1, "the second message has returned")
    (message,) = traced(penstock, broker.url, "--queue", "orders", "--sequence", "0")
    assert [name for name, _ in events(message)][:2] == ["arrived", "dead-lettered"]
    assert message["where"] == "waits in orders-dead (sequence number 0)"
    (message,) = traced(penstock, broker.url, "--queue", "orders", "--sequence", "1")
    assert message["where"] == "waits in orders (sequence number 1)"


def test_a_delayed_message_is_found(penstock: Run, broker: Broker, client: Client) -> None:
    client.call("queue.declare", queue="orders")
    sent = penstock("send", "orders", "--delay", "3600", "--message-id", "late", "--whole", __file__, url=broker.amqp_url)
    assert sent.returncode == 0, sent.stderr
    (message,) = traced(penstock, broker.url, "late")
    assert message["where"].startswith("delayed in orders (sequence number 0) until ")


def test_several_brokers(tmp_path: Path, penstock: Run, broker: Broker, client: Client) -> None:
    """A producer that did not know whether its first attempt arrived has sent a message to both."""
    with Broker(tmp_path / "other", fsync="never") as other, Client(other.url) as other_client:
        for each in (client, other_client):
            each.call("queue.declare", queue="orders")
            put(each, "orders", messageId=["m"])
        both = f"{broker.url},{other.url}"
        for way in (["m"], ["--queue", "orders", "--sequence", "0"]):
            (message,) = traced(penstock, both, *way)
            assert {event["broker"] for event in message["events"]} == {broker.url, other.url}
            assert len(message["stays"]) == 2
        assert f", at {other.url}" in penstock("trace", "m", url=both).stdout


def test_the_answer_says_where_to_continue(client: Client) -> None:
    """A call returns a bounded number of stays; the next one continues behind them."""
    for queue in ("a", "b"):
        client.call("queue.declare", queue=queue)
        put(client, queue, messageId=["m"] * 3, correlationId=["c"] * 3)
    seen: list[tuple[str, int]] = []
    place = None
    for _ in range(9):
        answer = client.call("message.trace", id="c", count=2, resume=place)
        seen += [(stay["queue"], stay["sequenceNumber"]) for message in answer["messages"] for stay in message["stays"]]
        place = answer["next"]
        if place is None:
            break
    assert seen == [(queue, number) for queue in ("a", "b") for number in range(3)]


def test_wrong_calls(penstock: Run, broker: Broker, client: Client) -> None:
    client.call("queue.declare", queue="orders")
    for arguments, code, text in (
        ([], 2, "name the message in one way"),
        (["1", "--where", "a = 1"], 2, "name the message in one way"),
        (["--sequence", "1"], 2, "--sequence needs --queue NAME"),
        (["none"], 1, "no message with the message id or correlation id 'none'"),
        (["--queue", "orders", "--sequence", "1"], 1, "queue 'orders' has no message 1"),
        (["--queue", "none", "--sequence", "1"], 1, "no queue 'none'"),
        (["--where", "a ="], 1, "selector"),
    ):
        output = penstock("trace", *arguments, url=broker.url)
        assert (output.returncode, text in output.stderr) == (code, True), (arguments, output)
