"""The six rights of a user on a queue."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from enum import Enum


class Right(str, Enum):
    """docs/security.md lists the requests for each."""

    SEND = "send"  # enqueue, stage, publish
    RECEIVE = "receive"  # acquire, and settle one's own messages
    BROWSE = "browse"  # read without acquiring
    SETTLE = "settle"  # settle or return others' messages: `penstock lease release | settle | delete`
    REPLAY = "replay"  # read archived messages
    ADMIN = "admin"  # declare, alter, pause, delete, purge, redrive; with `receive` here and `send` at the target, move and copy


def names_of(rights: Iterable[Right]) -> list[str]:
    return sorted(right.value for right in rights)


def granting(user: str, name: str, right: Right) -> str:
    """Return the command that gives a user the right."""
    return f"`penstock permit {shlex.quote(user)} {shlex.quote(name)} {right.value}`"
