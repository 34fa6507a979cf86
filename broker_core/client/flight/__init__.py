"""The Flight client.

connection   `Client`: calls, puts and streams
putting      one put: batches out, acknowledgements in
redriving    chosen dead letters, back to their queues
"""

from .connection import Client, check

__all__ = ["Client", "check"]
