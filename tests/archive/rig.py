"""A broker's service and its recorder in this process, step by step, and the rows of a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.archive.recorder.process import ProcessEnded
from penstock.broker_core.archive.recorder.recorder import Recorder, greeting
from penstock.broker_core.archive.recorder.worker import RecorderWorker
from penstock.broker_core.archive.table.layout import table_url
from penstock.broker_core.children.frames import ChildFrame
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Outcome
from penstock.broker_core.messages.payloads import store, stored_sizes
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.service.recordings import Recordings
from penstock.broker_core.settings.keys import Settings
from penstock.broker_core.stores.credentials import delta_options

from ..flight.helpers import batch_of

STEPS = ("open", "write", "commit", "answer")  # of a recording


def encoded(*numbers: int) -> pa.RecordBatch:
    """Messages as AMQP clients send them."""
    messages = [
        Message(
            properties=Properties(message_id=f"m{number}", subject="s"),
            application_properties={"n": number},
            data=[b"%d" % number],
        ).encode()
        for number in numbers
    ]
    return pa.record_batch({"message": pa.array(messages, pa.binary())})


def encoded_value(number: int) -> pa.RecordBatch:
    """A message without properties, whose body is a list."""
    return pa.record_batch({"message": pa.array([Message(value=["list", number], has_value=True).encode()], pa.binary())})


class Died(BaseException):
    """The archiver's process is killed here."""


class InProcess:
    """Stands for the archiver's process: a worker that dies where `step` raises `Died`."""

    pid = None

    def __init__(self, hello: dict[str, Any], step: Callable[[str], None] = lambda name: None) -> None:
        self._hello, self._step = hello, step
        self.asked: list[dict[str, Any]] = []

    def ask(self, request: dict[str, Any], attachments: Sequence[bytes] = ()) -> dict[str, Any]:
        self.asked.append(request)
        header = json.loads(json.dumps(request))
        worker = RecorderWorker(self._hello, self._step)
        try:
            answer = worker.answer(ChildFrame(header, [bytes(attachment) for attachment in attachments]))
        except Died:
            raise ProcessEnded("it was killed") from None
        finally:
            worker._journal.close()  # as its end would: each holds descriptors in reserve
        return dict(json.loads(json.dumps(answer)))

    def close(self) -> None:
        pass


class Rig:
    """A broker without planes on `data`. The recorder's clock moves only when a test moves it."""

    def __init__(
        self, data: Path, step: Callable[[str], None] = lambda name: None, *, own_process: bool = False, **options: Any
    ) -> None:
        self.data, self.options, self._own_process = data, {"archive_after_s": 0.1, **options}, own_process
        self.step: Callable[[str], None] = step
        self.up = 1000.0
        self.open()

    def open(self) -> None:
        settings = Settings(data=self.data, fsync="never", **self.options)
        self.service = BrokerService(settings)
        self.service.state.records = True
        service = self.service
        host = Recordings(service.state, service.journal, service._lock, service._clock, service.submit)
        self.child = InProcess(greeting(host, settings), lambda name: self.step(name))
        self.recorder = Recorder(host, settings, lambda: self.up, None if self._own_process else self.child)

    def reopen(self) -> None:
        self.close()
        self.open()

    def close(self) -> None:
        self.recorder.close()
        self.service.close()

    def send(self, queue: str, *batches: pa.RecordBatch | list[bytes]) -> None:
        for part in batches:
            batch = part if isinstance(part, pa.RecordBatch) else batch_of(part)
            self.service.submit(c.Enqueue(queue, batch.num_rows, stored_sizes(batch), store(batch)))

    def settle(
        self, queue: str, count: int, outcome: Outcome = Outcome.ACCEPTED, error: str | None = None, user: str | None = None
    ) -> RowSet:
        link = self.service.submit(c.Subscribe(queue, user=user))
        rows: RowSet = self.service.submit(c.Acquire(queue, link, count)).rows
        self.service.submit(c.Settle(queue, link, rows, outcome, error), c.Unsubscribe(queue, link))
        return rows

    def record(self, most: int = 1000) -> None:
        """Turns of the recorder an hour from now, until nothing is done any more."""
        host = self.recorder._host
        wall = host.now
        host.now = lambda: wall() + 3_600_000_000  # type: ignore[method-assign]
        try:
            for _ in range(most):
                self.up = max([self.up, *(trouble.until for trouble in self.recorder._troubles.values())])
                if not self.recorder.turn():
                    return
        finally:
            host.now = wall  # type: ignore[method-assign]

    def unrecorded(self) -> int:
        return sum(backlog.rows for backlog in self.service.submit(c.ListBacklogs()))

    def table(self, queue: str = "q") -> pa.Table:
        return table(self.data / "archive", queue)


def table(archive: Path | str, queue: str = "q") -> pa.Table:
    """The rows of a queue's table, in order, by deltalake and pyarrow."""
    url = table_url(str(archive), queue)
    content = deltalake.DeltaTable(url, storage_options=delta_options(url)).to_pyarrow_table()
    return content.sort_by([("queueId", "ascending"), ("sequenceNumber", "ascending"), ("pass", "ascending")])


def sequences(rows: pa.Table) -> list[int]:
    return [int(number) for number in rows["sequenceNumber"].to_pylist()]


def passes_of(folder: Path, queue: str = "q") -> Counter[int]:
    return Counter(table(folder, queue)["pass"].to_pylist())


def numbers(*parts: range) -> list[int]:
    return [int(number) for number in np.concatenate([np.array(part) for part in parts])]
