"""The six rights of a user on a queue, and patterns of queue names."""

from __future__ import annotations

from enum import Enum


class Right(str, Enum):
    """What a permission may allow; docs/security.md has the table of requests. The values stand in the users file."""

    SEND = "send"  # enqueue, stage, publish
    RECEIVE = "receive"  # acquire, and end what one has acquired: links, and the leases of a Spark query
    BROWSE = "browse"  # look at what is available or acquired, without acquiring
    SETTLE = "settle"  # end or give back what somebody else holds: `penstock lease release | settle | delete`
    REPLAY = "replay"  # read what is archived
    ADMIN = "admin"  # declare, delete, purge


def matches(pattern: str, queue: str) -> bool:
    """Whether `queue` is one that `pattern` names; each `*` stands for any text, none included.

    Not a regular expression: its time is linear, whatever the pattern.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == queue
    last = rest.pop()
    if len(queue) < len(first) + len(last) or not (queue.startswith(first) and queue.endswith(last)):
        return False
    place, stop = len(first), len(queue) - len(last)
    for part in rest:  # the leftmost place of each is as good as any
        found = queue.find(part, place, stop)
        if found < 0:
            return False
        place = found + len(part)
    return True
