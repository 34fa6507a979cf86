"""SIGHUP reloads the settings that can change while the broker runs, and logs the changed ones that need a restart."""

from __future__ import annotations

import errno
import os
import signal
import socket
from pathlib import Path
from typing import BinaryIO

import pytest

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.cli.serve import Reloading
from penstock.broker_core.client.flight import Client
from penstock.broker_core.security.users_file import edit
from penstock.broker_core.service.reloading import LIVE
from penstock.broker_core.settings.keys import KEYS, Settings

from ..waiting import until
from .conftest import serve


def test_sighup_reads_what_may_change(tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text('free_space_mark_bytes = "1 MiB"\namqp_credit = 10\nlog_level = "warning"\n')
    with Broker(tmp_path / "data", config=config) as broker:
        broker.declare("q")
        config.write_text('free_space_mark_bytes = "2 MiB"\namqp_credit = 20\nlog_level = "info"\nretention_bytes = "1 MiB"\n')
        os.kill(broker.pid, signal.SIGHUP)
        until(lambda: "a restart is needed for: amqp_credit" in broker.log(), "the log names the setting")
        (change,) = (line for line in broker.log().splitlines() if "retention_bytes = 1048576" in line)
        assert " INFO penstock: settings read again: " in change
        assert "free_space_mark_bytes = 2097152" in broker.log()
        os.kill(broker.pid, signal.SIGHUP)
        until(
            lambda: " INFO penstock: settings read again: nothing has changed" in broker.log(),
            "it is logged that nothing has changed",
        )
        config.write_text('free_space_mark_bytes = "what"\n')
        os.kill(broker.pid, signal.SIGHUP)
        until(lambda: "the previous ones stay in force" in broker.log(), "the mistake is logged")
        config.write_text(f"free_space_mark_bytes = {1 << 60}\n")
        os.kill(broker.pid, signal.SIGHUP)
        until(lambda: f"free_space_mark_bytes = {1 << 60}" in broker.log(), "the new setting is logged")
        with Client(broker.url) as client:
            assert client.call("queue.stat", queue="q")["available"] == 0  # the broker still works
        broker.stop()  # SIGTERM after SIGHUP is a clean stop


def end_for_writing(pipe: Path) -> BinaryIO | None:
    """Open a named pipe if it has a reader. Otherwise the broker would find the file that replaces the pipe."""
    try:
        return open(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), "wb")
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def test_sighup_during_recovery_is_obeyed_after_it_and_a_supervisor_hears_of_ready_alone(tmp_path: Path) -> None:
    """The users file is a pipe, so the broker waits before its recovery until the test writes to it."""
    config, users, pipe = tmp_path / "penstock.toml", tmp_path / "users.json", tmp_path / "pipe"
    config.write_text("retention_age_s = 60\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening, open(tmp_path / "log", "w+") as output:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        os.mkfifo(users)
        flags = "--config", str(config), "--users-file", str(users)
        process = serve(tmp_path / "data", *flags, stderr=output, NOTIFY_SOCKET=str(tmp_path / "notify"))
        until(lambda: "starts on the data directory" in (tmp_path / "log").read_text(), "the start has begun")
        config.write_text("retention_age_s = 61\n")
        process.send_signal(signal.SIGHUP)
        writing = until(lambda: end_for_writing(users), "the broker has opened the pipe")
        users.rename(pipe)
        edit(users, lambda document: document)  # for later looks at the file
        with writing:
            writing.write(users.read_bytes())
        assert listening.recv(4096).startswith(b"READY=1\nSTATUS=")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert "settings read again: retention_age_s = 61" in (tmp_path / "log").read_text()


def test_a_mistake_of_ours_in_a_reload_leaves_the_broker_obedient(caplog: pytest.LogCaptureFixture) -> None:
    """SIGTERM works in the thread of reloads, also after a failed one."""
    read = [RuntimeError("a mistake"), errors.InvalidRequest("a wrong key"), Settings(data=Path("d"))]
    taken: list[Settings] = []

    def read_again() -> Settings:
        settings = read.pop(0)
        if isinstance(settings, Exception):
            raise settings
        return settings

    reloading = Reloading(read_again)
    reloading.begin(taken.append)
    for _ in range(3):
        reloading.ask()
    assert taken == [Settings(data=Path("d"))]
    assert ["a wrong key" in line or "the previous ones stay in force" in line for line in caplog.messages] == [True, True]


def test_the_documents_name_what_may_change(repository: Path) -> None:
    assert set(LIVE) <= set(KEYS)
    for page in ("docs/operate.md", "conf/penstock.toml"):
        text = (repository / page).read_text()
        after = text.partition("SIGHUP re")[2].partition("\n\n#" if page.startswith("docs") else "log_level = ")[0]
        for name in set(LIVE) - {"log_level"}:
            assert name in after, (page, name)
