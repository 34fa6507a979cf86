"""Registration of the format with a session. Not in `__init__`, whose import stays quick."""

from __future__ import annotations

import sys
import zipimport
from typing import Any
from weakref import WeakSet

from pyspark import cloudpickle
from pyspark.errors import PySparkException

from ..broker_core import executor_modules
from .interpreters import check_workers
from .source import AmqpSource

ALREADY_THERE = "DATA_SOURCE_ALREADY_EXISTS"
#: Sessions that have the format. Spark logs a warning if it is registered again.
_REGISTERED: WeakSet[Any] = WeakSet()


def register_with(spark: Any) -> None:
    """Also make the session active: Spark looks up sources in the thread's active session, and a new Python thread has none."""
    is_remote = type(spark).__module__.startswith("pyspark.sql.connect")
    if not is_remote:
        _activate(spark)
    if spark in _REGISTERED:
        return
    is_shipped = is_remote or _from_zip()
    if is_shipped or not _is_discovered(spark):
        if not is_remote:
            check_workers(spark.sparkContext, is_shipped=is_shipped)
        if is_shipped:
            _ship_by_value()
        _register(spark)
    _REGISTERED.add(spark)


def _activate(spark: Any) -> None:
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession
    if sessions.getActiveSession().isEmpty():
        sessions.setActiveSession(spark._jsparkSession)


def _is_discovered(spark: Any) -> bool:
    """True if Spark's workers have the wheel. The lookup starts a worker once, as the first read or write would."""
    return bool(spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(AmqpSource.name()))


def _register(spark: Any) -> None:
    try:
        spark.dataSource.register(AmqpSource)
    except PySparkException as error:
        # Spark has found the wheel on its own: it is the same source.
        if error.getCondition() != ALREADY_THERE:
            raise


def _from_zip() -> bool:
    """True if this package came by `--py-files`: tasks then find it, but a stream's planner does not.

    The planner searches the folder of the session's artifacts, which does not contain `--py-files` (4.2.0).
    """
    spec = sys.modules["penstock.connector"].__spec__
    return spec is not None and isinstance(spec.loader, zipimport.zipimporter)


def _ship_by_value() -> None:
    """Pickle the class together with its code, for processes that cannot import it.

    This code must not import our modules. Late imports (the AMQP library, the decoder of messages) are shipped as source.
    """
    executor_modules.SOURCES = executor_modules.sources()
    for name in ("connector", *(f"broker_core.{name}" for name in executor_modules.AT_ONCE)):
        cloudpickle.register_pickle_by_value(sys.modules[f"penstock.{name}"])  # type: ignore[no-untyped-call]
