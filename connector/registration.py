"""How a session gets to know the format; apart from `__init__`, so that importing the package stays light."""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException

from broker_core import client, errors, message
from connector.source import AmqpSource

ALREADY_THERE = "DATA_SOURCE_ALREADY_EXISTS"


def register_with(spark: Any) -> None:
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        _ship_by_value()
    try:
        spark.dataSource.register(AmqpSource)
    except PySparkException as error:
        # Spark has found the installed wheel by itself, and lets nobody replace what it found: that is the same source.
        if error.getCondition() != ALREADY_THERE:
            raise


def _ship_by_value() -> None:
    """A Connect client shares no files with its server, so the class takes the code it needs along.

    For this, nothing of what is shipped may import its own modules inside functions: the server could not.
    """
    for module in (sys.modules["connector"], client, errors, message):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
