"""The base class of events, and `apply`: the only code that changes the broker's state, live and at recovery.

An event is a decision (these rows, this outcome), never a command. `apply` trusts it, because `decide` has checked it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from ..model.state import BrokerState

#: The journaled kinds of events by name.
KINDS: dict[str, type[Event]] = {}


class Event:
    """Each kind is a frozen dataclass, whose fields are journaled.

    The changes of events with `journaled=False` end with the broker: they concern links and transactions. Fields of all kinds:
    `time` in microseconds since 1970, `up` in microseconds of uptime, `taker` as in `Ending`, `attributes` of
    `Attributes.journaled`, `payload_rows` ascending (None: all).
    """

    kind: ClassVar[str]
    journaled: ClassVar[bool]
    time: int | None = None  # the state's time advances to it

    def __init_subclass__(cls, *, kind: str, journaled: bool = True) -> None:
        cls.kind, cls.journaled = kind, journaled
        if journaled:
            KINDS[kind] = cls

    def apply(self, state: BrokerState, position: int) -> None:
        """`position`: of the event in the log, and so of its payload."""
        raise NotImplementedError

    def wakes(self, state: BrokerState) -> Iterable[str]:
        """Queues in which a waiting consumer may find messages after the event, and deleted queues. `state`: before the event."""
        return ()

    def may_end(self, state: BrokerState) -> Iterable[str]:
        """Queues and exchanges whose lifetime may be over after the event. `state`: before the event."""
        return ()


class WakesQueue:
    """An event after which consumers of its queue may find messages."""

    queue: str

    def wakes(self, state: BrokerState) -> Iterable[str]:
        return (self.queue,)


def apply(state: BrokerState, event: Event, position: int) -> None:
    if event.time is not None and event.time > state.time:
        state.go_on_to(event.time)
    event.apply(state, position)


@dataclass(frozen=True)
class Together(Event, kind="together"):
    """Several events, decided on one state, without payloads of their own."""

    parts: tuple[Event, ...]

    def apply(self, state: BrokerState, position: int) -> None:
        for part in self.parts:
            apply(state, part, position)

    def wakes(self, state: BrokerState) -> Iterable[str]:
        return {name: None for part in self.parts for name in part.wakes(state)}

    def may_end(self, state: BrokerState) -> Iterable[str]:
        return {name: None for part in self.parts for name in part.may_end(state)}
