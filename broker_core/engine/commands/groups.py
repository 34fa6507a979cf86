"""Commands about one message group: its lock by a link, and its state."""

from __future__ import annotations

from dataclasses import dataclass

from .command import Command


@dataclass(frozen=True)
class LockGroup(Command[str | None]):
    """The lock of a group by a link that has subscribed with `one_group`. The lock ends after the queue's lockTimeout, or with
    the link.

    `group`: None for the first free group with a message that the link may take. Reply: the group; None if no group is free.
    """

    queue: str
    holder: int
    group: str | None = None


@dataclass(frozen=True)
class RenewGroupLock(Command[None]):
    """A new lock of the link's group, as long as the queue's option lockTimeout."""

    queue: str
    holder: int


@dataclass(frozen=True)
class SetGroupState(Command[None]):
    """The state of the group that the link has locked."""

    queue: str
    holder: int
    state: bytes | None  # None: removes it
