"""Silent connections take all file descriptors of a broker. It continues, and so does its storage."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .helpers import browse, numbered, send

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")

LIMIT = 30  # descriptors beyond those in use


def used(broker: Broker) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


@contextlib.contextmanager
def silent_connections(broker: Broker, limit: int) -> Iterator[None]:
    """So many that the broker has no descriptor left, and another as soon as it has one again."""
    host, port = broker.url.removeprefix("grpc://").split(":")
    sockets: list[socket.socket] = []
    full, over = threading.Event(), threading.Event()

    def flood() -> None:
        while not over.wait(0.002):
            if used(broker) >= limit:
                full.set()
            elif len(sockets) < 1000:
                sockets.append(socket.create_connection((host, int(port))))

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        assert full.wait(30), f"the broker uses {used(broker)} of {limit}"
        yield
    finally:
        over.set()
        flooding.join()
        for sock in sockets:
            sock.close()


def test_silent_connections_stop_no_broker_and_nothing_is_lost_or_called_damaged(tmp_path: Path) -> None:
    settings = {"segment_bytes": 1 << 20, "snapshot_every_bytes": 1 << 20}
    with Broker(tmp_path / "data", **settings) as broker, Client(broker.url) as client:
        client.call("queue.declare", queue="q")
        send(client, "q", numbered(100, 5000))
        assert broker.pid is not None
        limit = used(broker) + LIMIT
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (limit, limit))
        with silent_connections(broker, limit):
            segments, snapshots = (sorted((tmp_path / "data").glob(f"*.{kind}")) for kind in ("seg", "snap"))
            for number in range(1, 40):
                send(client, "q", numbered(100, 5000, start=100 * number))
            until(lambda: sorted((tmp_path / "data").glob("*.snap")) != snapshots, "a snapshot is written")
            assert len(list((tmp_path / "data").glob("*.seg"))) > len(segments) + 10
            assert [row["body"] for row in browse(client, "q", "body")] == numbered(4000, 5000)
        assert client.call("queue.stat", queue="q")["available"] == 4000
        broker.kill()
        broker.start()
        with Client(broker.url) as again:
            assert [row["body"] for row in browse(again, "q", "body")] == numbered(4000, 5000)
