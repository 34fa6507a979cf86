"""Registration of the format with a session; not in `__init__`, so that importing the package stays quick."""

from __future__ import annotations

import sys
import zipimport
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException

from ..broker_core import shipped
from .source import AmqpSource

ALREADY_THERE = "DATA_SOURCE_ALREADY_EXISTS"


def register_with(spark: Any) -> None:
    """Register `AmqpSource` with the session; ship the code by value if the other side cannot import it.

    Make the session the thread's active one, if it has none: there Spark looks up sources, and a new Python thread has none.
    """
    remote = type(spark).__module__.startswith("pyspark.sql.connect")
    if remote or _from_zip():
        _ship_by_value()
    if not remote:
        sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession
        if sessions.getActiveSession().isEmpty():
            sessions.setActiveSession(spark._jsparkSession)
    try:
        spark.dataSource.register(AmqpSource)
    except PySparkException as error:
        # Spark has found the installed wheel by itself, and lets nobody replace what it found: that is the same source.
        if error.getCondition() != ALREADY_THERE:
            raise


def _from_zip() -> bool:
    """Return True if this package came by `--py-files`: the driver and the tasks then find it, but not the planner of a stream.

    (Spark looks for its files in the folder of the session's artifacts, which does not hold `--py-files`. Seen with 4.2.0.)
    """
    spec = sys.modules["penstock.connector"].__spec__
    return spec is not None and isinstance(spec.loader, zipimport.zipimporter)


def _ship_by_value() -> None:
    """Let the class take along the code that it needs, for processes that cannot import it.

    So shipped functions must not import our modules: the other side could not. Modules that are imported only when they are
    needed, the AMQP library and the decoder of messages, are shipped as source.
    """
    shipped.SOURCES = shipped.sources()
    for name in ("connector", *(f"broker_core.{name}" for name in shipped.AT_ONCE)):
        cloudpickle.register_pickle_by_value(sys.modules[f"penstock.{name}"])  # type: ignore[no-untyped-call]
