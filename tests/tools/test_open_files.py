"""File descriptors: the limit is raised as far as connections need it, limits of connections follow, and nothing spins."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from penstock import Broker
from penstock.broker_core.children.processes import environment
from penstock.broker_core.client.amqp import connect
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.open_files import HTTP_OTHERS, OTHERS

from ..waiting import until
from .conftest import enqueue

PROGRAM = """
import resource, sys
from penstock.broker_core.server.open_files import make_room
from penstock.broker_core.settings.keys import Settings
soft, hard, amqp, flight, http = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
settings = Settings(data="d", amqp_max_connections=amqp, flight_max_connections=flight, http_max_connections=http)
*room, warning = make_room(settings)
print(*room, *resource.getrlimit(resource.RLIMIT_NOFILE))
print(warning)
"""


def run(*limits: int) -> tuple[list[int], str]:
    arguments = [sys.executable, "-c", PROGRAM, *map(str, limits)]
    numbers, warning = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    return [int(number) for number in numbers.split()], warning


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "room", "after"),
    [
        (256, 4000, (1500, 500, 10), (1500, 500, 10), 2000 + OTHERS),
        (3000, 4000, (1500, 500, 10), (1500, 500, 10), 3000),
        (256, 4000, (10, 10, 2000), (10, 10, 2000), 2000 + HTTP_OTHERS),
        (256, 1024, (4096, 1024, 512), (409, 103, 512), 1024),  # the defaults, where many systems are
        (256, 1024, (1500, 500, 2000), (384, 128, 1024 - HTTP_OTHERS), 1024),
        (100, 100, (1500, 500, 512), (37, 13, 50), 100),  # half for connections, half for everything else
    ],
)
def test_room_is_made_up_to_the_hard_limit(
    soft: int, hard: int, wanted: tuple[int, int, int], room: tuple[int, int, int], after: int
) -> None:
    """W5: connections are refused by their own limit, with its condition, not by the system's."""
    numbers, warning = run(soft, hard, *wanted)
    assert numbers == [*room, after, hard]
    assert (warning != "None") == (room != wanted)
    if room != wanted:
        assert "ulimit -Hn" in warning
        for name, setting, most, asked in zip(("AMQP", "Flight", "HTTP"), ("amqp", "flight", "http"), room, wanted, strict=True):
            assert (f"{most} {name} connections ({setting}_max_connections is {asked})" in warning) == (most < asked)


pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")
TOO_MANY = 150  # connections more than fit


def address(url: str) -> tuple[str, int]:
    host, _, port = url.partition("://")[2].rpartition(":")
    return host, int(port)


@contextmanager
def flooded(url: str, count: int) -> Iterator[None]:
    """So many connections that say nothing."""
    with ExitStack() as opened:
        for _ in range(count):
            opened.enter_context(closing(socket.create_connection(address(url), timeout=30)))
        yield


def used(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


def alarms(client: Client) -> dict[str, str]:
    return {alarm["name"]: alarm["text"] for alarm in client.call("broker.status")["alarms"]}


def readiness(url: str) -> int:
    """Return the status with which /health/ready is answered; 0 if the connection is turned away."""
    try:
        with urlopen(f"{url}/health/ready", timeout=30) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_a_low_hard_limit_lowers_the_limits_of_connections(tmp_path: Path) -> None:
    """`ulimit -n 1024`, and on every port more connections than fit."""
    command = f"ulimit -n 1024; exec {sys.executable} -m penstock serve --data data --amqp-port 0 --flight-port 0 --http-port 0"
    log = tmp_path / "log"
    with open(log, "w") as stderr:
        process = subprocess.Popen(
            ["sh", "-c", command], cwd=tmp_path, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment()
        )
    try:
        assert process.stdout is not None
        urls = json.loads(process.stdout.readline())
        with Client(urls["flight"]) as client, connect(urls["amqp"]) as amqp:
            until(lambda: "files-low" in alarms(client), "the alarm is raised")
            assert "only 1024 files may be open, so the broker accepts 409 AMQP connections" in alarms(client)["files-low"]
            with (
                flooded(urls["amqp"], 409 + TOO_MANY),
                flooded(urls["flight"], 103 + TOO_MANY),
                flooded(urls["http"], 512 + TOO_MANY),
            ):
                until(lambda: "turned away, 103 connections open" in log.read_text(), "connections are refused by a limit")
                assert used(process.pid) < 1024 - 100  # the others have theirs
                enqueue(client, "q", b"message")
                assert len(amqp.receiver("q", credit=1).receive(1, timeout_s=30)) == 1
                assert "files-exhausted" not in alarms(client)
            until(lambda: readiness(urls["http"]) == 200, "the broker is ready")
    finally:
        process.kill()
        process.communicate()
    lines = log.read_text().splitlines()
    assert sum("only 1024 files may be open" in line and "alarm" not in line for line in lines) == 1
    assert "Traceback" not in log.read_text()
    assert len(lines) < 1000


def test_without_a_descriptor_new_connections_wait_and_the_others_go_on(tmp_path: Path) -> None:
    """Another limit than the broker has seen at its start, as after a leak in a library; in both of its processes."""
    settings = {"segment_bytes": 1 << 20, "snapshot_every_bytes": 1 << 20}
    with Broker(tmp_path / "data", **settings) as broker, Client(broker.url) as client:
        enqueue(client, "q", b"message")
        assert readiness(broker.http_url) == 200
        child, before = re.findall(r"the process for HTTP is started: (\d+)", broker.log()), len(broker.log().splitlines())
        for process in (broker.pid, int(child[-1])):
            limit = used(process) + 20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.prlimit(process, resource.RLIMIT_NOFILE, limit)
        with ExitStack() as floods:
            for url in (broker.amqp_url, broker.flight_url):
                floods.enter_context(flooded(url, TOO_MANY))
            until(lambda: "files-exhausted" in alarms(client), "the alarm is raised")
            assert readiness(broker.http_url) == 503
            floods.enter_context(flooded(broker.http_url, TOO_MANY))
            until(lambda: "AMQP, Flight, HTTP" in alarms(client)["files-exhausted"], "the alarm names every plane")
            segments = len(list((tmp_path / "data").glob("*.seg")))
            for _ in range(6):
                enqueue(client, "q", *[bytes(5000)] * 100)
            assert len(list((tmp_path / "data").glob("*.seg"))) > segments  # the journal has descriptors of its own
        with Client(broker.url) as later, connect(broker.amqp_url) as amqp:
            assert later.call("queue.stat", queue="q")["available"] == 601
            assert len(amqp.receiver("q", credit=1).receive(1, timeout_s=30)) == 1
        until(lambda: "files-exhausted" not in alarms(client), "the alarm is over")
        until(lambda: readiness(broker.http_url) == 200, "the broker is ready")
        lines = broker.log().splitlines()[before:]
        for plane in ("AMQP", "Flight", "HTTP"):
            text = f"{plane}: no connection can be accepted: Too many open files"
            assert sum(text in line for line in lines) == 1
        assert len(lines) < 60, lines
        assert "Traceback" not in broker.log()
