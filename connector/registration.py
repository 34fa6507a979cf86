"""Registration of the format with a session; apart from `__init__`, so that importing the package stays light."""

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
    """Register `AmqpSource` with the session; ship the code by value where the other side cannot import it."""
    if type(spark).__module__.startswith("pyspark.sql.connect") or _from_zip():
        _ship_by_value()
    try:
        spark.dataSource.register(AmqpSource)
    except PySparkException as error:
        # Spark has found the installed wheel by itself, and lets nobody replace what it found: that is the same source.
        if error.getCondition() != ALREADY_THERE:
            raise


def _from_zip() -> bool:
    """Did this package come by `--py-files`? The driver and the tasks find it then, but not the planner of a stream.

    (Spark looks for its files in the folder of the session's artifacts, where `--py-files` are not. Seen with 4.2.0.)
    """
    spec = sys.modules["penstock.connector"].__spec__
    return spec is not None and isinstance(spec.loader, zipimport.zipimporter)


def _ship_by_value() -> None:
    """Let the class take along the code it needs, to processes that cannot import it.

    For this, nothing of what is shipped may import its own modules inside functions: the other side could not. What is imported
    only where it is needed, the AMQP library and the decoder of messages, goes as source.
    """
    shipped.SOURCES = shipped.sources()
    for name in ("connector", *(f"broker_core.{name}" for name in shipped.AT_ONCE)):
        cloudpickle.register_pickle_by_value(sys.modules[f"penstock.{name}"])  # type: ignore[no-untyped-call]
