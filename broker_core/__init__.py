"""Penstock's broker: durable queues over Arrow Flight and AMQP 1.0. ARCHITECTURE.md lists its rooms.

Importing this package imports no other module, because Spark's executors need only a few.
"""

__version__ = "0.1.0"
#: `penstock` on the public index is an unrelated project.
DISTRIBUTION = "penstock-mq"
__all__ = ["DISTRIBUTION", "__version__"]
