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

from penstock.broker_core.cli import main
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.server.child import Broker

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


#: Each command of the command line that needs a right, and the request that the audit log names. Without the right
#: `receive`, a program may not attach a link.
DENIED = {
    "queue declare q": "queue.declare",
    "queue peek q": "browse",
    "queue stat q": "queue.stat",
    "queue alter q --option maxAttempts=3": "queue.alter",
    "queue pause q": "queue.pause",
    "queue resume q": "queue.resume",
    "queue purge q": "queue.purge",
    "queue delete q --force --yes": "queue.delete",
    "queue move q mine": "queue.move",
    "queue copy q mine": "queue.copy",
    "queue discard q --sequence 0": "queue.discard",
    "queue redrive q": "queue.redrive",
    "queue dead-letters q": "queue.deadLetters",
    "queue replace q --sequence 0 --body x": "message.replace",
    "exchange declare x": "exchange.declare",
    "exchange bind x q": "exchange.bind",
    "exchange unbind x q": "exchange.unbind",
    "exchange delete x": "exchange.delete",
    "lease release l --return": "lease.release",
    "lease settle l --sequence 0 --outcome accepted": "lease.settleRow",
    "lease delete l": "lease.delete",
    "trace 4711 --queue q": "message.trace",
    "explain queue q": "queue.explain",
    "audit --queue q": "audit.list",
    "send q": "link.send",
    "receive q": "link.receive",
    "events": "queue.stat",
}


def test_each_command_without_its_right_is_refused_and_recorded(
    penstock: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process: thirty starts of an interpreter would take ten seconds."""
    data, secret = tmp_path / "data", tmp_path / "secret"
    secret.write_text("secret")
    for name, queue, rights in (("root", "*", "all"), ("eve", "mine", "browse,send,admin,receive,replay")):
        penstock("user", "add", name, "--password-file", str(secret), "--data", str(data))
        penstock("permit", name, queue, rights, "--data", str(data))
    with Broker(data, fsync="never") as broker:
        for queue in ("q", "mine"):
            broker.declare(queue, credentials=Credentials("root", "secret"))
        for command in DENIED:
            url = broker.amqp_url if command.startswith(("send", "receive")) else broker.url
            assert main([*command.split(), "--user", "eve", "--password-file", str(secret), "--url", url]) == 1, command
            assert "may not" in capfd.readouterr().err, command
        logged_in = ["--user", "root", "--password-file", str(secret)]
        shown = audited(penstock, broker, "--outcome", "refused", *logged_in)
    assert [(entry["user"], entry["action"]) for entry in reversed(shown)] == [("eve", name) for name in DENIED.values()]
    doors = {"link.send": "amqp", "link.receive": "amqp"}
    assert all(entry["door"] == doors.get(entry["action"], "command line") for entry in shown)


def test_users_that_another_program_changes_are_recorded_when_the_broker_reloads_them(penstock: Run, tmp_path: Path) -> None:
    secret, file = tmp_path / "secret", tmp_path / "users.json"
    secret.write_text("secret")
    of_file = ["--users-file", str(file)]
    penstock("user", "add", "root", "--password-file", str(secret), *of_file)
    penstock("permit", "root", "*", "all", *of_file)
    with Broker(tmp_path / "data", fsync="never", users_file=file) as broker:
        penstock("user", "add", "eve", "--password-file", str(secret), *of_file)
        logged_in = ["--user", "root", "--password-file", str(secret)]
        until(lambda: audited(penstock, broker, *logged_in) != [], "the change is recorded")
        (entry,) = audited(penstock, broker, *logged_in)
    assert (entry["action"], entry["door"], entry["details"]) == ("users.reload", "file", {"added": ["eve"]})


def test_backup_and_restore_are_recorded_in_their_directories(penstock: Run, tmp_path: Path) -> None:
    with Broker(tmp_path / "data", fsync="never") as broker:
        broker.declare("q")
    place = str(tmp_path / "backup")
    assert penstock("backup", "--data", str(tmp_path / "data"), "--to", place).returncode == 0
    assert penstock("restore", "--from", place, "--data", str(tmp_path / "other")).returncode == 0
    for folder, action in (("data", "backup"), ("other", "restore")):
        (file,) = (tmp_path / folder / "audit").iterdir()
        entry = json.loads(file.read_text().splitlines()[-1])
        shown = entry["action"], entry["object"], entry["door"], entry["outcome"], bool(entry["user"])
        assert shown == (action, place, "command line", "done", True)
        assert entry["details"]["bytes"] > 0
