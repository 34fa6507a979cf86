"""Makes `format("amqp")` known by itself: the wheel installs this file as the top-level module `pyspark_penstock`.

Spark imports every module whose name begins with `pyspark_` for every user of the interpreter, also for those who never
touch a queue: so nothing is imported here but what Spark has loaded already, no pyarrow and nothing of ours.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """Stands for `connector.source.AmqpSource`, and becomes one when it is used."""

    def __new__(cls, options: Any = None) -> Any:
        from penstock.connector.source import AmqpSource

        return AmqpSource(options)

    @classmethod
    def name(cls) -> str:
        return "amqp"
