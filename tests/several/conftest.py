"""Three brokers for each file of tests, with a queue for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import Broker

from .helpers import Site


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    started = [Broker(tmp_path_factory.mktemp("brokers") / letter) for letter in "abc"]
    for broker in started:
        broker.start()
    yield started
    for broker in started:
        broker.stop()


@pytest.fixture
def site(brokers: list[Broker], request: pytest.FixtureRequest) -> Iterator[Site]:
    made = Site(brokers, request.node.name[:100])
    yield made
    made.close()
