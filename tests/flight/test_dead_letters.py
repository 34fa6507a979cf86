"""Q13 Q20 Q21 over the wire: a dead letter contains its reason, and waiting clients are notified of returned messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock import Broker
from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.broker_core.amqp.types import Symbol
from penstock.broker_core.client import amqp as amqp_client
from penstock.broker_core.client import app
from penstock.broker_core.client.discovery import this_host
from penstock.broker_core.client.flight import Client
from penstock.broker_core.messages.columns import STRING_MAP

from .helpers import Reader, browse, numbered, send

KEYS = ["x-opt-death-reason", "x-opt-death-queue", "x-opt-death-sequence", "x-opt-death-time", "x-opt-death-error"]


@pytest.fixture
def dead(client: Client, queue: str) -> str:
    """The dead-letter queue of `queue`, with three messages: an AMQP client sent the first with annotations, Spark the others."""
    name = f"dead of {queue}"
    client.call("queue.declare", queue=name)
    client.call("queue.alter", queue=queue, options={"deadLetterQueue": name, "maxAttempts": 1})
    return name


def kill(broker: Broker, client: Client, queue: str) -> None:
    with amqp_client.connect(broker.amqp_url) as connection:
        annotations = {Symbol("x-mine"): "1", Symbol("x-opt-death-reason"): "a forgery"}
        sender = connection.sender(queue)
        sender.send([amqp.Message(message_annotations=annotations, data=[b"amqp"]).encode()])
        sender.flush()
        sent = send(client, queue, numbered(2))
        assert sent["next"] == 3
        receiver = connection.receiver(queue, limit=3)
        got: list[Any] = []
        while len(got) < 3:
            got += receiver.receive(timeout_s=30)
        receiver.reject(got[:2], "no such customer")
        receiver.modify(got[2:], annotations={Symbol("x-tried"): "here"})


def test_an_amqp_client_sees_why_and_where_it_died(broker: Broker, client: Client, queue: str, dead: str) -> None:
    kill(broker, client, queue)
    assert client.call("queue.stat", queue=queue)["deadLettered"] == 3
    with amqp_client.connect(broker.amqp_url) as connection:
        receiver = connection.receiver(dead, limit=3)
        got: list[Any] = []
        while len(got) < 3:
            got += receiver.receive(timeout_s=30)
    # Outcomes of one turn may be applied in another order than they were sent.
    messages = [amqp.decode_message(delivery.payload) for delivery in got]
    messages.sort(key=lambda message: int(message.message_annotations[Symbol(KEYS[2])]))
    for number, message in enumerate(messages):
        annotations = message.message_annotations
        assert [annotations.get(Symbol(key)) for key in KEYS[1:3]] == [queue, number]
        assert annotations[Symbol("x-opt-death-time")] > 1_700_000_000_000
        assert message.header is None or not message.header.delivery_count
    reasons = [[m.message_annotations.get(Symbol(key)) for key in (KEYS[0], KEYS[4])] for m in messages]
    assert reasons == [["rejected", "amqp:not-allowed: no such customer"]] * 2 + [["delivery_limit", None]]
    assert messages[0].message_annotations[Symbol("x-mine")] == "1"
    assert messages[2].message_annotations[Symbol("x-tried")] == "here"


def test_spark_sees_it_too_and_what_is_redriven_has_nothing_of_it(broker: Broker, client: Client, queue: str, dead: str) -> None:
    kill(broker, client, queue)
    rows = browse(client, dead, "annotations", "deliveryCount")
    annotations = sorted((dict(row["annotations"]) for row in rows), key=lambda entry: int(entry[KEYS[2]]))
    assert [[entry.get(key) for key in KEYS[:3]] for entry in annotations] == [
        ["rejected", queue, "0"],
        ["rejected", queue, "1"],
        ["delivery_limit", queue, "2"],
    ]
    assert [row["deliveryCount"] for row in rows] == [0, 0, 0]
    reader = Reader(client, dead)
    ticket = reader.ticket(reader.advance(), columns=["annotations"])
    with pytest.raises(errors.NotMappable):
        list(client.get(**{**ticket, "op": "map", "host": this_host()}))
    client.call("lease.release", lease=reader.lease, how="return")
    assert client.call("queue.redrive", queue=dead)["redriven"] >= 1
    back = browse(client, queue, "annotations", "body", first=3)
    assert sorted(row["body"] for row in back) == sorted([b"amqp", *numbered(2)])[: len(back)]
    assert all(set(KEYS[1:]).isdisjoint(dict(row["annotations"] or ())) for row in back)


def test_what_expired_has_no_time_any_more(broker: Broker, client: Client, queue: str, dead: str) -> None:
    """Q9 Q13: an expired dead letter has no time to live, for the broker and for its receiver, which would otherwise expire it
    again."""
    client.call("queue.alter", queue=queue, options={"expired": "deadLetter"})
    sent = amqp.Message(header=Header(ttl=50), properties=Properties(absolute_expiry_time=1_700_000_000_000), data=[b"amqp"])
    with amqp_client.connect(broker.amqp_url) as connection:
        sender = connection.sender(queue)
        sender.send([sent.encode()])
        sender.flush()
        send(client, queue, pa.record_batch({"body": pa.array([b"flight"]), "ttl": pa.array([50])}))
        receiver = connection.receiver(dead, limit=2)
        got: list[Any] = []
        while len(got) < 2:
            got += receiver.receive(timeout_s=30)
        headers = [amqp.decode_message(delivery.payload).header or Header() for delivery in got]
        assert [header.ttl for header in headers] == [None, None]
        receiver.release(got)
    with app.connect(broker.amqp_url) as connection:
        consumer = connection.session().consumer(dead)
        assert {consumer.receive(30).body for _ in got} == {b"amqp", b"flight"}


def test_what_stayed_says_why_in_the_archive(broker: Broker, client: Client, queue: str, dead: str) -> None:
    """Q13: there is no dead-letter queue, so the message is where it was, with its reason."""
    client.call("queue.delete", queue=dead)
    kill(broker, client, queue)
    assert client.call("queue.stat", queue=queue)["stayed"] == 3
    rows = browse(client, queue, "annotations", "outcome", states=["archived"], outcome="dead-lettered")
    annotations = [dict(row["annotations"]) for row in rows]
    assert [entry[KEYS[0]] for entry in annotations] == ["rejected", "rejected", "delivery_limit"]
    assert {entry[KEYS[1]] for entry in annotations} == {queue}
    with pytest.raises(errors.InvalidRequest, match="pairs"):
        client.call("queue.redrive", queue=queue, ranges=[0])
    assert client.call("queue.redrive", queue=queue, ranges=[2, 2, 0, 0, 7, 9]) == {"redriven": 2, "stayed": 0}
    assert client.call("queue.redrive", queue=queue) == {"redriven": 1, "stayed": 0}
    assert client.call("queue.stat", queue=queue)["available"] == 3


def test_a_selector_chooses_of_those_that_wait_and_of_those_that_stayed(client: Client, queue: str, dead: str) -> None:
    """U3: the broker applies the selector to any number of messages. Messages that are not dead letters stay where they are."""
    colours = pa.array([[("colour", colour)] for colour in ("red", "blue") * 5], STRING_MAP)
    coloured = pa.record_batch([pa.array([b"%d" % number for number in range(10)]), colours], names=["body", "properties"])

    def die() -> None:
        sent = send(client, queue, coloured)
        reader = Reader(client, queue, f"before {sent['next']}")
        reader.advance()
        for sequence in range(sent["next"] - 10, sent["next"]):
            client.call("lease.settleRow", lease=reader.lease, sequence=sequence, outcome="rejected")

    def redriven(name: str, **fields: Any) -> list[bytes]:
        before = client.call("queue.stat", queue=queue)["available"]
        reply = client.call("queue.redrive", queue=name, **fields)
        assert client.call("queue.stat", queue=queue)["available"] - before == reply["redriven"]
        client.call("queue.move", queue=queue, target=f"back in {queue}")
        bodies_back = [row["body"] for row in browse(client, f"back in {queue}")]
        client.call("queue.purge", queue=f"back in {queue}")
        return bodies_back

    client.call("queue.declare", queue=f"back in {queue}")
    assert redriven(dead, selector="colour = 'red'") == []
    die()
    send(client, dead, coloured)  # no dead letters
    assert redriven(dead, selector="colour = 'red'", messages=2) == [b"0", b"2"]
    assert redriven(dead, selector="colour = 'blue'", ranges=[3, 5, 0, 1]) == [b"1", b"3", b"5"]
    assert redriven(dead, selector="colour = 'red'") == [b"4", b"6", b"8"]
    assert client.call("queue.stat", queue=dead)["available"] == 2 + 10
    client.call("queue.delete", queue=dead, force=True)  # from here on they stay where they die
    die()
    assert client.call("queue.stat", queue=queue)["stayed"] == 10
    assert redriven(queue, selector="colour = 'blue'") == [b"1", b"3", b"5", b"7", b"9"]
    with pytest.raises(errors.InvalidSelector):
        redriven(queue, selector="colour =")
    with pytest.raises(errors.QueueNotFound):
        client.call("queue.redrive", queue="nowhere", selector="colour = 'red'")


def test_who_waits_gets_what_is_moved_redriven_and_resumed(broker: Broker, client: Client, queue: str, dead: str) -> None:
    """Q13 Q20 Q21: no wake-up is lost."""
    with amqp_client.connect(broker.amqp_url) as connection:
        receiver = connection.receiver(queue)

        def gets(*bodies: bytes) -> None:
            got: list[Any] = []
            while len(got) < len(bodies):
                got += receiver.receive(timeout_s=30)
            assert [b"".join(amqp.decode_message(delivery.payload).data) for delivery in got] == list(bodies)
            receiver.reject(got)

        send(client, dead, [b"moved"])
        assert client.call("queue.move", queue=dead, target=queue) == {"moved": 1, "full": False}
        gets(b"moved")
        while not client.call("queue.stat", queue=dead)["available"]:
            pass
        assert client.call("queue.redrive", queue=dead)["redriven"] == 1
        gets(b"moved")
        assert client.call("queue.pause", queue=queue)["changed"]
        send(client, queue, [b"later"])
        assert not receiver.receive(timeout_s=0.2)
        assert client.call("queue.resume", queue=queue)["changed"]
        gets(b"later")
