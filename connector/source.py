"""The data source `amqp`: which reader or writer for which call of Spark."""

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

from penstock.connector.batch import BatchReader, PushdownBatchReader
from penstock.connector.options import Options
from penstock.connector.schema import default_schema
from penstock.connector.sink import BatchWriter, StreamWriter
from penstock.connector.stream import StreamReader


class AmqpSource(DataSource):
    """`spark.readStream`, `spark.read`, `df.write` and `df.writeStream` with `format("amqp")`. Raises InvalidRequest at once for
    an option that is unknown or wrong; what depends on the place is checked by the reader or writer."""

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
        return StreamReader(self._options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(self._options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(self._options, schema, overwrite)
