"""Selectors, dynamic nodes, and subscriptions that outlive their links, for clients without JMS (W4)."""

from __future__ import annotations

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .conftest import Start
from .driving import Refused
from .test_each import bodies, text

pytestmark = pytest.mark.parametrize("name", ["rhea", "go_amqp", "proton"])


def coloured(value: str, colour: str, **more: object) -> dict[str, object]:
    return text(value, application={"colour": {"string": colour}}, **more)


def queues(flight: Client) -> set[str]:
    return {stat["queue"] for stat in flight.call("queue.list")["queues"]}


def test_a_selector_takes_what_matches(name: str, start: Start, broker: Broker, queue: str) -> None:
    """Q8"""
    client = start(name, broker.amqp_url)
    client.send(queue, coloured("a", "red"), coloured("b", "blue"), coloured("c", "red"))
    assert bodies(client.receive(queue, 2, selector="colour = 'red'")) == ["a", "c"]
    assert bodies(client.receive(queue, 1)) == ["b"]
    with pytest.raises(Refused) as refused:
        client.receive(queue, 1, selector="colour = = 'red'")
    assert refused.value.condition == "amqp:invalid-field"


def test_a_reply_comes_to_a_node_that_was_made_for_it(name: str, start: Start, broker: Broker, flight: Client) -> None:
    """E2: a plain node, from which every permitted user may receive. test_jms.py covers JMS's temporary nodes."""
    client, service = start(name, broker.amqp_url), start(name, broker.amqp_url)
    address = client.do("dynamic")["address"]
    assert address in queues(flight)
    service.send(address, text("reply"))
    assert bodies(client.receive(address, 1)) == ["reply"]
    service.send(address, text("another"))
    assert bodies(service.receive(address, 1)) == ["another"]
    client.do("detach", from_=address)
    assert address not in queues(flight)


def test_a_durable_subscription_outlives_its_connection(name: str, start: Start, broker: Broker, flight: Client) -> None:
    """E1: by its link's name and its container's name. A pattern selects its messages."""
    exchange = f"news-{name}"
    flight.call("exchange.declare", exchange=exchange, type="topic", options={"unroutable": "drop"})
    client = start(name, broker.amqp_url, container=f"reader-{name}")
    about = {"from_": f"{exchange}/sport.#", "subscription": "sport"}
    sender = start(name, broker.amqp_url)
    assert client.do("drain", **about, credit=1)["messages"] == []  # it exists now
    sender.send(f"{exchange}/sport.football", text("a"))
    sender.send(f"{exchange}/weather", text("rain"))
    assert bodies(client.receive(**about, count=1)) == ["a"]
    client.do("close")
    sender.send(exchange, text("b", properties={"subject": "sport.tennis"}))
    client = start(name, broker.amqp_url, container=f"reader-{name}")
    assert bodies(client.receive(**about, count=1)) == ["b"]
    mine = f"sub:anonymous:reader-{name}:sport"
    assert mine in queues(flight)
    client.do("detach", from_=about["from_"])  # these clients' detach closes, which ends it
    until(lambda: mine not in queues(flight), "the subscription's queue is gone", limit_s=60)
