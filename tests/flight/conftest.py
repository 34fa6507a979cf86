"""One real broker for each file of tests, and a queue of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from .peers import Site

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker") / "data", fsync="never") as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.url) as connected:
        yield connected


@pytest.fixture
def queue(client: Client) -> str:
    name = f"queue-{next(_numbers)}"
    client.call("queue.declare", queue=name)
    return name


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    running = Site(tmp_path)
    yield running
    running.close()
