"""One list of scenarios for the vendor's SDKs: Python with and without asyncio, JavaScript, Java.

An SDK's program starts once. Its connection stays open for all scenarios of a module, and each scenario has its own queue. The
list continues in test_service_bus_features.py.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

import penstock
from penstock import Broker
from penstock.broker_core.client.flight import Client

from ...waiting import until
from ..driving import Refused
from ..service_bus import Sdk, bodies, connection_string, declared, port_of, unsettled

_numbers = itertools.count()


# ---- sending


def test_a_message_arrives(sdk: Sdk, flight: Client, queue: str) -> None:
    sdk.send(queue, "hello")
    message = sdk.take(queue)
    assert (message["body"], message["delivery_count"], message["sequence_number"]) == ("hello", 0, 1)
    assert unsettled(flight, queue) == {"acquired": 1}
    sdk.settle(message)
    assert unsettled(flight, queue) == {}


def test_fields(sdk: Sdk, queue: str) -> None:
    names = ("message_id", "session_id", "subject", "to", "reply_to", "reply_to_session_id", "correlation_id", "content_type")
    fields = {name: f"the {name}" for name in names}
    sdk.send(queue, {"body": "x", **fields, "time_to_live": 60})
    before = time.time()
    message = sdk.take(queue)
    assert {name: message[name] for name in names} == fields
    assert message["state"] == "ACTIVE"
    assert before - 5 < message["enqueued_time_utc"] < time.time() + 1
    assert 59 < message["locked_until_utc"] - message["enqueued_time_utc"] < 75
    assert 30 < message["expires_at_utc"] - message["enqueued_time_utc"] <= 60


def test_application_properties(sdk: Sdk, queue: str) -> None:
    properties = {"text": "ü", "number": 7, "negative": -(2**20), "fraction": 0.5, "true": True}
    sdk.send(queue, {"body": "x", "application_properties": properties})
    assert sdk.take(queue)["properties"] == properties


def test_a_partition_key(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body": "x", "partition_key": "p"})
    assert sdk.take(queue)["partition_key"] == "p"


def test_a_session_id_is_the_group(sdk: Sdk, broker: Broker, queue: str) -> None:
    sdk.send(queue, {"body": "x", "session_id": "g"})
    with penstock.connect(broker.amqp_url) as connection:
        (message,) = connection.peek(queue)
    assert message.message.properties.group_id == "g"


@pytest.mark.parametrize("kind", ["value", "sequence"])
def test_other_bodies(kind: str, sdk: Sdk, queue: str) -> None:
    content = "a text" if kind == "value" else ["a", "list"]
    sdk.send(queue, {kind: content})
    assert sdk.take(queue)["body"] == content


def test_a_large_message(sdk: Sdk, queue: str) -> None:
    body = "0123456789" * 90_000
    sdk.send(queue, body)
    assert sdk.take(queue)["body"] == body


@pytest.mark.parametrize("how", ["batch", "together"])
def test_several_messages_in_one_step(how: str, sdk: Sdk, flight: Client, queue: str) -> None:
    sdk.send(queue, *map(str, range(100)), **{how: True})
    assert unsettled(flight, queue) == {"available": 100}
    assert bodies(sdk.receive(queue, 100)) == [str(number) for number in range(100)]


def test_scheduled_messages(sdk: Sdk, flight: Client, queue: str) -> None:
    soon = time.time() + 600
    numbers = sdk.do("schedule", to=queue, messages=[{"body": "a"}, {"body": "b"}], at=soon)["numbers"]
    assert numbers == [1, 2]
    assert unsettled(flight, queue) == {"delayed": 2}
    (first, second) = sdk.peek(queue, 2)
    assert (first["state"], first["scheduled_enqueue_time_utc"]) == ("SCHEDULED", pytest.approx(soon, abs=1))
    sdk.do("cancel", to=queue, numbers=[second["sequence_number"]])
    assert unsettled(flight, queue) == {"delayed": 1}
    with nullcontext() if sdk.name == "java" else sdk.fails("messagenotfound"):  # Java's SDK ignores this failure
        sdk.do("cancel", to=queue, numbers=[1, 2])
    assert unsettled(flight, queue) == {"delayed": 1}


def test_a_message_with_a_schedule(sdk: Sdk, flight: Client, queue: str) -> None:
    sdk.send(queue, {"body": "later", "scheduled_enqueue_time_utc": time.time() + 600}, "now")
    sdk.send(queue, {"body": "soon", "scheduled_enqueue_time_utc": time.time() + 0.5})
    assert bodies(sdk.receive(queue, 2)) == ["now", "soon"]


def test_duplicates_are_dropped(sdk: Sdk, flight: Client) -> None:
    queue = declared(flight, f"single-{next(_numbers)}", duplicateWindow=100)
    sdk.send(queue, {"body": "one", "message_id": "m"}, {"body": "again", "message_id": "m"}, {"body": "two", "message_id": "n"})
    assert bodies(sdk.receive(queue, 2)) == ["one", "two"]
    assert unsettled(flight, queue) == {"acquired": 2}


def test_an_unknown_queue(sdk: Sdk) -> None:
    reason = "servicebusauthentication" if sdk.name.startswith("python") else "messagingentitynotfound"  # of status 404 of $cbs
    with sdk.fails(reason):
        sdk.send("nowhere", "x")
    with sdk.fails("runtimeexception" if sdk.name == "java" else reason):
        sdk.receive("nowhere", wait=1)


# ---- receiving


def test_an_empty_queue_ends_the_wait(sdk: Sdk, flight: Client, queue: str) -> None:
    before = time.monotonic()
    assert sdk.receive(queue, wait=1) == []
    assert time.monotonic() - before < 3
    sdk.send(queue, "late")
    assert bodies(sdk.receive(queue)) == ["late"]


def test_a_call_returns_fewer_messages_than_asked(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, "a", "b")
    assert bodies(sdk.receive(queue, 10, wait=1)) == ["a", "b"]


def test_an_abandoned_message_comes_again(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, "x")
    first = sdk.take(queue)
    sdk.settle(first, how="abandon")
    again = sdk.take(queue)
    assert (again["body"], again["delivery_count"], again["sequence_number"]) == ("x", 1, 1)
    assert again["token"] != first["token"]


def test_too_many_deliveries_make_a_dead_letter(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, "bad")
    for count in range(3):
        message = sdk.take(queue)
        assert message["delivery_count"] == count
        sdk.settle(message, how="abandon")
    letter = sdk.take(f"{queue}/dead")
    assert (letter["body"], letter["dead_letter_reason"]) == ("bad", "MaxDeliveryCountExceeded")
    assert letter["dead_letter_source"] == queue


def test_a_dead_letter_has_reason_and_description(sdk: Sdk, flight: Client, queue: str) -> None:
    sdk.send(queue, "bad", "worse")
    bad, worse = sdk.receive(queue, 2)
    sdk.settle(bad, how="dead_letter", reason="Odd: really", description="It is odd.")
    sdk.settle(worse, how="dead_letter")
    first, second = sdk.receive(f"{queue}/dead", 2)
    assert (first["body"], first["dead_letter_reason"]) == ("bad", "Odd: really")
    assert (first["dead_letter_error_description"], first["dead_letter_source"]) == ("It is odd.", queue)
    assert (second["body"], second["dead_letter_reason"] or "") == ("worse", "")
    sdk.settle(first, second)
    assert unsettled(flight, f"{queue}-dead") == {}


def test_receive_and_delete(sdk: Sdk, flight: Client, queue: str) -> None:
    sdk.send(queue, "a", "b")
    messages = sdk.receive(queue, 2, delete=True)
    assert bodies(messages) == ["a", "b"]
    assert messages[0]["sequence_number"] == 1
    until(lambda: unsettled(flight, queue) == {}, "the messages are settled")


def test_prefetched_messages_go_back(sdk: Sdk, flight: Client, queue: str) -> None:
    sdk.send(queue, *map(str, range(20)), batch=True)
    sdk.settle(sdk.take(queue, prefetch=15))
    sdk.do("close", from_=queue)
    until(lambda: unsettled(flight, queue) == {"available": 19}, "the rest is available again")
    second = sdk.take(queue)
    assert second["body"] == "1"
    assert second["delivery_count"] == (sdk.name == "java")  # the other SDKs release prefetched messages


def test_the_locks_of_a_closed_receiver_end(sdk: Sdk, flight: Client, queue: str) -> None:
    sdk.send(queue, "x")
    sdk.take(queue)
    sdk.do("close", from_=queue)
    until(lambda: unsettled(flight, queue) == {"available": 1}, "the message is available again")
    assert sdk.take(queue)["body"] == "x"


def test_two_receivers_share_a_queue(sdk: Sdk, flight: Client, queue: str) -> None:
    sdk.send(queue, *map(str, range(10)), batch=True)
    one, two = sdk.receive(queue, 5), sdk.receive(f"{queue}#2", 5)
    assert sorted(bodies(one + two)) == [str(number) for number in range(10)]
    sdk.settle(*one, *two)
    assert unsettled(flight, queue) == {}


# ---- locks


def test_a_renewed_lock_holds(sdk: Sdk, flight: Client, queue: str) -> None:
    flight.call("queue.alter", queue=queue, options={"lockTimeout": 1000})
    sdk.send(queue, "slow", "other")
    slow, _ = sdk.receive(queue, 2)
    ends = []

    def other_ends() -> bool:
        ends.append(sdk.do("renew", token=slow["token"])["until"])
        return unsettled(flight, queue) == {"available": 1, "acquired": 1}

    until(other_ends, "the other lock has ended")
    sdk.settle(slow)
    assert ends[-1] > slow["locked_until_utc"]
    assert unsettled(flight, queue) == {"available": 1}


def test_the_sdk_renews_a_lock(sdk: Sdk, flight: Client, queue: str) -> None:
    seconds = 4 if sdk.name == "python-aio" else 2  # Python with asyncio looks once a second, and renews no shorter lock
    flight.call("queue.alter", queue=queue, options={"lockTimeout": seconds * 1000})
    sdk.send(queue, "slow")
    (message,) = sdk.do("process", from_=queue, count=1, busy=seconds + 0.5, auto_renew=30)["messages"]
    assert (message["body"], message["delivery_count"]) == ("slow", 0)
    until(lambda: unsettled(flight, queue) == {}, "the message is completed")


def test_an_expired_lock_is_lost(sdk: Sdk, flight: Client, queue: str) -> None:
    flight.call("queue.alter", queue=queue, options={"lockTimeout": 500})
    sdk.send(queue, "slow", "slower")
    slow, slower = sdk.receive(queue, 2)
    until(lambda: unsettled(flight, queue) == {"available": 2}, "the locks have ended")
    with sdk.fails("messagelocklost"):
        sdk.settle(slow)
    with sdk.fails("messagelocklost"):
        sdk.do("renew", token=slower["token"])
    assert sdk.take(queue)["delivery_count"] == 1


def test_a_queue_without_lock_timeout(sdk: Sdk, flight: Client, queue: str) -> None:
    flight.call("queue.alter", queue=queue, options={"lockTimeout": 0})
    sdk.send(queue, "x")
    message = sdk.take(queue, auto_renew=300)
    assert message["locked_until_utc"] > time.time() + 86_400
    sdk.settle(message)
    assert unsettled(flight, queue) == {}


# ---- peek


def test_peek_shows_waiting_locked_and_scheduled_messages(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, "locked", "waiting")
    sdk.do("schedule", to=queue, messages=[{"body": "later"}], at=time.time() + 600)
    sdk.take(queue)
    peeked = sdk.peek(queue, 10, number=1)
    seen = [(message["body"], message["sequence_number"], message["state"]) for message in peeked]
    assert seen == [("locked", 1, "ACTIVE"), ("waiting", 2, "ACTIVE"), ("later", 3, "SCHEDULED")]
    assert bodies(sdk.peek(queue, 1, number=2)) == ["waiting"]
    assert sdk.peek(queue, 1, number=4) == []


def test_peek_of_an_empty_queue_and_of_dead_letters(sdk: Sdk, queue: str) -> None:
    assert sdk.peek(queue) == []
    sdk.send(queue, "bad")
    sdk.settle(sdk.take(queue), how="dead_letter", reason="No", description="Not again.")
    (letter,) = sdk.peek(f"{queue}/dead")
    assert (letter["body"], letter["dead_letter_reason"]) == ("bad", "No")


# ---- the SDK's own loop


def test_a_loop_completes_messages(sdk: Sdk, flight: Client, queue: str) -> None:
    sdk.send(queue, *map(str, range(30)), batch=True)
    messages = sdk.do("process", from_=queue, count=30)["messages"]
    assert bodies(messages) == [str(number) for number in range(30)]
    until(lambda: unsettled(flight, queue) == {}, "all messages are completed")


def test_a_failure_in_a_loop_abandons_the_message(sdk: Sdk, flight: Client, queue: str) -> None:
    sdk.send(queue, "bad", "good")
    messages = sdk.do("process", from_=queue, count=3, fail=["bad"])["messages"]
    counts = sorted((message["body"], message["delivery_count"]) for message in messages)
    assert counts == [("bad", 0), ("bad", 1), ("good", 0)]
    until(lambda: unsettled(flight, queue) == {}, "all messages are completed")


def test_a_loop_completes_messages_of_other_clients(sdk: Sdk, flight: Client, queue: str) -> None:
    """Renewal needs a message id, which such messages lack."""
    flight.call("message.send", queue=queue, body="plain")
    (message,) = sdk.do("process", from_=queue, count=1, auto_renew=300)["messages"]
    assert message["body"] == "plain"
    until(lambda: unsettled(flight, queue) == {}, "the message is completed")


# ---- expiry


def test_an_expired_message_is_a_dead_letter(sdk: Sdk, flight: Client, queue: str) -> None:
    flight.call("queue.alter", queue=queue, options={"expired": "deadLetter"})
    sdk.send(queue, {"body": "old", "time_to_live": 1})
    letter = sdk.take(f"{queue}/dead")
    assert (letter["body"], letter["dead_letter_reason"]) == ("old", "TTLExpiredException")


# ---- topics


@pytest.fixture
def topic(flight: Client) -> str:
    """A topic with the subscriptions `all` and `sport`."""
    name = f"topic-{next(_numbers)}"
    flight.call("exchange.declare", exchange=name, type="topic")
    for subscription, key in (("all", "#"), ("sport", "sport.*")):
        flight.call("exchange.bind", exchange=name, queue=declared(flight, f"{name}.{subscription}"), key=key)
    return name


def test_each_subscription_of_a_topic_has_its_copies(sdk: Sdk, flight: Client, topic: str) -> None:
    sdk.send(topic, {"body": "goal", "subject": "sport.football"}, {"body": "rain", "subject": "weather"}, batch=True)
    sdk.send(topic, {"body": "set", "subject": "sport.tennis"})
    assert bodies(sdk.receive(f"{topic}/all", 3)) == ["goal", "rain", "set"]
    goal, match = sdk.receive(f"{topic}/sport", 2)
    assert (goal["body"], match["body"], goal["sequence_number"]) == ("goal", "set", 1)
    assert bodies(sdk.peek(f"{topic}/sport", number=2)) == ["set"]
    sdk.settle(goal, match)
    assert unsettled(flight, f"{topic}.sport") == {}


def test_a_subscription_has_dead_letters(sdk: Sdk, flight: Client, topic: str) -> None:
    sdk.send(topic, {"body": "goal", "subject": "sport.football"})
    sdk.settle(sdk.take(f"{topic}/sport"), how="dead_letter", reason="No", description="Not again.")
    letter = sdk.take(f"{topic}/sport/dead")
    assert (letter["body"], letter["dead_letter_reason"]) == ("goal", "No")


# ---- connections


@pytest.fixture
def apart(connected: Sdk, broker: Broker) -> Iterator[Sdk]:
    """The program with a connection of the test's own, and afterwards the usual one."""
    connected.do("close")
    yield connected
    connected.do("close")
    connected.do("open", connection=connection_string(broker))


def test_the_sdk_connects_again(apart: Sdk, broker: Broker, flight: Client, queue: str) -> None:
    apart.do("open", connection=connection_string(broker), retries=3)
    apart.send(queue, "before")
    for connection in flight.call("connection.list")["connections"]:
        if connection["protocol"] == "amqp":
            flight.call("connection.close", id=connection["id"])

    def is_sent() -> bool:
        try:
            apart.send(queue, "after")
        except Refused:  # JavaScript's SDK repeats no attempt during the close
            return False
        return True

    until(is_sent, "the SDK has connected again")
    assert bodies(apart.receive(queue, 2)) == ["before", "after"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[tuple[Broker, str]]:
    """A broker with the user `shop`, and a key of this user. Its listeners: plain, TLS, WebSocket with TLS."""
    data = tmp_path_factory.mktemp("guarded") / "data"
    with Broker(data, fsync="never") as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="orders")
        client.call("queue.declare", queue="secrets")
    _penstock("user", "add", "shop", "--password-file", "-", data=data, stdin="a password\n")
    _penstock("permit", "shop", "orders", "send,receive", data=data)
    key = _penstock("user", "key", "shop", data=data).partition(";SharedAccessKey=")[2].strip()
    listeners = [{"port": 0, "dialect": "service-bus", **more} for more in ({}, {"tls": True}, {"tls": True, "websocket": True})]
    files = {f"tls_{name}_file": str(certificates / "broker.pem") for name in ("cert", "key")}
    with Broker(data, fsync="never", listeners=listeners, **files) as broker:
        yield broker, key
        assert "Traceback" not in broker.log()


def _penstock(*arguments: str, data: Path, stdin: str = "") -> str:
    command = [sys.executable, "-m", "penstock", *arguments, "--data", str(data)]
    return subprocess.run(command, input=stdin, text=True, check=True, capture_output=True).stdout


REFUSED = ("servicebusauthentication", "unauthorizedaccess", "unauthorized")  # Python, JavaScript, Java


def test_a_key_of_a_user_opens_what_the_user_may_use(apart: Sdk, guarded: tuple[Broker, str]) -> None:
    broker, key = guarded
    apart.do("open", connection=connection_string(broker, "shop", key))
    apart.send("orders", "mine")
    message = apart.take("orders")
    assert message["body"] == "mine"
    apart.settle(message)
    with apart.fails(*REFUSED):
        apart.send("secrets", "x")


@pytest.mark.parametrize(("name", "key"), [("shop", "d3Jvbmc="), ("nobody", None)])
def test_another_key_is_refused(apart: Sdk, guarded: tuple[Broker, str], name: str, key: str | None) -> None:
    broker, right = guarded
    apart.do("open", connection=connection_string(broker, name, key or right))
    with apart.fails(*REFUSED):
        apart.send("orders", "x")


@pytest.mark.parametrize("scheme", ["amqps", "wss"])
def test_tls_and_websocket(apart: Sdk, guarded: tuple[Broker, str], certificates: Path, scheme: str) -> None:
    broker, key = guarded
    place = f"Endpoint=sb://localhost:{port_of(broker, scheme)};SharedAccessKeyName=shop;SharedAccessKey={key}"
    apart.do("open", connection=place, ca=str(certificates / "ca.pem"), websocket=scheme == "wss")
    apart.send("orders", scheme)
    message = apart.take("orders")
    assert message["body"] == scheme
    apart.settle(message)
