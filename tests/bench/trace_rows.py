"""The row about the history of a message: its id is searched in a large archive table."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from feeding import BATCH, QUEUE, batch_of, enqueue_command, until_recorded
from harness import Bench, Line, Stopwatch

from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.server.child import Broker
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

ARCHIVED = 100_000_000  # messages for which the result is calculated
MEASURED = 10_000_000
ID_CHARACTERS = 32
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def trace(bench: Bench) -> Iterator[Line]:
    """A tenth of the messages is measured. The time grows with the number of row groups, so the whole takes ten times as long."""
    messages = bench.count(MEASURED, 200_000) // BATCH * BATCH
    folder = bench.folder()
    with bench.doing(f"{messages:,} messages"):
        wanted = _filled(folder, messages)
    with Broker(folder, archive_after_s=0.1) as broker, Client(broker.url) as client:
        with bench.doing("recording them"):
            until_recorded(client)
        for title, ids in (("an id of a message", wanted), ("an id that no message has", [_ids(1)[0].as_py() for _ in wanted])):
            client.call("message.trace", id=ids[0])
            seconds: list[float] = []
            for text in ids[1:]:
                with Stopwatch() as watch:
                    answer = client.call("message.trace", id=text)
                assert len(answer["messages"]) == (ids is wanted)
                seconds.append(watch.seconds * ARCHIVED / messages)
            what = f"trace of {title} in {ARCHIVED:,} archived messages, calculated from {messages:,}"
            yield Line("trace", what, "", 5.0, None, False, "s", seconds)
    bench.remove(folder)


def _ids(count: int) -> pa.Array:
    """Return random ids: no statistics exclude a row group."""
    digits = _DIGITS[np.random.default_rng().integers(0, len(_DIGITS), count * ID_CHARACTERS)]
    ends = np.arange(0, (count + 1) * ID_CHARACTERS, ID_CHARACTERS, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(digits.tobytes())])


def _filled(folder: Path, messages: int) -> list[str]:
    """Fill a queue with settled messages. Return the ids of six of them."""
    wanted: list[str] = []
    service = BrokerService(Settings(data=folder, fsync="never"))
    try:
        service.submit(c.DeclareQueue(QUEUE))
        for done in range(0, messages, BATCH):
            ids = _ids(BATCH)
            columns = {"body": batch_of(BATCH, 20).column("body"), "messageId": ids, "correlationId": _ids(BATCH)}
            command = enqueue_command(pa.record_batch(columns))
            service.reserve_space(command.payload.nbytes)
            service.submit_nowait(command)
            if done % (messages // 6 // BATCH * BATCH) == 0 and len(wanted) < 6:
                wanted.append(ids[77].as_py())
        while service.submit(c.Purge(QUEUE)):
            time.sleep(0)
    finally:
        service.close()
    return wanted
