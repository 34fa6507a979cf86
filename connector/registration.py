"""Registration of the format with a session. Not in `__init__`, so that the import of the package stays quick."""

from __future__ import annotations

import sys
import zipimport
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException

from ..broker_core import executor_modules
from .source import AmqpSource

ALREADY_THERE = "DATA_SOURCE_ALREADY_EXISTS"


def register_with(spark: Any) -> None:
    """Spark looks up sources in the active session of the thread, and a new Python thread has none: make this one active."""
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
        # Spark has found the installed wheel on its own, and refuses a replacement: it is the same source.
        if error.getCondition() != ALREADY_THERE:
            raise


def _from_zip() -> bool:
    """True if this package came by `--py-files`: the driver and the tasks then find it, but the planner of a stream does not.

    Spark's planner searches the folder of the session's artifacts, which does not contain `--py-files` (4.2.0).
    """
    spec = sys.modules["penstock.connector"].__spec__
    return spec is not None and isinstance(spec.loader, zipimport.zipimporter)


def _ship_by_value() -> None:
    """Pickle the class together with the code that it needs, for processes that cannot import it.

    This code must not import our modules. Modules that are imported late (the AMQP library, the decoder of messages) are shipped
    as source.
    """
    executor_modules.SOURCES = executor_modules.sources()
    for name in ("connector", *(f"broker_core.{name}" for name in executor_modules.AT_ONCE)):
        cloudpickle.register_pickle_by_value(sys.modules[f"penstock.{name}"])  # type: ignore[no-untyped-call]
