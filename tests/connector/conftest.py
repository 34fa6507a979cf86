"""One real broker for each file of tests. Hypothesis on a shared machine: the duration of one example is meaningless here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from penstock import Broker
from penstock.broker_core.client.flight import Client

from .helpers import Queue

settings.register_profile("connector", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("connector")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def queue(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Queue]:
    with Client(broker.url) as client:
        made = Queue(broker, client, request.node.name.replace("*", "x")[:200])
        yield made
        for reader in made.readers:
            reader.stop()
        client.call("queue.delete", queue=made.name, force=True)
        for lease in client.call("lease.list")["leases"]:
            client.call("lease.delete", lease=lease["lease"])
