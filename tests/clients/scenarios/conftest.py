"""A broker for each file of scenarios, the vendor's SDKs in turn, and a queue for each scenario."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..conftest import command_or_skip
from ..driving import Program
from ..service_bus import SDKS, SETTINGS, Sdk, connection_string, declared

_numbers = itertools.count()


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return SETTINGS


@pytest.fixture(scope="package")
def sdks(certificates: Path) -> Iterator[Callable[[str], Program]]:
    """Programs with the vendor's SDKs for Azure Service Bus. Each starts once."""
    trust = f"NODE_EXTRA_CA_CERTS={certificates / 'ca.pem'}"  # read when node starts
    with ExitStack() as running:

        @cache
        def started(sdk: str) -> Program:
            name, arguments = SDKS[sdk]
            return running.enter_context(Program(["env", trust, *command_or_skip(name), *arguments]))

        yield started


@pytest.fixture(scope="module", params=SDKS)
def connected(request: pytest.FixtureRequest, broker: Broker, sdks: Callable[[str], Program]) -> Iterator[Sdk]:
    """The SDKs in turn, connected to the broker of the module."""
    program = sdks(request.param)
    program.do("open", connection=connection_string(broker))
    yield Sdk(request.param, program)
    program.do("close")


@pytest.fixture
def sdk(connected: Sdk) -> Iterator[Sdk]:
    """The connected SDK. Its receivers end with the test."""
    yield connected
    connected.do("leave")


@pytest.fixture
def queue(flight: Client) -> str:
    """A queue with a dead-letter queue, locks of a minute and three attempts."""
    return declared(flight, f"queue-{next(_numbers)}")
