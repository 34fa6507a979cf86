"""One real broker for each file of tests, behind a relay that hides its product."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.client.amqp.address import parse
from penstock.broker_core.client.flight import Client
from penstock.connector.foreign import consumer

from ..amqp_client.peer import Peer
from .helpers import Queue
from .hidden import Hidden


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def hidden(broker: Broker) -> Iterator[Hidden]:
    relay = Hidden(parse(broker.amqp_url).port)
    yield relay
    relay.close()


@pytest.fixture(autouse=True)
def _empty_at_once(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Our broker has put back the messages of a consumer before a test continues (`Queue.released`)."""
    if "queue" in request.fixturenames and "patient" not in request.fixturenames:
        monkeypatch.setattr(consumer, "EMPTY_S", 0.02)
        monkeypatch.setattr(consumer, "ENDING_QUIET_S", 0.02)


@pytest.fixture
def patient() -> None:
    """Lets a run that ends wait as long as it does for users."""


@pytest.fixture
def queue(broker: Broker, hidden: Hidden, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Queue]:
    with Client(broker.url) as client:
        made = Queue(broker, hidden, client, request.node.name[:200], tmp_path / "spool")
        yield made
        for reader in made.readers:
            reader.stop()
        made.client.call("queue.delete", queue=made.name, force=True)


@pytest.fixture
def peers() -> Iterator[Callable[..., Peer]]:
    made: list[Peer] = []

    def make(**fields: Any) -> Peer:
        made.append(Peer(**fields))
        return made[-1]

    yield make
    for peer in made:
        peer.close()
