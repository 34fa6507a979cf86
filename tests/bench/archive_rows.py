"""Rows about the archive: settled messages into Parquet and a Delta table, against pyarrow alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from feeding import BATCH, QUEUE, batch_of, enqueue_command
from harness import Bench, Line, Stopwatch

from penstock.broker_core.archive.recorder.recorder import Recorder
from penstock.broker_core.archive.table.layout import FILE_SCHEMA, ROW_GROUP_ROWS, file_options
from penstock.broker_core.engine import commands as c
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.service.recordings import Recordings
from penstock.broker_core.settings.keys import Settings

SIZES = {100: 2_000_000, 1024: 500_000}  # bytes of a message → messages


def _settled(data: Path, size: int, messages: int) -> tuple[BrokerService, Recorder]:
    """A broker whose messages are settled and not recorded, and its recorder, whose process has begun."""
    settings = Settings(data=data, fsync="never", archive_after_s=0.1)
    service = BrokerService(settings)
    service.state.records = True
    host = Recordings(service.state, service.journal, service._lock, service._clock, lambda command: service.submit(command))
    recorder = Recorder(host, settings)
    service.submit(c.DeclareQueue("first"), c.DeclareQueue(QUEUE))
    service.submit(c.Enqueue("first", 1, 1, enqueue_command(batch_of(1, size)).payload), c.Purge("first"))
    _record(recorder, service)
    batch = batch_of(BATCH, size)
    for _ in range(messages // BATCH):
        service.submit_nowait(enqueue_command(batch))
    while service.submit(c.Purge(QUEUE)):
        pass
    while service.pack_blocks():
        pass
    time.sleep(0.2)  # for archive_after_s
    return service, recorder


def _record(recorder: Recorder, service: BrokerService) -> None:
    while service.submit(c.ListBacklogs()):
        recorder.turn()


def _rewritten(rows: pa.Table, path: Path) -> float:
    """Seconds in which pyarrow writes these rows to one file, as the archiver does, and has it on the disk."""
    with Stopwatch() as watch:
        writer = pq.ParquetWriter(
            str(path),
            FILE_SCHEMA,
            **file_options(),
        )
        writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        writer.close()
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    return watch.seconds


def archive(bench: Bench) -> Iterator[Line]:
    for size, full in SIZES.items():
        messages = bench.count(full, BATCH) // BATCH * BATCH
        tables: list[pa.Table] = []

        def ours(_: int, size: int = size, messages: int = messages, rows: list[pa.Table] = tables) -> float:
            data = bench.folder()
            service, recorder = _settled(data, size, messages)
            try:
                with Stopwatch() as watch:
                    _record(recorder, service)
                rows.append(_read(data))
                assert rows[-1].num_rows == messages
                return messages / watch.seconds
            finally:
                recorder.close()
                service.close()
                bench.remove(data)

        def theirs(_: int, messages: int = messages, rows: list[pa.Table] = tables) -> float:
            path = bench.folder()
            seconds = _rewritten(rows.pop(), path)
            path.unlink()
            return messages / seconds

        figures = bench.pairs("messages/s", ours, theirs)
        yield Line(
            "archive",
            f"archiver: settled messages of {size:,} bytes out of the journal into the table, committed and synced",
            "pyarrow writing the same rows from memory to one file, with the same codec, dictionaries and statistics, synced",
            0.7,
            None,
            True,
            "messages/s",
            figures[0],
            figures[1],
        )


def _read(data: Path) -> pa.Table:
    files = sorted((data / "archive" / QUEUE).rglob("*.parquet"))
    return pa.concat_tables([pq.ParquetFile(path).read(columns=FILE_SCHEMA.names).cast(FILE_SCHEMA) for path in files])
