"""go-amqp as the benchmark uses it."""

from __future__ import annotations

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from .conftest import Start
from .test_each import await_counts


@pytest.mark.parametrize("window", [1, 7, 1000])
def test_in_and_out_at_once(window: int, start: Start, broker: Broker, queue: str, flight: Client) -> None:
    count = 200 if window == 1 else 3000
    program = start("go_amqp")
    order = {"url": broker.amqp_url, "address": queue, "count": count, "size": 1024, "window": window, "wait": 50}
    assert program.do("throughput", way="both", **order)["seconds"] > 0
    await_counts(flight, queue, 0, 0)
    program.do("throughput", way="in", **order)
    await_counts(flight, queue, count, 0)
    program.do("throughput", way="out", **order)
    await_counts(flight, queue, 0, 0)


def test_several_connections_divide_one_queue_or_several(start: Start, broker: Broker, queue: str, flight: Client) -> None:
    program = start("go_amqp")
    order = {"url": broker.amqp_url, "count": 400, "size": 16, "window": 50, "way": "both", "wait": 50}
    assert program.do("throughput", address=queue, connections=4, **order)["seconds"] > 0
    second = f"{queue}-other"
    broker.declare(second)
    program.do("throughput", address=[queue, second], connections=4, **order | {"way": "in"})
    await_counts(flight, queue, 200, 0)
    await_counts(flight, second, 200, 0)
    program.do("throughput", address=[queue, second], connections=4, **order | {"way": "out"})
    await_counts(flight, queue, 0, 0)
    await_counts(flight, second, 0, 0)


def test_a_client_that_dies_in_haste_loses_nothing(start: Start, broker: Broker, queue: str, flight: Client) -> None:
    """C8: all messages of its connection return, and every message comes out once, in order."""
    program = start("go_amqp", broker.amqp_url)
    program.send(queue, *({"durable": True, "body": {"data": number.to_bytes(4, "big").hex()}} for number in range(500)))
    taken = program.receive(queue, 100)
    program.receive(queue, 300, credit=400, outcome="hold")
    program.kill()
    await_counts(flight, queue, 400, 0)
    rest = start("go_amqp", broker.amqp_url).receive(queue, 400)
    numbers = [int(message["body"]["data"], 16) for message in taken + rest]
    assert numbers == list(range(500))
