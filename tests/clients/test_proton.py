"""python-qpid-proton shows each message unchanged: the exotic types, the ids, and the octets around the bare message."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from .conftest import Start
from .tap import bare
from .test_each import await_counts, bodies, text
from .views import OTHER_VALUES, as_seen

EXOTIC: dict[str, dict[str, Any]] = {
    **OTHER_VALUES,
    "symbol": {"symbol": "a-symbol"},
    "char": {"char": "🦀"},
    "largest": {"ulong": 2**64 - 1},
    "least": {"long": -(2**63)},
}


def test_every_type_it_can_say(start: Start, broker: Broker, queue: str) -> None:
    client = start("proton", broker.amqp_url)
    annotations = {f"x-opt-{name}": value for name, value in EXOTIC.items()} | {
        "x-opt-list": {"list": [{"int": 1}, {"null": None}]}
    }
    client.send(queue, {"body": {"value": {"list": list(EXOTIC.values())}}, "application": EXOTIC, "annotations": annotations})
    (received,) = client.receive(queue, 1)
    assert received["application"] == EXOTIC
    assert received["annotations"] == annotations
    assert received["body"] == {"value": {"list": list(EXOTIC.values())}}


@pytest.mark.parametrize("receiver", ["proton", "rhea", "go_amqp"])
@pytest.mark.parametrize(
    "message_id",
    [{"string": "text"}, {"ulong": 2**53 - 1}, {"uuid": "00112233-4455-6677-8899-aabbccddeeff"}, {"binary": "00ff"}],
    ids=lambda value: next(iter(value)),
)
def test_each_type_of_a_message_id(message_id: dict[str, Any], receiver: str, start: Start, broker: Broker, queue: str) -> None:
    start("proton", broker.amqp_url).send(
        queue, {"body": {"data": "00"}, "properties": {"message-id": message_id, "correlation-id": message_id}}
    )
    (received,) = start(receiver, broker.amqp_url).receive(queue, 1)
    assert received["properties"] == dict.fromkeys(("message-id", "correlation-id"), as_seen(message_id, receiver))


def test_a_redelivery_changes_nothing_but_the_header(start: Start, broker: Broker, queue: str) -> None:
    client = start("proton", broker.amqp_url)
    client.send(queue, {"durable": True, "body": {"data": "00ff"}, "annotations": {"x-opt-a": {"int": 1}}, "application": EXOTIC})
    (first,) = client.receive(queue, 1, outcome={"modify": {"failed": True}})
    (second,) = client.receive(queue, 1)
    assert (first["firstAcquirer"], second["firstAcquirer"]) == (True, False)
    assert (first["deliveryCount"], second["deliveryCount"]) == (0, 1)
    assert bare(bytes.fromhex(first["encoded"])) == bare(bytes.fromhex(second["encoded"]))
    assert first["annotations"] == second["annotations"]


def test_messages_are_moved_in_a_transaction(start: Start, broker: Broker, queue: str, flight: Client) -> None:
    """C11"""
    client, target = start("proton", broker.amqp_url), f"{queue}-other"
    flight.call("queue.declare", queue=target)
    client.send(queue, *(text(letter) for letter in "abcd"))
    assert client.do("transact", from_=queue, to=target, count=2, commit=True) == {"result": "committed"}
    await_counts(flight, queue, 2, 0)
    assert client.do("transact", from_=queue, to=target, count=1, commit=False) == {"result": "aborted"}
    await_counts(flight, queue, 2, 0)
    assert bodies(client.receive(target, 2)) == ["a", "b"]
    assert bodies(client.receive(queue, 2)) == ["c", "d"]
