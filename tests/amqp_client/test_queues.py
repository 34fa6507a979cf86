"""The client's short way (U8): send by address, iterate over a queue, settle one message, at a real broker."""

from __future__ import annotations

import inspect
import re
import threading
from datetime import timedelta
from typing import Any

import pytest

from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import Message, events
from penstock.broker_core.client.app import Connection, producer_pool
from penstock.broker_core.client.app.composing import Fields, composed
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from ..waiting import until
from .applications import LIMIT_S, body_of, connect, stat
from .peer import Peer


def test_json_and_fields_arrive_as_they_were_sent(broker: Broker, connection: Connection) -> None:
    broker.declare("orders")
    orders = connection.queue("orders")
    orders.send(json={"id": 7, "name": "zwölf"}, subject="new", properties={"colour": "red", "size": 5}, priority=7)
    orders.send("text", correlation_id="c1", reply_to="answers", message_id="m1")
    orders.send(b"octets")
    first, second, third = orders.receive(limit=3, timeout=LIMIT_S)
    assert (first.json(), first.subject, first.properties) == ({"id": 7, "name": "zwölf"}, "new", {"colour": "red", "size": 5})
    assert first.message.properties is not None
    assert first.message.header is not None
    assert (first.message.properties.content_type, first.message.header.priority) == ("application/json", 7)
    assert (second.body, second.correlation_id, second.reply_to, second.message_id) == ("text", "c1", "answers", "m1")
    assert third.body == b"octets"
    with pytest.raises(ValueError, match="Expecting value"):
        second.json()


def test_the_loop_accepts_what_it_has_seen(broker: Broker, connection: Connection) -> None:
    """Each message is accepted when the next one is requested, the last when the loop ends, unless it was settled otherwise."""
    broker.declare("looped")
    queue = connection.queue("looped")
    for number in range(5):
        queue.send(json=number)
    seen = []
    for message in queue.receive(limit=4):
        seen.append(message.json())
        if message.json() == 1:
            message.reject("not wanted")
    assert seen == [0, 1, 2, 3]

    def counts() -> tuple[int, int, int]:
        stats = stat(broker, "looped")
        return stats["available"], stats["acquired"], stats["archived"]

    until(lambda: counts() == (1, 0, 4), "four are settled, and one is left")  # the acceptance is asynchronous
    with Client(broker.url) as client:
        ticket = {"op": "browse", "queue": "looped", "states": ["archived"], "columns": ["outcome", "error"]}
        rows = [row for batch in client.get(**ticket) for row in batch.to_pylist()]
    assert [row["outcome"] for row in rows] == ["accepted", "rejected", "accepted", "accepted"]
    assert rows[1]["error"].endswith("not wanted")


@pytest.mark.parametrize("ended", ["exception", "break", "accepted before the break"])
def test_a_loop_that_ends_early_gives_back_what_it_has_not_settled(broker: Broker, connection: Connection, ended: str) -> None:
    broker.declare(ended)
    queue = connection.queue(ended)
    for number in range(3):
        queue.send(json=number)
    try:
        for message in queue.receive():
            if message.json() == 1:
                if ended == "exception":
                    raise RuntimeError("a handler's mistake")
                if ended.startswith("accepted"):
                    message.accept()
                break
    except RuntimeError:
        pass
    rest = [(message.json(), message.delivery_count) for message in queue.receive(timeout=0.5)]
    assert rest == ([(2, 0)] if ended.startswith("accepted") else [(1, 1), (2, 0)])


def test_release_does_not_count_and_retry_does(broker: Broker, connection: Connection) -> None:
    broker.declare("again")
    queue = connection.queue("again")
    queue.send("once more")
    counts = []
    for message in queue.receive(limit=3):
        counts.append(message.delivery_count)
        (message.release, message.retry, message.accept)[len(counts) - 1]()
    assert counts == [0, 0, 1]


def test_a_send_to_no_queue_raises_and_the_connection_goes_on(broker: Broker, connection: Connection) -> None:
    with pytest.raises(errors.NotFound):
        connection.send("nowhere", "lost")
    broker.declare("nowhere")
    connection.send("nowhere", "found")
    assert stat(broker, "nowhere")["available"] == 1


def test_a_queue_that_was_made_anew_takes_what_is_sent_next(broker: Broker, connection: Connection) -> None:
    """The link to the former one ended while no message was sent."""
    broker.declare("anew")
    connection.send("anew", "one")
    with Client(broker.url) as client:
        client.call("queue.delete", queue="anew")
    broker.declare("anew")
    connection.send("anew", "two")
    assert stat(broker, "anew")["available"] == 1


def test_a_long_reason_is_cut_and_reaches_the_broker(broker: Broker, connection: Connection) -> None:
    """A reason larger than a frame, with half a surrogate pair in it."""
    broker.declare("long-reason")
    connection.send("long-reason", "x")
    for message in connection.queue("long-reason").receive(limit=1):
        message.reject("\ud800" + "because " * 50_000)
    assert stat(broker, "long-reason")["archived"] == 1


def test_a_refused_message_is_told_to_its_sender_alone(broker: Broker, connection: Connection) -> None:
    broker.declare("small", maxMessages=1, overflow="reject")
    connection.send("small", "first")
    with pytest.raises(errors.PenstockError, match="is full"):
        connection.send("small", "second")
    connection.close()  # raises nothing: the refusal was already raised


def test_many_threads_and_more_addresses_than_producers_are_kept(broker: Broker, connection: Connection) -> None:
    """Every message arrives once, although producers are closed for other addresses."""
    names = [f"many-{number}" for number in range(producer_pool.MAX_IDLE_PRODUCERS + 6)]
    for name in names:
        broker.declare(name)
    failures: list[Exception] = []

    def send(offset: int) -> None:
        try:
            for turn in range(len(names)):
                connection.send(names[(offset + turn) % len(names)], "x")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=send, args=(7 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with Client(broker.url) as client:
        depths = {queue["queue"]: queue["available"] for queue in client.call("queue.list")["queues"]}
    assert {name: depths[name] for name in names} == dict.fromkeys(names, 4)


def test_a_slow_attach_holds_up_no_send_to_another_address() -> None:
    """The peer answers the attach to *slow* after that to *fast*. Both senders to *slow* share one link."""
    slow: list[events.Attached] = []

    def hold(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        address = getattr(event.attach.target, "address", None) if isinstance(event, events.Attached) else None
        if isinstance(event, events.Attached) and address == "slow" and not slow:
            slow.append(event)
            return True
        if address == "fast":
            link, asked = slow[0].link, slow[0].attach
            assert isinstance(link, amqp.Receiver)
            link.attach(source=asked.source, target=asked.target)
            link.grant(10)
        return False

    with Peer(hook=hold) as peer, connect(peer.url, timeout_s=5) as connection:
        senders = [threading.Thread(target=connection.send, args=("slow", name)) for name in (b"1", b"2")]
        for sender in senders:
            sender.start()
        until(lambda: slow, "the peer is asked to attach")
        connection.send("fast", b"3")
        for sender in senders:
            sender.join(LIMIT_S)
        assert sorted(map(body_of, peer.received)) == [b"1", b"2", b"3"]
        assert len([event for event in peer.seen if isinstance(event, events.Attached)]) == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"body": "a", "json": 1}, "a body or json, not both"),
        ({"body": {"id": 7}}, "a body of type dict cannot be sent: give octets or a text"),
        # JSON.
        ({"json": object()}, "cannot be written as JSON"),
        ({"json": float("nan")}, "cannot be written as JSON"),
        # A whole message.
        ({"body": Message(data=[b"x"]), "subject": "s"}, "set its fields in the Message"),
        # Numbers.
        ({"body": "a", "priority": 10}, "0 to 9"),
        ({"body": "a", "delay": "5"}, "delay is seconds as a number, or a timedelta"),
        ({"body": "a", "ttl": timedelta(days=-1)}, "not -86400"),
        ({"body": "a", "delay": -1}, "delay is seconds from 0 to 316,223,999"),
        ({"body": "a", "delay": 316_224_000}, "delay is seconds from 0 to 316,223,999, not 316224000"),
        ({"body": "a", "ttl": 1 << 32}, "ttl is seconds from 0 to 4,294,967"),
    ],
)
def test_what_cannot_be_sent_is_said(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=reason):
        composed(**arguments)


@pytest.mark.parametrize("address", ["/queues/plain", "queue://plain", "amqp://localhost/plain"])
def test_an_address_of_another_broker_gives_the_plain_one(broker: Broker, connection: Connection, address: str) -> None:
    broker.declare("plain")
    with pytest.raises(errors.NotFound, match="use 'plain'"):
        connection.send(address, "x")
    with pytest.raises(errors.NotFound, match="use 'plain'"):
        list(connection.queue(address).receive(limit=1, timeout=LIMIT_S))
    connection.send("plain", "x")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"prioriti": 7}, "a message has no argument 'prioriti': did you mean 'priority'?"),
        ({"Subject": "s"}, "did you mean 'subject'?"),
        ({"bodi": "x"}, "did you mean 'body'?"),
        ({"colour": "red"}, "a message has no argument 'colour': give one of content_type, correlation_id, delay, durable"),
    ],
)
def test_a_wrong_name_of_an_argument_gets_a_suggestion(
    broker: Broker, connection: Connection, arguments: Any, reason: str
) -> None:
    broker.declare("misnamed")
    with connection.session() as session:
        producer = session.producer("misnamed")
        for send in (connection.queue("misnamed").send, producer.send):
            with pytest.raises(errors.InvalidRequest, match=re.escape(reason)):
                send(**arguments)
        with pytest.raises(errors.InvalidRequest, match="did you mean 'synchronous'"):
            producer.send("x", sinchronous=True)  # type: ignore[call-arg]


def test_a_producer_takes_the_fields_of_a_queue_and_times_may_be_timedeltas(broker: Broker, connection: Connection) -> None:
    broker.declare("timed")
    with connection.session() as session:
        fields: Fields = {"json": {"id": 7}, "subject": "new", "properties": {"size": 5}, "priority": 7}
        session.producer("timed").send(**fields, ttl=timedelta(minutes=1), delay=timedelta(milliseconds=1))
    (message,) = connection.queue("timed").receive(limit=1, timeout=timedelta(seconds=LIMIT_S))
    assert message.message.header is not None
    assert (message.json(), message.subject, message.properties) == ({"id": 7}, "new", {"size": 5})
    assert message.message.header.priority == 7
    made = composed("x", delay=timedelta(minutes=1), ttl=timedelta(minutes=2))
    assert made.header is not None
    assert (made.message_annotations, made.header.ttl) == ({"x-opt-delivery-delay": 60_000}, 120_000)


def test_type_checkers_know_every_field() -> None:
    assert [*Fields.__annotations__] == [*inspect.signature(composed).parameters][1:]


def test_json_null_is_a_body(broker: Broker, connection: Connection) -> None:
    broker.declare("null")
    connection.send("null", json=None)
    (message,) = connection.queue("null").receive(limit=1, timeout=LIMIT_S)
    assert (message.body, message.json()) == (b"null", None)
