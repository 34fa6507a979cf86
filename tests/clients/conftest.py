"""A broker for each file of tests, a queue for each test, and foreign clients: unmodified, at their pinned versions.

The first test that needs a program builds it (see building.py). Without its tool chain a client is skipped on a laptop, and fails
on the build machine (CI is set).
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import trustme

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .building import MissingTool, command_of
from .driving import Program
from .service_bus import connection_string

_numbers = itertools.count()

Start = Callable[..., Program]


@cache
def _built(name: str) -> list[str] | Exception:
    """Keep the result, also a failure: an unreachable registry is not asked again for each test."""
    try:
        return command_of(name)
    except (MissingTool, subprocess.SubprocessError) as error:
        return error


def command_or_skip(name: str) -> list[str]:
    built = _built(name)
    if isinstance(built, list):
        return built
    if not isinstance(built, MissingTool):
        pytest.fail(f"{name} could not be built, see stderr: {built}")
    if os.environ.get("CI"):
        pytest.fail(f"{built} (CI is set, where every client must run)")
    pytest.skip(str(built))


def urls_of(broker: Broker) -> list[str]:
    """URLs of its AMQP listeners, in their order, from the line in its log that follows the one on stdout."""
    ready = until(lambda: re.search(r"ready at (.*)", broker.log()), lambda: f"the broker is ready: {broker.log()}")
    assert ready is not None
    return re.findall(r"(?:amqp|ws)s?://[^,\s]+", ready[1])


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """Settings of the broker, which a module may replace."""
    return {}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, Any]) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker") / "data", fsync="never", **settings) as running:
        yield running
        # The broker has an answer for every input. An unforeseen error leaves a traceback in its log.
        assert "Traceback" not in running.log()


@pytest.fixture(scope="module")
def flight(broker: Broker) -> Iterator[Client]:
    with Client(broker.url) as connected:
        yield connected


@pytest.fixture(scope="module")
def sdk(broker: Broker) -> Iterator[Program]:
    """The Python SDK of Azure Service Bus, connected; `settings` are `service_bus.SETTINGS`."""
    with Program(command_or_skip("servicebus")) as program:
        program.do("open", connection=connection_string(broker))
        yield program


@pytest.fixture(scope="package")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority and a certificate of localhost."""
    folder, authority = tmp_path_factory.mktemp("certificates"), trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(folder / "broker.pem"))
    return folder


@pytest.fixture
def queue(flight: Client) -> str:
    name = f"queue-{next(_numbers)}"
    flight.call("queue.declare", queue=name)
    return name


@pytest.fixture(scope="session")
def idle() -> Iterator[list[Program]]:
    """Idle programs of qpid-jms: a JVM takes a second to start, and opens any number of connections."""
    programs: list[Program] = []
    yield programs
    for program in programs:
        program.close()


@pytest.fixture
def start(idle: list[Program]) -> Iterator[Start]:
    """`start(name, url, …)` returns a connected client program. A test may start several. Their connections end with the test."""
    with_us: list[Program] = []
    last: set[Program] = set()  # these end with the test

    def started(name: str, url: str | None = None, **options: Any) -> Program:
        program = idle.pop() if name == "qpid_jms" and idle else Program(command_or_skip(name))
        with_us.append(program)
        if name != "qpid_jms" or (url or "").startswith("failover"):  # which would reconnect before it closes
            last.add(program)
        if url is not None:
            program.do("open", url=url, **options)
        return program

    yield started
    for program in with_us:
        if program not in last and program.is_idle():
            idle.append(program)
        else:
            program.close()
