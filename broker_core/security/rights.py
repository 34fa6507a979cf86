"""The six rights of a user on a queue, and patterns of queue names."""

from __future__ import annotations

from enum import Enum

from ..patterns import matches

__all__ = ["Right", "matches"]


class Right(str, Enum):
    """Right that a permission may give; docs/security.md has the table of requests. The values stand in the users file."""

    SEND = "send"  # enqueue, stage, publish
    RECEIVE = "receive"  # acquire, and end what one has acquired: links, and the leases of a Spark query
    BROWSE = "browse"  # look at what is available or acquired, without acquiring
    SETTLE = "settle"  # end or give back what somebody else holds: `penstock lease release | settle | delete`
    REPLAY = "replay"  # read what is archived
    ADMIN = "admin"  # declare, alter, pause, delete, purge, redrive; with `receive` here and `send` there, move and copy
