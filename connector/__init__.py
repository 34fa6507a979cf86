"""Penstock's Spark connector: the data source `amqp`.

    import penstock
    penstock.register(spark)
    spark.readStream.format("amqp").option("url", broker.url).option("queue", "orders").load()

If the wheel is installed, Spark finds the format on its own. `register` is needed with `--py-files`, and with Spark Connect, to
which it ships the connector.

- source, registration: readers and writers for Spark's calls; registration with a session
- options, schema, suggestions: the options; Spark's types of the columns; proposals for wrong names
- stream/, batch/, task/: planning of stream reads; batch reads; reads within a Spark task
- sink/: messages and outcomes, staged and then published once
- brokers/, foreign/: several brokers behind one query and one write; brokers of other products
- offset, identity: the offset in Spark's checkpoint; identities of brokers
- archive_table: the archive over Spark's Delta source
- access, backoff: a broker's address and credentials; waits for a broker that does not answer
- spark_versions, spark_settings: differences between versions of Spark; settings of a session
- interpreters, workers: the Python interpreter of Spark's workers; their tracebacks and garbage collections
- reporting, explanation: our errors in Spark's form; an error of Spark in one sentence
- pyfiles, _discovery: the zip for `--py-files`; the module by which Spark finds the format
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["archive", "register"]


def register(spark: SparkSession) -> None:
    """Register `format("amqp")` with this session, and make the session active in this thread.

    A second call changes nothing, nor does a call after Spark has found the format on its own.

    Args:
        spark: Session, of Spark's own or of Spark Connect.

    Raises:
        ImportError: PySpark is not installed.
        SparkUnsupported: PySpark, or the cluster's Spark, is older than 4.0.
        WrongInterpreter: Spark's workers run a Python without this package.
    """
    from .spark_versions import check_version

    check_version(spark.version)  # of the cluster, which may be older than this PySpark

    from .registration import register_with

    register_with(spark)


def archive(
    spark: SparkSession,
    queue: str | Sequence[str],
    url: str | Sequence[str] | None = None,
    *,
    body_schema: StructType | str | None = None,
    **login: str,
) -> DataFrame:
    """Return all settled messages of a queue, each once, read by Spark's own Delta source.

        penstock.archive(spark, "orders").where("outcome = 'rejected'").groupBy("error").count()

    Spark reads the queue's archive table directly, with pruned columns and pushed filters. Messages that are not recorded yet
    come from the broker. Without a Delta source in this session, or without access to the table, all rows come from the broker.

    Args:
        spark: Session, of Spark's own or of Spark Connect.
        queue: Name of a queue, or several names.
        url: Broker, or several brokers; amqp://, amqps:// or grpc://. Default: `$PENSTOCK_URL`, else amqp://127.0.0.1:5672.
        body_schema: Type of JSON bodies, such as `"order bigint, shop string"`. It adds the column `json`, null for other bodies.
        **login: Options `userName` and `password`, `caFile`, `certFile` and `keyFile`, as for `format("amqp")`.

    Returns:
        The columns of a batch read, without `message`, and `bodyType`. Rows have no order.

    Raises:
        InvalidOption: An option is unknown, or two urls lead to the same broker.
        NotFound: A broker has no such queue.
        Unreachable: A broker does not answer.
    """
    from .spark_versions import check_version

    check_version(spark.version)

    from .archive_table import DEFAULT_URL, archive_of

    urls = url or os.environ.get("PENSTOCK_URL") or DEFAULT_URL
    return archive_of(
        spark,
        [queue] if isinstance(queue, str) else list(queue),
        [urls] if isinstance(urls, str) else list(urls),
        body_schema,
        login,
    )
