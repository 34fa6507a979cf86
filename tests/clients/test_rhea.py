"""Settlement in the mode second, which only rhea and go-amqp support."""

from __future__ import annotations

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from .conftest import Start
from .test_each import await_counts, bodies, text

pytestmark = pytest.mark.parametrize("name", ["rhea", "go_amqp"])


@pytest.mark.parametrize("outcome", ["accept", "reject", "release", {"modify": {"failed": True}}])
def test_the_receiver_settles_second(
    name: str, outcome: str | dict[str, object], start: Start, broker: Broker, queue: str, flight: Client
) -> None:
    """The client keeps a delivery until the broker has settled it, which happens when the outcome is on the disk."""
    client = start(name, broker.amqp_url)
    client.send(queue, text("a"), text("b"))
    assert bodies(client.receive(queue, 1, second=True, outcome=outcome)) == ["a"]
    ends = outcome in ("accept", "reject")
    await_counts(flight, queue, 1 if ends else 2, 0)
    assert bodies(client.receive(queue, 1, second=True)) == ["b" if ends else "a"]
