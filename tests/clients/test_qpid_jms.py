"""JMS over AMQP, as far as this version goes: its kinds of messages, its headers, its prefetch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from .conftest import Start
from .test_each import await_counts, bodies, text

ITEMS: list[dict[str, Any]] = [
    {"boolean": True},
    {"byte": 1},
    {"short": 2},
    {"int": 3},
    {"long": 4},
    {"float": 0.5},
    {"double": 0.25},
]
ITEMS += [{"string": "text"}, {"binary": "00ff"}]


@pytest.mark.parametrize(
    "body",
    [
        {"value": {"string": ""}},
        {"data": ""},
        {"data": "00" * 100_000},
        {"sequence": ITEMS},
        {"value": {"map": [[{"string": f"key {number}"}, item] for number, item in enumerate(ITEMS)]}},
    ],
    ids=["no text", "no bytes", "many bytes", "stream", "map"],
)
def test_each_kind_of_message(body: dict[str, Any], start: Start, broker: Broker, queue: str) -> None:
    client = start("qpid_jms", broker.amqp_url)
    client.send(queue, {"body": body})
    (received,) = client.receive(queue, 1)
    if "map" in body.get("value", {}):  # a map has no order
        received["body"]["value"]["map"].sort(key=lambda pair: pair[0]["string"])
    assert received["body"] == body


def test_its_headers(start: Start, broker: Broker, queue: str) -> None:
    client = start("qpid_jms", broker.amqp_url)
    properties = {
        "subject": "type",
        "reply-to": "replies",
        "correlation-id": {"string": "ID:c"},
        "group-id": "g",
        "group-sequence": 9,
    }
    client.send(queue, text("a", properties=properties, priority=9))
    (received,) = client.receive(queue, 1)
    shown = received["properties"]
    assert {name: shown[name] for name in properties} == properties
    assert (shown["to"], received["durable"], received["priority"], received["redelivered"]) == (queue, True, 9, False)
    assert shown["message-id"]["string"].startswith("ID:")
    assert shown["creation-time"] > 0


def test_what_was_prefetched_goes_back_when_the_consumer_closes(start: Start, broker: Broker, queue: str, flight: Client) -> None:
    greedy = start("qpid_jms", broker.amqp_url, prefetch=100)
    greedy.send(queue, *(text(str(number)) for number in range(10)))
    assert bodies(greedy.receive(queue, 2)) == ["0", "1"]
    await_counts(flight, queue, 0, 8)
    greedy.do("close")
    await_counts(flight, queue, 8, 0)
    back = start("qpid_jms", broker.amqp_url).receive(queue, 8)
    assert bodies(back) == [str(number) for number in range(2, 10)]


def test_two_consumers_share_a_queue(start: Start, broker: Broker, queue: str, flight: Client) -> None:
    first, second = (start("qpid_jms", broker.amqp_url, prefetch=0) for _ in range(2))
    first.send(queue, *(text(str(number)) for number in range(20)))
    taken = [*bodies(first.receive(queue, 10)), *bodies(second.receive(queue, 10))]
    assert sorted(taken, key=int) == [str(number) for number in range(20)]
    await_counts(flight, queue, 0, 0)


def test_it_connects_again_and_goes_on(start: Start, tmp_path: Path) -> None:
    """U7: qpid-jms's failover, over a stop and a start of the broker. Its links are attached again automatically."""
    with Broker(tmp_path / "data", fsync="never") as broker:
        broker.declare("q")
        client = start("qpid_jms", f"failover:({broker.amqp_url})", prefetch=10)
        client.send("q", text("a"), text("b"))
        assert bodies(client.receive("q", 1)) == ["a"]
        with Client(broker.url) as flight:
            await_counts(flight, "q", 0, 1)  # qpid-jms's acknowledge returns before it flushes the outcome
        broker.stop()
        broker.start()
        client.send("q", text("c"))
        assert bodies(client.receive("q", 2)) == ["b", "c"]
