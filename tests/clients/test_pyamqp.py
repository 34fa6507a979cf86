"""pyamqp, the AMQP library of Azure's Python SDKs, at plain listeners. It needs one that settles first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from .conftest import command_or_skip, urls_of
from .test_each import await_counts

PROGRAM = Path(__file__).parent / "pyamqp" / "client.py"


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return {"listeners": [{"port": 0}, {"port": 0, "settles_first": True}]}


def ran(url: str, queue: str, seconds: float) -> subprocess.CompletedProcess[str]:
    library = Path(command_or_skip("servicebus")[1]).parent / "lib"
    command = [sys.executable, str(PROGRAM), url.removeprefix("amqp://"), queue, str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(library)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_listener_that_settles_first_serves_it(broker: Broker, flight: Client, queue: str) -> None:
    _, first = urls_of(broker)
    done = ran(first, queue, 20)
    assert (done.stdout, done.returncode) == ("bare\n", 0), done.stderr
    await_counts(flight, queue, 0, 0)


def test_at_another_listener_it_waits_for_a_settled_outcome(broker: Broker, flight: Client, queue: str) -> None:
    """Its message arrives. The broker's outcome is unsettled, as asked for, and pyamqp ignores it."""
    plain, _ = urls_of(broker)
    done = ran(plain, queue, 1)
    assert "TimeoutError: Sending message timed out" in done.stderr
    await_counts(flight, queue, 1, 0)
