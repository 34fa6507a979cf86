"""The broker's log and its notifications: fields and formats. A slow reader of the log does not block the broker."""

from __future__ import annotations

import json
import logging
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import tty
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker_core import errors, logs
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from .conftest import serve

#: A process that logs lines of a number and 200 letters, and prints a line at the end.
LOGGING = """
import logging, sys
from penstock.broker_core import logs
logs.begin()
logging.getLogger().handlers[0].setFormatter(logging.Formatter("%(message)s"))
for number in range(int(sys.argv[2])):
    logging.getLogger().info("%s %d %s", sys.argv[1], number, "x" * 200)
print("done", flush=True)
logs.FLUSH_S = 60.0
"""


def line_of(text: str) -> logging.LogRecord:
    return logging.LogRecord("penstock", logging.INFO, __file__, 1, text, (), None)


def test_lines_of_json_have_fields(tmp_path: Path) -> None:
    """U9: user, peer and queue of a line are fields; every line is an object with time, level, logger and message."""
    data = tmp_path / "data"
    command = [sys.executable, "-m", "penstock", "user", "add", "ann", "--data", str(data)]
    subprocess.run(command, input=b"secret", check=True, cwd=tmp_path)
    with Broker(data, fsync="never", log_format="json") as broker:
        with pytest.raises(errors.Unauthenticated), Client(broker.url, Credentials("ann", "wrong")) as client:
            client.call("queue.list")
        with pytest.raises(errors.NotAllowed), Client(broker.url, Credentials("ann", "secret")) as client:
            client.call("queue.declare", queue="orders")
        broker.stop()
        lines = [json.loads(line) for line in broker.log().splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    (failed,) = (line for line in lines if "wrong name or password" in line["message"])
    assert (failed["user"], failed["level"], failed["logger"]) == ("ann", "WARNING", "penstock.security")
    assert "127.0.0.1" in failed["peer"]
    (refused,) = (line for line in lines if "may not declare" in line["message"])
    assert refused["user"] == "ann"


def test_a_start_says_what_an_operator_asks_first(tmp_path: Path) -> None:
    """U9: version, directory, recovered state, users, listeners, retention."""
    with Broker(tmp_path / "data", fsync="never") as broker:
        broker.declare("orders")
        broker.stop()
        broker.start()
        broker.stop()
        log = broker.log()
    assert log.splitlines()[0].endswith(f"penstock 0.1.0 starts on the data directory {tmp_path / 'data'}")
    assert "recovered: 1 queue, 0 messages waiting, 0 leases" in log
    assert "access: no users" in log
    assert "kept there for 30 days" in log
    assert f"ready at {broker.amqp_url}, {broker.flight_url}" in log
    first, last = log.splitlines()[-2:]
    assert first.endswith((" SIGTERM: stops", " stdin is closed: stops"))
    assert last.endswith(" stopped: everything is on the disk")


def test_a_traceback_is_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        record = logging.LogRecord("penstock", logging.ERROR, __file__, 1, "it failed: %s", ("now",), sys.exc_info())
    line = json.loads(logs.JsonLines().format(record))
    assert line["message"] == "it failed: now"
    assert line["exception"].endswith("ValueError: broken")
    assert "queue" not in line


def test_who_logs_does_not_wait_for_who_reads() -> None:
    """U9: a full pipe does not block the broker, and a later line contains the number of dropped lines."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading) as read:
        writer = logs.LogHandler(stream)
        record = line_of("x" * 100)
        for _ in range(3 * logs.MAX_WAITING):  # far more than a pipe holds
            writer.emit(record)
        assert writer.dropped > 0
        seen = sum(read.readline() == "x" * 100 + "\n" for _ in range(3 * logs.MAX_WAITING - writer.dropped))
        writer.flush()
    assert seen >= logs.MAX_WAITING


def test_who_logs_does_not_wait_for_a_terminal_that_is_stopped() -> None:
    """A terminal accepts a part of a line. The rest follows when it is read."""
    master, terminal = pty.openpty()
    tty.setraw(terminal)
    with os.fdopen(terminal, "w") as stream:
        writer = logs.LogHandler(stream)
        lines = [f"{number} {'x' * 900}\n" for number in range(200)]  # far more than a terminal holds
        logging_ = threading.Thread(target=lambda: [writer.emit(line_of(line[:-1])) for line in lines], daemon=True)
        logging_.start()
        logging_.join(30)
        assert not logging_.is_alive()
        seen = b""
        while len(seen) < sum(map(len, lines)):
            seen += os.read(master, 65536)
        assert seen.decode() == "".join(lines)
        writer.flush()
        writer.close()
    os.close(master)


@pytest.mark.parametrize("make", [os.pipe, lambda: tuple(end.detach() for end in socket.socketpair())], ids=["pipe", "socket"])
def test_processes_that_share_a_stream_take_it_from_each_other(make: Callable[[], tuple[int, int]]) -> None:
    """Each finds room that another fills meanwhile. None of them waits, each line is whole, and in its writer's order."""
    writers, lines = 4, 1000
    reading, writing = make()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading) as read:
        logging_ = [
            subprocess.Popen([sys.executable, "-c", LOGGING, str(number), str(lines)], stderr=stream, stdout=subprocess.PIPE)
            for number in range(writers)
        ]
        for process in logging_:
            assert process.stdout is not None
            assert process.stdout.readline() == b"done\n"  # without a reader
        seen: dict[str, list[int]] = {}
        for _ in range(writers * lines):
            line = read.readline()
            assert line.endswith(f" {'x' * 200}\n"), line
            writer, number, _ = line.split()
            seen.setdefault(writer, []).append(int(number))
        assert seen == {str(writer): list(range(lines)) for writer in range(writers)}
        for process in logging_:
            assert process.wait(60) == 0
            assert process.stdout is not None
            process.stdout.close()


def test_a_stop_does_not_wait_for_who_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop waits for `FLUSH_S`, though the thread that writes never comes back."""
    monkeypatch.setattr(logs, "FLUSH_S", 0.1)
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        writer = logs.LogHandler(stream)
        for _ in range(2_000):
            writer.emit(line_of("x" * 100))
        stopping = threading.Thread(target=lambda: (writer.flush(), writer.close()), daemon=True)
        stopping.start()
        stopping.join(30)
        assert not stopping.is_alive()
        os.close(reading)  # the thread finds no reader and ends
        monkeypatch.undo()
        writer.flush()


def test_a_full_disk_of_the_log_stops_nothing(tmp_path: Path) -> None:
    """U9: stderr is a device without room."""
    with open("/dev/full", "w") as full:
        process = serve(tmp_path / "data", "--http-port", "off", stderr=full)
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    with Client(ready["flight"]) as client:
        assert client.call("queue.declare", queue="orders")["created"]
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    process.stdout.close()


def test_systemd_hears_of_ready_reload_and_stop(tmp_path: Path) -> None:
    """U9: Type=notify-reload, with a real socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(60)
        process = serve(tmp_path / "data", NOTIFY_SOCKET=str(tmp_path / "notify"))
        first = listening.recv(4096).decode().splitlines()
        assert first[0] == "READY=1"
        assert first[1].startswith("STATUS=ready at amqp://127.0.0.1:")
        process.send_signal(signal.SIGHUP)
        reloading = listening.recv(4096).decode().splitlines()
        assert (reloading[0], reloading[1].partition("=")[0]) == ("RELOADING=1", "MONOTONIC_USEC")
        assert listening.recv(4096) == b"READY=1"
        process.send_signal(signal.SIGTERM)
        assert listening.recv(4096) == b"STOPPING=1"
        process.communicate(timeout=60)
        assert process.returncode == 0
