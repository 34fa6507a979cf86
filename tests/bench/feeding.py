"""Data directories with messages, and the memory of a broker's process.

A directory is filled once and then copied with hard links. A broker never changes existing files: it only adds files and
unlinks some. So every repeat starts from the same journal without a new copy of its bytes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
from harness import Bench, Stopwatch

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import ULong
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.messages import batch_checks
from penstock.broker_core.messages.payloads import store, stored_sizes
from penstock.broker_core.server.child import Broker
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

QUEUE = "bench"
BATCH = 10_000  # messages a record batch
CREDIT = 1_000  # single messages under way
RECORDED_LIMIT_S = 600.0  # until the recorder has written all settled messages


def batch_of(rows: int, size: int) -> pa.RecordBatch:
    """`rows` messages with bodies of `size` random bytes."""
    data = pa.py_buffer(os.urandom(rows * size))
    offsets = pa.array(range(0, rows * size + 1, size), pa.int32()).buffers()[1]
    body = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, data])
    return pa.record_batch([body], names=["body"])


def amqp_batch_of(rows: int, size: int) -> pa.RecordBatch:
    """`rows` messages as AMQP clients send them: an id, a subject, eight typed properties, `size` random bytes as data."""
    messages = []
    for number in range(rows):
        properties = {"n": number, "even": number % 2 == 0, "shop": f"shop-{number % 7}", "price": number / 8, "region": "eu"}
        properties |= {"order": ULong(10**12 + number), "note": None, "source": "web"}
        sent = Message(
            properties=Properties(message_id=str(uuid.uuid4()), subject="created"),
            application_properties=properties,
            data=[os.urandom(size)],
        )
        messages.append(sent.encode())
    return pa.record_batch({"message": pa.array(messages, pa.binary())})


def enqueue_command(batch: pa.RecordBatch, queue: str = QUEUE) -> c.Enqueue:
    """Build the command that the Flight plane builds from a record batch."""
    valid = batch_checks.validate(batch)
    sizes: Any = stored_sizes(valid)
    return c.Enqueue(queue, valid.num_rows, sizes, store(valid))


def nbytes(command: c.Enqueue) -> int:
    nbytes: int = command.payload.nbytes
    return nbytes


def enqueue(service: BrokerService, messages: int, size: int, rows: int, queue: str = QUEUE) -> None:
    """Enqueue durably, in process. Single messages are a command each, as from a link with a credit of `CREDIT`."""
    command, end = enqueue_command(batch_of(rows, size), queue), 0
    for done in range(0, messages, rows):
        if rows > 1:
            service.reserve_space(nbytes(command))
        elif done % CREDIT == 0:
            service.journal.wait(end)
        _, end = service.submit_nowait(command)
    service.journal.wait(end)


def settle(service: BrokerService, messages: int, step: int = 100_000) -> None:
    holder = service.submit(c.Subscribe(QUEUE))
    for done in range(0, messages, step):
        rows = service.submit(c.Acquire(QUEUE, holder, min(step, messages - done))).rows
        service.submit(c.Settle(QUEUE, holder, rows))


def until_recorded(client: Client) -> None:
    end = time.monotonic() + RECORDED_LIMIT_S
    while client.call("queue.stat", queue=QUEUE)["unrecorded"]:
        if time.monotonic() > end:
            raise TimeoutError(f"not everything was recorded within {RECORDED_LIMIT_S:g} s")
        time.sleep(0.1)


def beside() -> dict[str, str]:
    """Return the environment of a process that imports modules of this folder, which PYTHONSAFEPATH prevents otherwise."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))}


def filled(
    data: Path, messages: int, *, size: int = 100, rows: int = BATCH, settled: int = 0, crash: bool = False, quiet_s: float = 0
) -> dict[str, int]:
    """Fill a new data directory in a separate process, which ends in order, or as after kill -9.

    Return its anonymous bytes before the messages, and `quiet_s` after the last one.
    """
    arguments = [str(data), *(str(number) for number in (messages, size, rows, settled, int(crash), int(quiet_s)))]
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=False, env=beside())
    if done.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(f"filling {messages} messages failed with exit code {done.returncode}")
    before, after = done.stdout.split()
    return {"before": int(before), "after": int(after)}


def copied(data: Path, to: Path) -> Path:
    """Copy a data directory by hard links to every file but the lock."""
    shutil.copytree(data, to, copy_function=lambda old, new: os.link(old, new), ignore=shutil.ignore_patterns("lock"))
    return to


def started(bench: Bench, origin: Path, waiting: int) -> float:
    """Return the seconds until a broker is ready on a copy of a directory with `waiting` available messages."""
    data = copied(origin, bench.folder())
    broker = Broker(data, fsync="always")
    with Stopwatch() as watch:
        broker.start()
    try:
        with Client(broker.url) as client:
            assert client.call("queue.stat", queue=QUEUE)["available"] == waiting
    finally:
        broker.kill()
        bench.remove(data)
    return watch.seconds


def anonymous_bytes(pid: int | str = "self") -> int:
    """Return RssAnon: the memory of a process that is not backed by files."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not report RssAnon")


def _main(data: str, *numbers: str) -> None:
    messages, size, rows, settled, crash, quiet_s = (int(number) for number in numbers)
    service = BrokerService(Settings(data=Path(data)))
    service.submit(c.DeclareQueue(QUEUE))
    before = anonymous_bytes()
    enqueue(service, messages, size, rows)
    settle(service, settled)
    time.sleep(quiet_s)
    print(before, anonymous_bytes(), flush=True)
    if crash:
        os.kill(os.getpid(), signal.SIGKILL)
    service.close()


if __name__ == "__main__":
    _main(*sys.argv[1:])
