"""The vendor's Python SDK for Azure Service Bus, unmodified, at a listener with its dialect."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .conftest import command_or_skip
from .driving import Program, Refused

_numbers = itertools.count()


def port_of(broker: Broker) -> int:
    """The port of the last listener, the one with the dialect."""
    ready = until(lambda: re.search(r"ready at (.*)", broker.log()), lambda: f"the broker is ready: {broker.log()}")
    assert ready is not None
    return int(re.findall(r"amqp://127\.0\.0\.1:(\d+)", ready[1])[-1])


def connection_string(
    broker: Broker, name: str = "RootManageSharedAccessKey", key: str = "SAS_KEY_VALUE", port: int | None = None
) -> str:
    place = f"Endpoint=sb://127.0.0.1:{port or port_of(broker)};UseDevelopmentEmulator=true"
    return f"{place};SharedAccessKeyName={name};SharedAccessKey={key}"


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"listeners": [{"port": 0}, {"port": 0, "dialect": "service-bus"}]}


@pytest.fixture
def queue(flight: Client) -> str:
    """A queue with a dead-letter queue, locks of a minute and three attempts."""
    name = f"queue-{next(_numbers)}"
    flight.call("queue.declare", queue=f"{name}-dead")
    options = {"deadLetterQueue": f"{name}-dead", "lockTimeout": 60_000, "maxAttempts": 3}
    flight.call("queue.declare", queue=name, options=options)
    return name


@pytest.fixture(scope="module")
def sdk(broker: Broker) -> Iterator[Program]:
    with Program(command_or_skip("servicebus")) as program:
        program.do("open", connection=connection_string(broker))
        yield program


def test_a_message_arrives(sdk: Program, flight: Client, queue: str) -> None:
    sdk.do("send", to=queue, messages=[{"body": "hello", "subject": "greeting"}])
    assert flight.call("queue.stat", queue=queue)["available"] == 1


def test_a_batch_is_its_messages(sdk: Program, flight: Client, queue: str) -> None:
    sdk.do("send", to=queue, messages=[{"body": f"{number}"} for number in range(100)], batch=True)
    assert flight.call("queue.stat", queue=queue)["available"] == 100


def test_an_unknown_queue_has_the_vendor_s_error(sdk: Program) -> None:
    with pytest.raises(Refused) as refused:
        sdk.do("send", to="nowhere", messages=[{"body": "x"}])
    assert refused.value.level == "ServiceBusAuthenticationError"  # the SDK makes this of status 404 of $cbs, as with the vendor


# ---- receiving


def send(sdk: Program, queue: str, *bodies: str) -> None:
    sdk.do("send", to=queue, messages=[{"body": body} for body in bodies], batch=len(bodies) > 1)


def unsettled(flight: Client, queue: str) -> dict[str, int]:
    stat = flight.call("queue.stat", queue=queue)
    return {state: stat[state] for state in ("available", "acquired", "delayed", "deferred") if stat[state]}


def test_a_message_has_the_fields_that_the_sdk_reads(sdk: Program, queue: str) -> None:
    names = {"message_id": "m1", "session_id": "s1", "subject": "greeting", "to": "t", "reply_to": "r", "correlation_id": "c1"}
    fields = {**names, "content_type": "text/plain", "application_properties": {"a": 1}, "time_to_live": 60}
    before = time.time()
    sdk.do("send", to=queue, messages=[{"body": "hello", **fields}])
    (message,) = sdk.receive(queue)
    assert {name: message[name] for name in names} == names
    assert (message["body"], message["content_type"], message["properties"]) == ("hello", "text/plain", {"a": 1})
    assert (message["sequence_number"], message["delivery_count"], message["state"]) == (1, 0, "ACTIVE")
    assert before - 1 < message["enqueued_time_utc"] < time.time() + 1
    assert 59 < message["locked_until_utc"] - message["enqueued_time_utc"] < 75
    assert 30 < message["expires_at_utc"] - message["enqueued_time_utc"] <= 60
    sdk.do("settle", token=message["token"])


def test_complete_and_abandon(sdk: Program, flight: Client, queue: str) -> None:
    send(sdk, queue, "one", "two")
    one, two = sdk.receive(queue, 2)
    assert (one["sequence_number"], two["sequence_number"]) == (1, 2)
    sdk.do("settle", token=one["token"])
    sdk.do("settle", token=two["token"], how="abandon")
    (again,) = sdk.receive(queue)
    assert (again["body"], again["delivery_count"], again["sequence_number"]) == ("two", 1, 2)
    assert again["token"] != two["token"]
    sdk.do("settle", token=again["token"])
    assert unsettled(flight, queue) == {}


def test_a_dead_letter_has_reason_and_description(sdk: Program, flight: Client, queue: str) -> None:
    send(sdk, queue, "bad", "worse")
    bad, worse = sdk.receive(queue, 2)
    sdk.do("settle", token=bad["token"], how="dead_letter", reason="Odd: really", description="It is odd.")
    sdk.do("settle", token=worse["token"], how="dead_letter")
    dead = sdk.receive(f"{queue}/dead", 2)
    assert [(letter["body"], letter["dead_letter_reason"], letter["dead_letter_error_description"]) for letter in dead] == [
        ("bad", "Odd: really", "It is odd."),
        ("worse", "", ""),
    ]
    assert dead[0]["dead_letter_source"] == queue
    for letter in dead:
        sdk.do("settle", token=letter["token"])
    assert unsettled(flight, f"{queue}-dead") == {}


def test_too_many_deliveries_make_a_dead_letter(sdk: Program, queue: str) -> None:
    send(sdk, queue, "bad")
    for count in range(3):
        (message,) = sdk.receive(queue)
        assert message["delivery_count"] == count
        sdk.do("settle", token=message["token"], how="abandon")
    (letter,) = sdk.receive(f"{queue}/dead")
    assert letter["dead_letter_reason"] == "MaxDeliveryCountExceeded"


def test_receive_and_delete(sdk: Program, flight: Client, queue: str) -> None:
    send(sdk, queue, "one", "two")
    messages = sdk.receive(queue, 2, delete=True)
    assert [(message["body"], message["token"]) for message in messages] == [("one", None), ("two", None)]
    assert messages[0]["sequence_number"] == 1
    until(lambda: unsettled(flight, queue) == {}, "the messages are settled")


def test_prefetched_messages_go_back_without_an_attempt(sdk: Program, flight: Client, queue: str) -> None:
    send(sdk, queue, *map(str, range(20)))
    (first,) = sdk.receive(queue, prefetch=15)
    sdk.do("settle", token=first["token"])
    sdk.do("close", from_=queue)
    until(lambda: unsettled(flight, queue) == {"available": 19}, "the rest is available again")
    (second,) = sdk.receive(queue)
    assert (second["body"], second["delivery_count"]) == ("1", 0)


def test_an_expired_lock_is_lost(sdk: Program, flight: Client, queue: str) -> None:
    flight.call("queue.alter", queue=queue, options={"lockTimeout": 1000})
    send(sdk, queue, "slow")
    (message,) = sdk.receive(queue)
    until(lambda: unsettled(flight, queue) == {"available": 1}, "the lock has ended")
    with pytest.raises(Refused) as refused:
        sdk.do("settle", token=message["token"])
    assert refused.value.level == "MessageLockLostError"
    assert sdk.receive(queue)[0]["delivery_count"] == 1


def test_a_queue_without_lock_timeout_locks_without_end(sdk: Program, flight: Client) -> None:
    flight.call("queue.declare", queue="patient")
    send(sdk, "patient", "x")
    (message,) = sdk.receive("patient")
    assert message["locked_until_utc"] > time.time() + 1e9
    sdk.do("settle", token=message["token"])


# ---- topics


def test_each_subscription_of_a_topic_has_its_copies(sdk: Program, flight: Client) -> None:
    flight.call("exchange.declare", exchange="news", type="topic")
    for name, key in (("all", "#"), ("sport", "sport.*")):
        flight.call("queue.declare", queue=f"news.{name}", options={"deadLetterQueue": f"news.{name}.dead"})
        flight.call("queue.declare", queue=f"news.{name}.dead")
        flight.call("exchange.bind", exchange="news", queue=f"news.{name}", key=key)
    several = [{"body": "goal", "subject": "sport.football"}, {"body": "rain", "subject": "weather"}]
    sdk.do("send", to="news", messages=several, batch=True)
    sdk.do("send", to="news", messages=[{"body": "set", "subject": "sport.tennis"}])
    assert [message["body"] for message in sdk.receive("news/all", 3)] == ["goal", "rain", "set"]
    goal, match = sdk.receive("news/sport", 2)
    assert (goal["body"], match["body"], goal["sequence_number"]) == ("goal", "set", 1)
    assert sdk.do("peek", from_="news/sport", number=2)["messages"][0]["body"] == "set"
    sdk.do("settle", token=goal["token"], how="dead_letter", reason="No", description="Not again.")
    sdk.do("settle", token=match["token"])
    assert unsettled(flight, "news.sport") == {}
    assert unsettled(flight, "news.sport.dead") == {"available": 1}


# ---- $management


def test_a_renewed_lock_holds(sdk: Program, flight: Client, queue: str) -> None:
    flight.call("queue.alter", queue=queue, options={"lockTimeout": 3000})
    send(sdk, queue, "slow", "other")
    slow, _ = sdk.receive(queue, 2)
    ends = []

    def other_ends() -> bool:
        ends.append(sdk.do("renew", token=slow["token"])["until"])
        return unsettled(flight, queue) == {"available": 1, "acquired": 1}

    until(other_ends, "the other lock has ended")
    sdk.do("settle", token=slow["token"])
    assert ends[-1] > slow["locked_until_utc"]
    assert unsettled(flight, queue) == {"available": 1}


def test_a_lost_lock_is_not_renewed(sdk: Program, flight: Client, queue: str) -> None:
    send(sdk, queue, "gone")
    (message,) = sdk.receive(queue)
    sdk.do("settle", token=message["token"], how="abandon")
    (again,) = sdk.receive(queue)
    flight.call("queue.purge", queue=queue)
    sdk.do("settle", token=again["token"])
    with pytest.raises(Refused) as refused:
        sdk.do("renew_again", token=message["token"])
    assert refused.value.level == "MessageLockLostError"


def test_peek_shows_waiting_locked_and_scheduled_messages(sdk: Program, queue: str) -> None:
    send(sdk, queue, "locked", "waiting", "also waiting")
    sdk.do("schedule", to=queue, messages=[{"body": "later"}], at=time.time() + 600)
    (locked,) = sdk.receive(queue)
    peeked = sdk.do("peek", from_=queue, count=10, number=1)["messages"]
    seen = [(message["body"], message["sequence_number"], message["state"]) for message in peeked]
    assert seen == [
        ("locked", 1, "ACTIVE"),
        ("waiting", 2, "ACTIVE"),
        ("also waiting", 3, "ACTIVE"),
        ("later", 4, "SCHEDULED"),
    ]
    assert all(message["token"] is None or message["locked_until_utc"] for message in peeked if "locked_until_utc" in message)
    assert [message["body"] for message in sdk.do("peek", from_=queue, count=1, number=3)["messages"]] == ["also waiting"]
    assert sdk.do("peek", from_=queue, count=1, number=5)["messages"] == []
    sdk.do("settle", token=locked["token"])


def test_scheduled_messages_come_at_their_time_or_are_cancelled(sdk: Program, flight: Client, queue: str) -> None:
    numbers = sdk.do("schedule", to=queue, messages=[{"body": f"{n}"} for n in range(3)], at=time.time() + 600)["numbers"]
    assert numbers == [1, 2, 3]
    sdk.do("cancel", to=queue, numbers=[1, 3])
    assert unsettled(flight, queue) == {"delayed": 1}
    with pytest.raises(Refused) as refused:
        sdk.do("cancel", to=queue, numbers=[1, 2])
    assert refused.value.level == "MessageNotFoundError"
    assert unsettled(flight, queue) == {"delayed": 1}
    sdk.do("schedule", to=queue, messages=[{"body": "soon"}], at=time.time() + 1)
    assert sdk.receive(queue)[0]["body"] == "soon"


# ---- documents and TLS


def test_the_program_of_the_document_runs(broker: Broker, flight: Client, repository: Path) -> None:
    flight.call("queue.declare", queue="orders")
    text = (repository / "docs" / "service-bus.md").read_text()
    program = text.partition("```python\n")[2].partition("```")[0].replace("localhost:5672", f"127.0.0.1:{port_of(broker)}")
    folder = Path(command_or_skip("servicebus")[1]).parent
    environment = {**os.environ, "PYTHONPATH": str(folder / "lib")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "one order\n"


def test_the_sdk_connects_with_tls(tmp_path: Path) -> None:
    ours = trustme.CA()
    ours.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = ours.issue_cert("127.0.0.1", "localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "broker.pem"))
    files = {f"tls_{name}_file": str(tmp_path / "broker.pem") for name in ("cert", "key")}
    listeners = [{"port": 0, "tls": True, "dialect": "service-bus"}]
    with Broker(tmp_path / "data", fsync="never", listeners=listeners, **files) as broker:
        with Client(broker.url) as client:
            client.call("queue.declare", queue="q")
        ready = until(lambda: re.search(r"amqps://[^:]+:(\d+)", broker.log()), lambda: broker.log())
        assert ready is not None
        place = f"sb://localhost:{ready[1]}"
        with Program(command_or_skip("servicebus")) as program:
            connection = "Endpoint=sb://localhost/;SharedAccessKeyName=any;SharedAccessKey=any"
            program.do("open", connection=connection, custom_endpoint_address=place, connection_verify=str(tmp_path / "ca.pem"))
            program.do("send", to="q", messages=[{"body": "secret"}])
            assert program.receive("q")[0]["body"] == "secret"


def test_the_sdk_connects_by_websocket(tmp_path: Path) -> None:
    listeners = [{"port": 0, "websocket": True, "dialect": "service-bus"}]
    with Broker(tmp_path / "data", fsync="never", listeners=listeners) as broker:
        with Client(broker.url) as client:
            client.call("queue.declare", queue="q")
        ready = until(lambda: re.search(r"ws://[^:]+:(\d+)", broker.log()), lambda: broker.log())
        assert ready is not None
        with Program(command_or_skip("servicebus")) as program:
            place = f"sb://127.0.0.1:{ready[1]}"
            connection = connection_string(broker, port=int(ready[1]))
            program.do("open", connection=connection, custom_endpoint_address=place, websocket=True)
            program.do("send", to="q", messages=[{"body": "woven"}])
            assert program.receive("q")[0]["body"] == "woven"


# ---- users


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    """A broker with the user `shop`, and a key of this user."""
    data = tmp_path_factory.mktemp("guarded") / "data"
    with Broker(data, fsync="never") as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="orders")
        client.call("queue.declare", queue="secrets")
    penstock("user", "add", "shop", "--password-file", "-", data=data, stdin="a password\n")
    penstock("permit", "shop", "orders", "send,receive", data=data)
    line = penstock("user", "key", "shop", data=data)
    key = line.partition(";SharedAccessKey=")[2].strip()
    with Broker(data, fsync="never", listeners=[{"port": 0, "dialect": "service-bus"}]) as broker:
        yield broker, key
        assert "Traceback" not in broker.log()


def penstock(*arguments: str, data: Path, stdin: str = "") -> str:
    command = [sys.executable, "-m", "penstock", *arguments, "--data", str(data)]
    return subprocess.run(command, input=stdin, text=True, check=True, capture_output=True).stdout


def test_a_key_of_a_user_opens_what_the_user_may_use(guarded: tuple[Broker, str]) -> None:
    broker, key = guarded
    with Program(command_or_skip("servicebus")) as program:
        program.do("open", connection=connection_string(broker, "shop", key))
        program.do("send", to="orders", messages=[{"body": "mine"}])
        assert program.receive("orders")[0]["body"] == "mine"
        with pytest.raises(Refused) as refused:
            program.do("send", to="secrets", messages=[{"body": "x"}])
        assert refused.value.level == "ServiceBusAuthenticationError"


@pytest.mark.parametrize(("name", "key"), [("shop", "d3Jvbmc="), ("nobody", None)])
def test_another_key_is_refused(guarded: tuple[Broker, str], name: str, key: str | None) -> None:
    broker, right = guarded
    with Program(command_or_skip("servicebus")) as program:
        program.do("open", connection=connection_string(broker, name, key or right))
        with pytest.raises(Refused) as refused:
            program.do("send", to="orders", messages=[{"body": "x"}])
    assert refused.value.level == "ServiceBusAuthenticationError"
