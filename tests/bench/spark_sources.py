"""Yardsticks of the connector inside Spark: a source that reads from memory, a sink that writes to a file.

Both are as fast as a Python data source can be. They are sent to Spark's Python workers by value (see `spark_rows.session`),
because the workers cannot import this folder.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from feeding import BATCH
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from penstock.connector.source import AmqpSource
from penstock.connector.spark_versions import (
    HAS_READ_LIMITS,
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    WriterCommitMessage,
)
from penstock.connector.stream.reader import StreamReader

MEMORY, FILE, SILENT = "benchMemory", "benchFile", "benchSilent"
TRIGGERS, WARM_UP = 60, 10  # of one row each, a repeat; the first few warm up


def memory_options(columns: Sequence[str], rows: int, *, limit: int | None = None, partitions: int = 1) -> dict[str, Any]:
    """Options of the in-memory source. Without `limit`, one trigger reads all rows."""
    return {"rows": rows, "limit": limit or rows, "partitions": partitions, "batch": BATCH, "columns": json.dumps(columns)}


def trigger_ms(query: StreamingQuery) -> float:
    """Run `TRIGGERS` triggers with one row each, stop the query, and return the median duration."""
    while len(done := [p for p in query.recentProgress if p["numInputRows"] == 1]) < TRIGGERS:
        time.sleep(0.2)
        if query.exception() is not None:
            raise RuntimeError(query.exception())
    query.stop()
    return statistics.median(progress["durationMs"]["triggerExecution"] for progress in done[WARM_UP:])


class MemorySource(DataSource):
    """Options: `rows` in all, `limit` a trigger, `partitions` a trigger, `batch` (rows of the one batch), `columns`."""

    @classmethod
    def name(cls) -> str:
        return MEMORY

    def schema(self) -> StructType:
        from penstock.connector.schema import source_schema

        return source_schema(tuple(json.loads(self.options["columns"])))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        numbers = [int(self.options[name]) for name in ("rows", "limit", "partitions", "batch")]
        reader = _MemoryReader if HAS_READ_LIMITS else _EarlierMemoryReader
        return reader(json.loads(self.options["columns"]), *numbers)


class _Range(InputPartition):
    def __init__(self, rows: int) -> None:
        self.rows = rows


class _MemoryReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, columns: list[str], rows: int, limit: int, partitions: int, batch: int) -> None:
        self._columns, self._rows, self._limit, self._partitions, self._batch = columns, rows, limit, partitions, batch

    def initialOffset(self) -> dict[str, Any]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limit)

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = self._rows if isinstance(limit, ReadAllAvailable) else self._limit
        return {"row": min(start["row"] + most, self._rows)}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        rows, parts = end["row"] - start["row"], self._partitions
        return [_Range(rows * (i + 1) // parts - rows * i // parts) for i in range(parts)]

    def commit(self, end: Mapping[str, Any]) -> None:
        pass

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Range)
        left = partition.rows
        batch = _prebuilt(self._columns, min(self._batch, left))
        while left >= batch.num_rows > 0:
            yield batch
            left -= batch.num_rows
        if left:
            yield batch.slice(0, left)


class _EarlierMemoryReader(_MemoryReader):
    """For Spark 4.0 and 4.1, which begin a trigger where the last plan ended."""

    _row = 0

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        return {"row": min(self._row + self._limit, self._rows)}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        self._row = end["row"]
        return super().partitions(start, end)


def _prebuilt(columns: list[str], rows: int) -> pa.RecordBatch:
    """Rows like the queue's: bodies of 100 bytes, everything else as the broker gives it."""
    from penstock.broker_core.messages import assembly

    data, offsets = pa.py_buffer(os.urandom(rows * 100)), pa.array(range(0, rows * 100 + 1, 100), pa.int32()).buffers()[1]
    body = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, data])
    payload = pa.RecordBatch.from_arrays([body], names=["body"])
    time = 1_700_000_000_000_000
    return assembly.assemble(
        columns, payload, {"queue": "bench", "sequenceNumber": 0, "enqueuedTime": time, "deliveryCount": 0}, malformed={}
    )


class FileSink(DataSource):
    """Option `folder`: each task writes its record batches to a file there and makes them durable with one fdatasync."""

    @classmethod
    def name(cls) -> str:
        return FILE

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return _FileWriter(self.options["folder"])


class _FileWriter(DataSourceArrowWriter):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        path = os.path.join(self._folder, os.urandom(8).hex())
        with open(path, "wb", buffering=0) as file:
            for batch in iterator:
                file.write(batch.serialize())
            os.fdatasync(file.fileno())
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        pass

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        pass


class SilentSource(AmqpSource):
    """The connector without the backlog in a query's progress, whose cost is the difference."""

    @classmethod
    def name(cls) -> str:
        return SILENT

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _SilentReader(self._options, schema)


class _SilentReader(StreamReader):
    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        client: Any = self._consumer(start)._lease._client  # type: ignore[attr-defined]
        if "call" not in vars(client):
            call = client.call
            client.call = lambda action, **fields: call(action, **{k: v for k, v in fields.items() if k != "counts"})
        return super().latestOffset(start, limit)

    def reportLatestOffset(self) -> None:  # type: ignore[override]
        return None


def register(spark: SparkSession) -> None:
    spark.dataSource.register(SilentSource)
    spark.dataSource.register(MemorySource)
    spark.dataSource.register(FileSink)
