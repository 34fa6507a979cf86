"""All differences between the supported versions of Spark, and the names of `pyspark.sql.datasource`.

| Spark | lacks |
|---|---|
| 4.0 | filters that are pushed into a source; a name for stream writers that take record batches |
| 4.0, 4.1 | `latestOffset(start, limit)`, and the trigger `availableNow` for Python sources |

Features decide, not version numbers, because vendors ship features earlier. `connector.spark_settings` needs no PySpark.
"""

from __future__ import annotations

import re

import pyspark

from ..broker_core.errors import SparkUnsupported

LEAST = (4, 0)


def check_version(version: str) -> None:
    """Raise SparkUnsupported for a version without Python data sources. Versions of unknown form are accepted."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < LEAST:
        raise SparkUnsupported(
            f"format amqp needs Spark 4.0 or newer, and this is Spark {version}, which has no data sources in Python: install"
            " pyspark>=4.0, and run it on a cluster of the same version"
        )


check_version(pyspark.__version__)


class Missing:
    """Stands for classes that this version lacks, and never uses."""

    def __init__(self, *_: object) -> None:
        pass


from pyspark.sql.datasource import (  # noqa: E402
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

try:
    from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual
except ImportError:
    EqualTo = Filter = GreaterThan = GreaterThanOrEqual = LessThan = LessThanOrEqual = Missing  # type: ignore[misc, assignment]

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef, misc]
        """Spark 4.0 passes record batches to a stream writer only if it is also a `DataSourceArrowWriter`."""


try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    #: Spark passes `start` and a limit to `latestOffset`, and announces the trigger `availableNow`.
    HAS_READ_LIMITS = True
except ImportError:
    HAS_READ_LIMITS = False

    SupportsTriggerAvailableNow = Missing  # type: ignore[misc, assignment]

    class ReadLimit:  # type: ignore[no-redef]
        """A limit that `connector.stream.start_tracking` passes instead of Spark."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """No other trigger follows."""

    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """Another trigger follows."""

        def __init__(self, max_rows: int) -> None:
            self.max_rows = max_rows
