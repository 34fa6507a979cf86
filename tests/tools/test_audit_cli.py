"""U11: `penstock audit` shows changes, their users and the doors."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.server.process import Broker

from ..waiting import until
from .conftest import Run


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker", fsync="never") as running:
        yield running


def audited(penstock: Run, broker: Broker, *arguments: str) -> list[dict[str, Any]]:
    output = penstock("audit", "--json", *arguments, url=broker.url)
    assert output.returncode == 0, output.stderr
    entries: list[dict[str, Any]] = json.loads(output.stdout)
    return entries


def test_each_door_has_its_name(penstock: Run, broker: Broker) -> None:
    assert penstock("audit", url=broker.url).stdout.startswith("no such entries")
    assert penstock("queue", "declare", "orders", url=broker.url).returncode == 0
    broker.declare("from-python")
    for more in ({}, {"sec-fetch-site": "same-origin"}):
        headers = {"content-type": "application/json", **more}
        request = urllib.request.Request(f"{broker.http_url}/api/v1/queue.pause", b'{"queue": "orders"}', headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
    entries = [(entry["door"], entry["action"], entry["object"]) for entry in audited(penstock, broker)]
    assert entries == [
        ("page", "queue.pause", "orders"),
        ("api", "queue.pause", "orders"),
        ("python", "queue.declare", "from-python"),
        ("command line", "queue.declare", "orders"),
    ]
    assert len(audited(penstock, broker, "--queue", "orders", "--action", "pause", "--count", "1")) == 1
    assert audited(penstock, broker, "--until", "-1h") == []


def test_the_newest_entry_is_the_last_line(penstock: Run, broker: Broker) -> None:
    for queue in ("first", "second"):
        penstock("queue", "declare", queue, "--option", "maxAttempts=3", url=broker.url)
    lines = penstock("audit", url=broker.url).stdout.splitlines()
    assert [word in line for word, line in zip(("first", "second"), lines[-2:], strict=True)] == [True, True]
    assert 'options {"maxAttempts": "3"}' in lines[-1]


def test_a_reload_is_audited_and_the_log_stays_after_a_restart(penstock: Run, broker: Broker) -> None:
    broker.declare("orders")
    broker.kill()
    broker.start()
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGHUP)
    until(lambda: audited(penstock, broker)[0]["action"] == "settings.reload", "the reload is audited")
    assert [entry["action"] for entry in audited(penstock, broker)] == ["settings.reload", "queue.declare"]
