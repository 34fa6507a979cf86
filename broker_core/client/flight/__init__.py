"""The client of the Flight plane. It needs only pyarrow, for Spark's executors.

connection  calls, puts and streams
putting     one put
redriving   chosen dead letters
"""

from .connection import Client, check

__all__ = ["Client", "check"]
