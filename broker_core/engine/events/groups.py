"""Events of message groups: locks, which end with their links, and states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..model.groups import GroupLock
from ..model.state import BrokerState
from .event import Event


@dataclass(frozen=True)
class GroupLocked(Event, kind="group.locked", journaled=False):
    """A new or renewed lock of a group."""

    queue: str
    lock: GroupLock

    def apply(self, state: BrokerState, position: int) -> None:
        state.queues[self.queue].lock_group(self.lock)


@dataclass(frozen=True)
class GroupUnlocked(Event, kind="group.unlocked", journaled=False):
    """The end of a link's lock. The link holds no more messages."""

    queue: str
    holder: int

    def apply(self, state: BrokerState, position: int) -> None:
        state.queues[self.queue].unlock_group(self.holder)

    def wakes(self, state: BrokerState) -> Iterable[str]:
        return (self.queue,)


@dataclass(frozen=True)
class GroupStateSet(Event, kind="group.state"):
    """The state of a group; None: it has none."""

    queue: str
    group: str
    time: int
    state: bytes | None = None

    def apply(self, state: BrokerState, position: int) -> None:
        state.queues[self.queue].states.put(self.group, self.state, self.time)
