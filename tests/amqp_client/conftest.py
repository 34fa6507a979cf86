"""A broker for the tests of one file, and a connection to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.broker_core.client.app import Connection
from penstock.broker_core.server.child import Broker

from .applications import connect


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker"), fsync="never") as running:
        yield running


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with connect(broker.amqp_url) as opened:
        yield opened
