"""`penstock.archive`: the archive of queues as a DataFrame over Spark's own Delta source.

The table has the rows up to a recording, which the broker names when the DataFrame is made. The source `amqp` has the messages
after it: recorded later, or not yet. No row belongs to both.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql.functions import col, from_json, lit
from pyspark.sql.types import StructType

from ..broker_core.archive.read.bounds import ColumnRange, RecordingSpans
from ..broker_core.archive.read.files import Table, Version
from ..broker_core.archive.read.files import version as newest_version
from ..broker_core.archive.table.layout import READABLE
from ..broker_core.errors import ArchiveUnreachable, InvalidOption
from ..broker_core.stores.folders import is_local, local_path
from .explanation import explain
from .identity import connected
from .options import Options
from .registration import register_with
from .schema import source_schema

_UNREADABLE: tuple[type[Exception], ...] = (ArchiveUnreachable, PySparkException)
try:  # a missing source or file system, or a refused login, may be an error of Java that Spark does not translate
    from py4j.protocol import Py4JJavaError

    _UNREADABLE += (Py4JJavaError,)
except ImportError:  # a client of Spark Connect
    pass

log = logging.getLogger("penstock")

BODY = "json"
DEFAULT_URL = "amqp://127.0.0.1:5672"
OPTIONS = ("userName", "password", "caFile", "certFile", "keyFile")  # of a login


def archive_of(
    spark: SparkSession,
    queues: Sequence[str],
    urls: Sequence[str],
    body_schema: StructType | str | None,
    login: Mapping[str, str],
) -> DataFrame:
    """See `penstock.archive`."""
    unknown = sorted({name.lower() for name in login} - {name.lower() for name in OPTIONS})
    if unknown:
        raise InvalidOption(
            f"penstock.archive takes no option {unknown[0]!r}; allowed are {', '.join(OPTIONS)}. To choose rows, filter the"
            " DataFrame"
        )
    register_with(spark)
    parts: list[DataFrame] = []
    with ExitStack() as stack:
        options = Options({**login, "url": ",".join(urls), "queue": ",".join(map(_escaped, queues)), "states": "archived"})
        for client in connected(options, stack):
            for queue in queues:
                answer = client.call("archive.plan", queue=queue, states=["archived"])
                table = Table.of_fields(answer["table"]) if answer.get("table") else None
                source = {**login, "url": client.url, "queue": _escaped(queue), "states": "archived"}
                parts += _parts(spark, table, source)
    rows = reduce(lambda left, right: left.unionByName(right), parts)
    return rows if body_schema is None else rows.withColumn(BODY, from_json(rows.body.cast("string"), body_schema))


def _escaped(queue: str) -> str:
    return queue.replace(",", ",,")


def _parts(spark: SparkSession, table: Table | None, source: Mapping[str, str]) -> list[DataFrame]:
    """Return the recorded rows, if Spark can read the table, and the others."""
    recorded = None if table is None else _recorded(spark, table)
    after = {} if recorded is None or table is None else {"recordedAfter": str(table.last_recording)}
    rest = spark.read.format("amqp").schema(source_schema(READABLE)).options(**source, **after).load()
    return [rest] if recorded is None else [recorded, rest]


def _recorded(spark: SparkSession, table: Table) -> DataFrame | None:
    """Return the rows that the table had when the broker was asked; None if Spark cannot read it.

    If they are a whole version of the table, they are not filtered, which would take a fifth of the time.
    """
    reader = spark.read.format("delta")
    try:
        version = _checked_version(table)
        rows = _loaded(reader, table)  # the newest version first: without a table, an older one fails with an internal error
        if version is not None and version.is_whole:
            return _loaded(reader.option("versionAsOf", version.number), table).select(*READABLE)
    except _UNREADABLE as error:
        reason = explain(error)
        log.warning("the source amqp reads the archive of this queue, more slowly than Spark's Delta source would: %s", reason)
        return None
    return rows.where(reduce(operator.and_, map(_is_within, table.bounds.conditions()))).select(*READABLE)


def _loaded(reader: DataFrameReader, table: Table) -> DataFrame:
    rows = reader.load(_path(table.url))
    rows.schema  # noqa: B018 -- Spark Connect finds the table only now
    return rows


def _checked_version(table: Table) -> Version | None:
    """Return the newest version; None without deltalake. Raises ArchiveUnreachable unless the table seen here is the broker's."""
    try:
        return newest_version(table, table.bounds)
    except ImportError as error:
        log.info("the table %s was not checked, since this Python has no deltalake: %s", table.url, error)
        return None


def _path(url: str) -> str:
    if is_local(url):
        return f"file://{local_path(url)}"
    return f"s3a://{url.removeprefix('s3://')}" if url.startswith("s3://") else url


def _is_within(condition: ColumnRange | RecordingSpans) -> Column:
    if isinstance(condition, RecordingSpans):
        spans = [reduce(operator.and_, map(_is_within, span)) for span in condition.spans]
        return reduce(operator.or_, spans, lit(False))
    if condition.least == condition.most:
        return col(condition.column) == lit(condition.least)
    return col(condition.column).between(lit(condition.least), lit(condition.most))  # both ends are known
