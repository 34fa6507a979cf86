"""Discovery of `format("amqp")` by Spark: the wheel installs this file as the top-level module `pyspark_penstock`.

Spark imports every module named `pyspark_*`, also for users who never read a queue. So this one imports only modules that Spark
has loaded already, and a small one of ours without pyarrow.
"""

from __future__ import annotations

from typing import Any

from penstock.connector.workers import hush

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # Spark 3.5 and older
    pass
else:
    hush()

    class DefaultSource(DataSource):
        """Placeholder that becomes `connector.source.AmqpSource` when it is used."""

        def __new__(cls, options: Any = None) -> Any:
            from penstock.connector.source import AmqpSource

            return AmqpSource(options)

        @classmethod
        def name(cls) -> str:
            return "amqp"
