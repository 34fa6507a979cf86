"""A broker of its own for each test, and the command line as a user has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pytest

from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "broker", fsync="never") as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.url) as connected:
        yield connected


@pytest.fixture
def penstock(tmp_path: Path) -> Run:
    """Run `penstock …` in a process, as a shell would; `url` goes into PENSTOCK_URL."""

    def run(*arguments: str, url: str | None = None, limit_s: float = 60) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "COLUMNS": "200"}
        environment.pop("PENSTOCK_URL", None)
        if url is not None:
            environment["PENSTOCK_URL"] = url
        command = [sys.executable, "-m", "penstock", *arguments]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit_s,
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    return run


def enqueue(client: Client, queue: str, *bodies: bytes) -> None:
    client.call("queue.declare", queue=queue)
    batch = pa.record_batch({"body": pa.array(bodies, pa.binary())})
    client.put({"op": "enqueue", "queue": queue}, batch.schema, [batch])


def hold(client: Client, queue: str, lease: str, messages: int) -> None:
    """A query takes a batch, reads it, and dies."""
    answer = client.call(
        "lease.advance", queue=queue, lease=lease, run="r", epoch=None, finished=0, fresh=True, messages=messages
    )
    plan = client.call("lease.plan", queue=queue, lease=lease, run="r", epoch=answer["epoch"], after=0, batch=answer["batch"])
    for batch, first, last, _ in plan["parts"]:
        part = {"lease": lease, "run": "r", "epoch": plan["epoch"], "batch": batch, "first": first, "last": last}
        assert list(client.get(op="batch", columns=["body"], **part))


def serve(
    data: Path, *arguments: str, stderr: int | IO[bytes] | IO[str] = subprocess.PIPE, **environment: str
) -> subprocess.Popen[str]:
    """Run `penstock serve` on free ports, in the folder of its data directory."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "penstock",
            "serve",
            "--data",
            str(data),
            "--flight-port",
            "0",
            "--amqp-port",
            "0",
            "--http-port",
            "0",
            *arguments,
        ],
        stdout=subprocess.PIPE,
        stderr=stderr,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=data.parent,
        env={**os.environ, **environment},
    )
