"""The Flight client: `Client` sends JSON and record batches, and raises Penstock's errors. It needs only pyarrow, for Spark's
executors.

connection   `Client`: calls, puts and streams
putting      one put: batches out, acknowledgements in
redriving    chosen dead letters, back to their queues
"""

from .connection import Client, check

__all__ = ["Client", "check"]
