"""The data source `amqp`: its readers and writers for the calls of Spark."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ..broker_core.client.discovery import NoPenstock
from .batch.pushdown import PushdownBatchReader
from .batch.reader import BatchReader
from .brokers.replays import SeveralReplays
from .foreign.sink import ForeignBatchWriter, ForeignStreamWriter
from .options import Options
from .reporting import reports_errors
from .schema import default_schema
from .sink.writer import BatchWriter, StreamWriter
from .stream.reader import StreamReader
from .stream.replay import ReplayReader


@reports_errors
class AmqpSource(DataSource):
    """Data source for `spark.readStream`, `spark.read`, `df.write` and `df.writeStream` with `format("amqp")`.

    Raises InvalidRequest immediately for an unknown or invalid option. The reader or writer checks its own options.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options if isinstance(options, MutableMapping) else dict(options))
        self._options = Options(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "amqp"

    def schema(self) -> StructType:
        """Return the schema of a read if the user gives none."""
        return default_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a batch reader, which takes filters if the option `pushdown` is true."""
        return (PushdownBatchReader if self._options["pushdown"] else BatchReader)(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader for `spark.readStream`: of the archive if the option `mode` is replay."""
        if self._options["mode"] != "replay":
            return StreamReader(self._options, schema)
        return (SeveralReplays if len(self._options.urls) > 1 else ReplayReader)(self._options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer for `df.write`. Raises InvalidRequest for mode `overwrite`."""
        try:
            return BatchWriter(self._options, schema, overwrite)
        except NoPenstock:
            return ForeignBatchWriter(self._options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer for `df.writeStream`. Raises InvalidRequest for output mode `complete`."""
        try:
            return StreamWriter(self._options, schema, overwrite)
        except NoPenstock:
            return ForeignStreamWriter(self._options, schema, overwrite)
