"""Penstock's broker: durable queues with full queue semantics, reached over Arrow Flight and AMQP 1.0.

`with Broker(data_dir) as broker: broker.url` runs one in a child process. Importing this package imports nothing else,
since Spark's executors need only a few of its modules.
"""

from typing import Any

__version__ = "0.1.0"
__all__ = ["Broker", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Broker":
        from penstock.broker_core.server.process import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
