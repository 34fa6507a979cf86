"""30.4: messages that people send, replace by an edited copy, and redrive by reason and error text."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.client.amqp import Connection, connect
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.states import AVAILABLE, Cause
from penstock.broker_core.messages.annotations import CHANGED_PROPERTY
from penstock.broker_core.messages.payloads import store, stored_sizes
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

from ..waiting import until
from .helpers import batch_of, browse, numbered, send


def shown(client: Client, queue: str, *states: str) -> list[dict[str, Any]]:
    return list(client.call("queue.messages", queue=queue, states=list(states or ("available",)))["messages"])


def test_a_message_is_sent_with_its_properties(client: Client) -> None:
    client.call("queue.declare", queue="letters")
    fields = {"subject": "s", "messageId": "m-1", "groupId": "g", "properties": {"n": 5, "on": True, "text": "<b>"}}
    assert client.call("message.send", queue="letters", body="hé", priority=7, **fields) == {"sequence": 0, "dropped": 0}
    client.call("message.send", queue="letters", bodyBase64=base64.b64encode(b"\xff").decode(), delay=3_600_000)
    (message,) = shown(client, "letters")
    assert (message["body"], message["subject"], message["priority"], message["durable"]) == ({"text": "hé"}, "s", 7, True)
    assert message["properties"] == {"n": "5", "on": "true", "text": "<b>"}
    selected = client.call("queue.messages", queue="letters", selector="n > 4 AND on = TRUE")
    assert len(selected["messages"]) == 1  # they have the types of their JSON
    (delayed,) = shown(client, "letters", "delayed")
    assert delayed["due"] > delayed["enqueuedTime"]
    client.call("exchange.declare", exchange="post", type="topic")
    client.call("exchange.bind", exchange="post", queue="letters", key="eu.*")
    assert client.call("message.send", exchange="post", routingKey="eu.1", body="x") == {"sequence": None, "dropped": 0}
    with pytest.raises(errors.Unroutable):
        client.call("message.send", exchange="post", routingKey="us.1", body="x")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "'queue' must be there, or 'exchange'"),
        ({"queue": "strict", "routingKey": "k"}, "'routingKey' needs an 'exchange'"),
        ({"queue": "strict", "body": "x", "bodyBase64": "eA=="}, "exclude each other"),
        ({"queue": "strict", "bodyBase64": "?"}, "is not base64"),
        ({"queue": "strict", "properties": {"a": [1]}}, "property 'a' must be a text"),
        ({"queue": "strict", "properties": {"a": 1 << 70}}, "property 'a' has more than 64 bits"),
        ({"queue": "strict", "body": "\ud800"}, "'body' is not a text|not UTF-8|surrogate"),
        ({"queue": "strict", "priority": 300}, "priority"),
        ({"queue": "strict", "delay": 1 << 60}, "'delay' must be below"),
        ({"queue": "strict", "priority": 1 << 40}, "cannot be encoded"),
        ({"queue": "strict", "ttl": 1 << 40}, "ttl"),
    ],
)
def test_a_wrong_message_is_refused_with_the_field(client: Client, fields: dict[str, Any], text: str) -> None:
    client.call("queue.declare", queue="strict")
    with pytest.raises(errors.InvalidRequest, match=text):
        client.call("message.send", **fields)
    assert shown(client, "strict") == []


def test_a_message_for_a_full_queue_is_refused_and_counted(client: Client) -> None:
    client.call("queue.declare", queue="one", options={"maxMessages": 1, "overflow": "reject"})
    client.call("message.send", queue="one", body="x")
    with pytest.raises(errors.QueueFull):
        client.call("message.send", queue="one", body="y")
    assert client.call("queue.stat", queue="one")["refusedMessages"] == {"full": 1}


def test_an_edited_copy_replaces_the_message(client: Client, amqp: Connection) -> None:
    client.call("queue.declare", queue="orders", options={"duplicateWindow": 100})
    sender = amqp.sender("orders")
    fields = Properties(message_id=b"\x01\x02", subject="old")
    original = Message(
        properties=fields, application_properties={"n": 7, "on": True}, message_annotations={"x-kept": 1}, data=[b"a", b"b"]
    )
    sender.send([original.encode()])
    sender.flush()
    send(client, "orders", [b"columns"])
    before = shown(client, "orders")[0]
    edited = {"body": "new", "properties": {**before["properties"], "more": "text"}}
    assert client.call("message.replace", queue="orders", sequence=0, target="orders", **edited)["sequence"] == 2
    _, copy = shown(client, "orders")
    same = ("messageId", "subject", "annotations")
    assert {name: copy[name] for name in same} == {name: before[name] for name in same}
    assert copy["body"] == {"text": "new"}
    assert copy["properties"] == {"n": "7", "on": "true", "more": "text"}
    assert len(client.call("queue.messages", queue="orders", selector="n = 7 AND on = TRUE")["messages"]) == 1
    (ended,) = shown(client, "orders", "archived")
    assert (ended["outcome"], ended["error"]) == ("replaced", "replaced by message 2")
    (traced,) = client.call("message.trace", queue="orders", sequence=0)["messages"]
    assert "settled in orders as replaced: replaced by message 2" in [event["text"] for event in traced["events"]]
    client.call("queue.declare", queue="repaired")
    answer = client.call("message.replace", queue="orders", sequence=1, target="repaired", subject="by columns")
    assert answer == {"queue": "repaired", "sequence": 0}
    (moved,) = shown(client, "repaired")
    assert (moved["body"], moved["subject"]) == ({"text": "columns"}, "by columns")


def test_an_edited_property_replaces_the_change_of_a_consumer(client: Client, amqp: Connection) -> None:
    """A program of Service Bus, which may change a property when it abandons a message, would not see the operator's value."""
    client.call("queue.declare", queue="changed")
    sender = amqp.sender("changed")
    sender.send([Message(application_properties={"n": 1, "on": True}, data=[b"x"]).encode()])
    sender.flush()
    send(client, "changed", [b"columns"])
    receiver = amqp.receiver("changed", credit=2)
    changes = {CHANGED_PROPERTY + "n": 2, CHANGED_PROPERTY + "m%20x": 3}
    receiver.modify(receiver.receive(2, timeout_s=10), annotations=changes)
    receiver.detach()
    until(lambda: len(shown(client, "changed")) == 2, "the messages are back")
    replace = {"queue": "changed", "target": "changed"}
    client.call("message.replace", sequence=0, properties={"n": 5, "on": "true"}, **replace)
    client.call("message.replace", sequence=1, properties={"m x": 9}, **replace)
    client.call("message.replace", sequence=2, properties={"n": "5", "on": False}, **replace)
    columns, encoded = shown(client, "changed")
    assert (columns["properties"], [*columns["annotations"]]) == ({"m x": "9"}, [CHANGED_PROPERTY + "n"])
    assert encoded["properties"] == {"n": "5", "on": "false"}
    assert encoded["annotations"] == {CHANGED_PROPERTY + "m%20x": "3"}


def test_the_second_operator_changes_nothing(client: Client, amqp: Connection) -> None:
    client.call("queue.declare", queue="twice")
    send(client, "twice", numbered(3))
    replace = {"queue": "twice", "target": "twice", "body": "x"}
    client.call("message.replace", sequence=0, **replace)
    with pytest.raises(errors.MessageNotFound, match=r"message 0 of queue 'twice' has ended already.*nothing was changed"):
        client.call("message.replace", sequence=0, **replace)
    held = amqp.receiver("twice", credit=1).receive(1, timeout_s=10)
    assert len(held) == 1
    with pytest.raises(errors.InUse, match=r"message 1 of queue 'twice' is held by .*nothing was changed"):
        client.call("message.replace", sequence=1, **replace)
    with pytest.raises(errors.MessageNotFound, match=r"has ended already|messages 0 to 3"):
        client.call("message.replace", sequence=99, **replace)
    client.call("queue.alter", queue="twice", options={"maxMessages": 3})
    with pytest.raises(errors.QueueFull):  # the copy does not fit: the original stays
        client.call("message.replace", sequence=2, **replace)
    assert [row["sequenceNumber"] for row in shown(client, "twice")] == [2, 3]


def test_a_dead_letter_that_stayed_is_edited_where_it_is(client: Client, amqp: Connection) -> None:
    """Without a redrive, after which a consumer could receive the original."""
    client.call("queue.declare", queue="stayed", options={"maxAttempts": 1})
    send(client, "stayed", [b"bad", b"accepted"])
    receiver = amqp.receiver("stayed", credit=2)
    bad, good = receiver.receive(2, timeout_s=10)
    receiver.modify([bad], failed=True)
    receiver.accept([good])
    until(lambda: client.call("queue.stat", queue="stayed")["stayed"] == 1, "the message has failed")
    receiver.detach()
    answer = client.call("message.replace", queue="stayed", sequence=0, target="stayed", body="good", subject="repaired")
    assert answer == {"queue": "stayed", "sequence": 2}
    (copy,) = shown(client, "stayed")
    assert (copy["body"], copy["subject"], copy.get("deliveryCount", 0)) == ({"text": "good"}, "repaired", 0)
    outcomes = {row["sequenceNumber"]: row["outcome"] for row in shown(client, "stayed", "archived")}
    assert outcomes == {0: "replaced", 1: "accepted"}
    assert client.call("queue.stat", queue="stayed")["stayed"] == 0
    for sequence in (0, 1):
        with pytest.raises(errors.MessageNotFound, match="has ended already"):
            client.call("message.replace", queue="stayed", sequence=sequence, target="stayed", body="x")


@pytest.mark.parametrize("has_stayed", [False, True])
def test_a_crash_leaves_the_original_or_the_copy(tmp_path: Path, has_stayed: bool) -> None:
    """The journal is cut at places within and around the records of the replacement."""
    data = tmp_path / "data"
    service = BrokerService(Settings(data=data, fsync="never"))
    try:
        service.submit(c.DeclareQueue("q", options={"maxAttempts": 1}))
        service.submit(_enqueue(b"original"))
        if has_stayed:
            link = service.submit(c.Subscribe("q"))
            rows = service.submit(c.Acquire("q", link, 1)).rows
            service.submit(c.Release("q", link, rows, Cause.MODIFIED))
            service.submit(c.Unsubscribe("q", link))
        (segment,) = data.rglob("*.seg")
        begin = segment.read_bytes().rstrip(b"\0")
        service.submit(c.Replace("q", 0, _enqueue(b"copy")))
        end = segment.read_bytes().rstrip(b"\0")
        saved = tmp_path / "saved"
        shutil.copytree(data, saved, ignore=shutil.ignore_patterns("lock"))
    finally:
        service.close()
    left = {_bodies(saved, tmp_path / "again", cut) for cut in (*range(len(begin), len(end), 40), len(end))}
    assert left == {("original",), ("copy",)}


def _enqueue(body: bytes) -> c.Enqueue:
    batch = batch_of([body])
    return c.Enqueue("q", 1, stored_sizes(batch), store(batch))


def _bodies(saved: Path, folder: Path, size: int) -> tuple[str, ...]:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(saved, folder)
    (segment,) = folder.rglob("*.seg")
    segment.write_bytes(segment.read_bytes()[:size])
    service = BrokerService(Settings(data=folder, fsync="never"))
    try:
        queue = service.state.queues["q"]
        block = queue.blocks[0]
        rows = [row for row in (0, 1) if row < queue.next_sequence]
        has_stayed = np.broadcast_to(block.stayed.get(slice(0, 2)), 2)
        return tuple(["original", "copy"][row] for row in rows if block.state[row] == AVAILABLE or has_stayed[row])
    finally:
        service.close()


def test_dead_letters_are_counted_and_redriven_by_text(client: Client, amqp: Connection, dead: Callable[..., str]) -> None:
    queue = dead("bills", {"no address": 3, "no price": 2, None: 1})
    groups = client.call("queue.deadLetters", queue=queue)
    assert groups == {
        "groups": [
            {"reason": "rejected", "error": "amqp:not-allowed: no address", "messages": 3},
            {"reason": "rejected", "error": "amqp:not-allowed: no price", "messages": 2},
            {"reason": "rejected", "error": "amqp:not-allowed: ", "messages": 1},
        ],
        "others": 0,
    }
    assert client.call("queue.deadLetters", queue=queue, count=1)["others"] == 3
    assert client.call("queue.redrive", queue=queue, reason="rejected", error=groups["groups"][1]["error"])["redriven"] == 2
    assert client.call("queue.redrive", queue=queue, reason="rejected", error="")["redriven"] == 0
    assert client.call("queue.redrive", queue=queue, reason="expired")["redriven"] == 0
    assert len(browse(client, queue)) == 4
    assert client.call("queue.redrive", queue=queue, reason="rejected")["redriven"] == 4
    for fields, text in (({"reason": "bored"}, "must be rejected, "), ({"error": "x"}, "'error' needs a 'reason'")):
        with pytest.raises(errors.InvalidRequest, match=text):
            client.call("queue.redrive", queue=queue, **fields)


@pytest.fixture
def amqp(broker: Broker) -> Iterator[Connection]:
    with connect(broker.amqp_url) as connection:
        yield connection


@pytest.fixture
def dead(client: Client, amqp: Connection) -> Callable[..., str]:
    """Makes a queue of rejected messages: how many by error text. Returns its name."""

    def make(queue: str, texts: dict[str | None, int]) -> str:
        client.call("queue.declare", queue=f"{queue}.dead")
        client.call("queue.declare", queue=queue, options={"deadLetterQueue": f"{queue}.dead"})
        send(client, queue, numbered(sum(texts.values())))
        receiver = amqp.receiver(queue, credit=sum(texts.values()))
        for text, count in texts.items():
            for _ in range(count):
                receiver.reject(receiver.receive(1, timeout_s=10), text)
        total = sum(texts.values())
        until(lambda: client.call("queue.stat", queue=f"{queue}.dead")["available"] == total, "all are dead letters")
        return f"{queue}.dead"

    return make
