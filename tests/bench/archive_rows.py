"""Rows about the archive: settled messages into Parquet and a Delta table, against pyarrow alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from feeding import BATCH, QUEUE, amqp_batch_of, batch_of, enqueue_command
from harness import Bench, Line, Stopwatch

from penstock.broker_core.archive.recorder.recorder import Recorder
from penstock.broker_core.archive.table.layout import (
    COMPRESSION,
    COMPRESSION_LEVEL,
    FILE_SCHEMA,
    OWN,
    ROW_GROUP_ROWS,
    exact_messages,
    file_options,
)
from penstock.broker_core.engine import commands as c
from penstock.broker_core.messages.columns import ENCODED_COLUMNS, SYSTEM_COLUMNS
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.service.recordings import Recordings
from penstock.broker_core.settings.keys import Settings

SPARK, AMQP = "Spark", "AMQP clients"
#: Sender, bytes of a body, messages, least ratio.
CASES = ((SPARK, 100, 2_000_000, 0.7), (SPARK, 1024, 500_000, 0.7), (AMQP, 1024, 500_000, 0.5))
MAKE = {SPARK: batch_of, AMQP: amqp_batch_of}


def _settled(data: Path, batch: pa.RecordBatch, messages: int) -> tuple[BrokerService, Recorder]:
    """A broker whose messages are settled and not recorded, and its recorder, whose process has begun."""
    settings = Settings(data=data, fsync="never", archive_after_s=0.1)
    service = BrokerService(settings)
    service.state.records = True
    host = Recordings(service.state, service.journal, service._lock, service._clock, lambda command: service.submit(command))
    recorder = Recorder(host, settings)
    service.submit(c.DeclareQueue("first"), c.DeclareQueue(QUEUE))
    service.submit(c.Enqueue("first", 1, 1, enqueue_command(batch.slice(0, 1)).payload), c.Purge("first"))
    _record(recorder, service)
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
            **file_options(rows.slice(0, ROW_GROUP_ROWS)),
        )
        writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        writer.close()
        with open(path, "rb") as file:
            os.fsync(file.fileno())
    return watch.seconds


class _Rounds:
    """Rounds of one case. `rows`: as the archiver wrote them last. `file_bytes`: sizes of the table by round."""

    def __init__(self, bench: Bench, batch: pa.RecordBatch, messages: int) -> None:
        self._bench, self._batch, self._messages = bench, batch, messages
        self.rows: Any = None
        self.file_bytes: list[float] = []

    def archiver(self, number: int) -> float:
        data = self._bench.folder()
        service, recorder = _settled(data, self._batch, self._messages)
        try:
            with Stopwatch() as watch:
                _record(recorder, service)
            self.rows = _read(data)
            self.file_bytes.append(sum(path.stat().st_size for path in _files(data)))
            assert self.rows.num_rows == self._messages
            return self._messages / watch.seconds
        finally:
            recorder.close()
            service.close()
            self._bench.remove(data)

    def pyarrow(self, number: int) -> float:
        path = self._bench.folder()
        seconds = _rewritten(self.rows, path)
        path.unlink()
        return self._messages / seconds

    def encoded(self, number: int) -> float:
        """Write the rows without decoded columns; return the size of the file."""
        path = self._bench.folder()
        message = pa.chunked_array([exact_messages(part) for part in self.rows.to_batches()])
        names = [name for name in FILE_SCHEMA.names if name in {*ENCODED_COLUMNS, *SYSTEM_COLUMNS, *OWN}]
        arrays = [message if name == "message" else self.rows.column(name) for name in names]
        pq.write_table(pa.table(arrays, names=names), path, compression=COMPRESSION, compression_level=COMPRESSION_LEVEL)
        size = path.stat().st_size
        path.unlink()
        return float(size)


def archive(bench: Bench) -> Iterator[Line]:
    for sender, size, full, least in CASES:
        messages = bench.count(full, BATCH) // BATCH * BATCH
        rounds = _Rounds(bench, MAKE[sender](BATCH, size), messages)
        figures = bench.pairs("messages/s", rounds.archiver, rounds.pyarrow)
        yield Line(
            "archive",
            f"archiver: settled messages of {size:,} bytes from {sender} out of the journal into the table, committed and synced",
            "pyarrow writing the same rows from memory to one file, with the same codec, dictionaries and statistics, synced",
            least,
            None,
            True,
            "messages/s",
            figures[0],
            figures[1],
        )
        if sender == AMQP:
            figures = bench.pairs("bytes", rounds.file_bytes.__getitem__, rounds.encoded)
            yield Line(
                "archive",
                f"table of messages of {size:,} random bytes from {sender}, with exact bytes and readable columns",
                "the same rows with the encoded messages, and without decoded columns",
                1.1,
                None,
                False,
                "bytes",
                figures[0],
                figures[1],
            )


def _files(data: Path) -> list[Path]:
    return sorted((data / "archive" / QUEUE).rglob("*.parquet"))


def _read(data: Path) -> pa.Table:
    return pa.concat_tables([pq.ParquetFile(path).read(columns=FILE_SCHEMA.names).cast(FILE_SCHEMA) for path in _files(data)])
