"""Q24: deferred messages with the Python SDK alone: locks, operators, kill -9. All SDKs: scenarios/."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from .conftest import command_or_skip
from .driving import Program, Refused
from .service_bus import SETTINGS, connection_string, unsettled
from .test_service_bus import send

_numbers = itertools.count()


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return SETTINGS


@pytest.fixture
def queue(flight: Client) -> str:
    name = f"deferring-{next(_numbers)}"
    flight.call("queue.declare", queue=f"{name}-dead")
    options = {"deadLetterQueue": f"{name}-dead", "lockTimeout": 60_000, "maxAttempts": 4}
    flight.call("queue.declare", queue=name, options=options)
    return name


def defer(sdk: Program, queue: str, *bodies: str) -> list[int]:
    """Send messages, and defer them; return their sequence numbers."""
    send(sdk, queue, *bodies)
    return defer_next(sdk, queue, len(bodies))


def defer_next(sdk: Program, queue: str, count: int) -> list[int]:
    messages = sdk.receive(queue, count)
    for message in messages:
        sdk.do("settle", token=message["token"], how="defer")
    return [message["sequence_number"] for message in messages]


def asked(sdk: Program, queue: str, *numbers: int, **mode: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = sdk.do("receive_deferred", from_=queue, numbers=list(numbers), **mode)["messages"]
    return messages


def test_its_lock_is_renewed_and_ends_with_its_outcome(sdk: Program, flight: Client, queue: str) -> None:
    (number,) = defer(sdk, queue, "later")
    (message,) = asked(sdk, queue, number)
    assert sdk.do("renew", token=message["token"])["until"] >= message["locked_until_utc"]
    sdk.do("settle", token=message["token"], how="abandon")
    (again,) = asked(sdk, queue, number)
    assert again["token"] != message["token"]
    with pytest.raises(Refused) as refused:
        sdk.do("renew_again", token=message["token"])
    assert refused.value.level == "MessageLockLostError"
    sdk.do("settle", token=again["token"])
    assert unsettled(flight, queue) == {}


def test_its_lock_ends_with_its_connection(sdk: Program, flight: Client, queue: str) -> None:
    (number,) = defer(sdk, queue, "later")
    asked(sdk, queue, number)
    sdk.do("close", from_=queue)
    (message,) = asked(sdk, queue, number)
    assert message["delivery_count"] == 2
    sdk.do("settle", token=message["token"])


def test_operators_see_and_end_deferred_messages(sdk: Program, flight: Client, queue: str) -> None:
    defer(sdk, queue, "one", "two")
    explained = flight.call("queue.explain", queue=queue)
    assert explained["deferred"] == 2
    assert [reason["reason"] for consumer in explained["consumers"] for reason in consumer["reasons"]][-1] == "deferred"
    shown = flight.call("queue.messages", queue=queue, states=["deferred"])["messages"]
    assert [(message["sequenceNumber"], message["state"], message["deliveryCount"]) for message in shown] == [
        (0, "deferred", 1),
        (1, "deferred", 1),
    ]
    assert flight.call("queue.purge", queue=queue)["purged"] == 2
    with pytest.raises(Refused) as refused:
        asked(sdk, queue, 1)
    assert refused.value.level == "MessageNotFoundError"


def test_deferred_messages_survive_kill_9(tmp_path: Path) -> None:
    """Also one that a client has received by its number. The end of the broker does not count as an attempt."""
    broker = Broker(tmp_path / "data", **SETTINGS)
    with broker, Program(command_or_skip("servicebus")) as first:
        broker.declare("q")
        first.do("open", connection=connection_string(broker))
        numbers = defer(first, "q", "one", "two", "three")
        asked(first, "q", numbers[1])
        broker.kill()
        broker.start()
        with Program(command_or_skip("servicebus")) as second, Client(broker.url) as flight:
            second.do("open", connection=connection_string(broker))
            assert unsettled(flight, "q") == {"deferred": 3}
            messages = asked(second, "q", *numbers)
            assert [(message["body"], message["delivery_count"]) for message in messages] == [
                ("one", 1),
                ("two", 1),
                ("three", 1),
            ]
            for message in messages:
                second.do("settle", token=message["token"])
            assert unsettled(flight, "q") == {}


def test_a_deferred_dead_letter_is_redriven_by_a_selector(sdk: Program, flight: Client, queue: str) -> None:
    send(sdk, queue, "bad")
    (message,) = sdk.receive(queue)
    sdk.do("settle", token=message["token"], how="dead_letter", reason="bad")
    (dead,) = sdk.receive(f"{queue}/dead")
    sdk.do("settle", token=dead["token"], how="defer")
    assert flight.call("queue.redrive", queue=f"{queue}-dead", selector="JMSPriority = 4")["redriven"] == 1
    assert [message["body"] for message in sdk.receive(queue)] == ["bad"]
