"""The data source `amqp`."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from pyspark.sql.types import StructType

from ..broker_core.client.discovery import NoPenstock
from .batch.reader import BatchReader, PushdownBatchReader
from .brokers.replays import SeveralReplays
from .foreign.sink import ForeignBatchWriter, ForeignStreamWriter
from .options import Options
from .reporting import reports_errors
from .schema import default_schema
from .sink.writer import BatchWriter, StreamWriter
from .spark_versions import (
    HAS_READ_LIMITS,
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from .stream.reader import StreamReader
from .stream.replay import ReplayReader
from .stream.start_tracking import StartTracker, TrackedReader


@reports_errors
class AmqpSource(DataSource):
    """Invalid options are refused immediately; each reader and writer checks its own."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options if isinstance(options, MutableMapping) else dict(options))
        self._options = Options(options)

    @classmethod
    def name(cls) -> str:
        return "amqp"

    def schema(self) -> StructType:
        return default_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return (PushdownBatchReader if self._options["pushdown"] else BatchReader)(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        reader: TrackedReader
        if self._options["mode"] != "replay":
            reader = StreamReader(self._options, schema)
        else:
            reader = (SeveralReplays if len(self._options.urls) > 1 else ReplayReader)(self._options, schema)
        return reader if HAS_READ_LIMITS else StartTracker(reader)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        try:
            return BatchWriter(self._options, schema, overwrite)
        except NoPenstock:
            return ForeignBatchWriter(self._options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        try:
            return StreamWriter(self._options, schema, overwrite)
        except NoPenstock:
            return ForeignStreamWriter(self._options, schema, overwrite)
