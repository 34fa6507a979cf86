"""Deliveries of a former link that its receiver still knows: they are sent again, or only their outcome is told (3.4.6)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...amqp.performatives import TERMINAL, DeliveryState
from ...amqp.resume import Action, resolve

if TYPE_CHECKING:
    from ...amqp import Sender

AT_ONCE = 4  # messages of resumed deliveries that are read at a time: they may be as large as messages are
START = (0, 0)  # of a message: its section 0, from its first octet


class Resumption(NamedTuple):
    """Delivery to be sent again: its offset, and its last state from the receiver."""

    position: tuple[int, int]
    state: DeliveryState | None


class Compared(NamedTuple):
    """Result of a comparison: deliveries that need no message any more, by tag."""

    ended: dict[bytes, DeliveryState]  # by the outcome that the receiver says
    lost: list[bytes]  # that the receiver does not know


class Resumptions:
    """Resumed deliveries of one link, by tag."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, Resumption] = {}  # to be sent again
        self.underway: dict[bytes, Resumption] = {}  # of which the message is read, and has not left
        self.unnamed: dict[bytes, DeliveryState | None] = {}  # that an incomplete map did not name: nothing is known of them
        self.outcomes: dict[bytes, DeliveryState] = {}  # that the receiver has said, and that hold: it is to hear so

    def __len__(self) -> int:
        """Count the deliveries that are not settled."""
        return len(self.waiting) + len(self.unnamed)

    def take(self, most: int) -> dict[bytes, Resumption]:
        """Take the next deliveries to be read, in their order."""
        tags = list(itertools.islice(self.waiting, min(most, AT_ONCE)))
        return {tag: self.waiting.pop(tag) for tag in tags}

    def begin_again(self) -> None:
        """Put deliveries that were under way and have not left before those that wait."""
        self.waiting = {**self.underway, **self.waiting}
        self.underway.clear()

    def with_unsettled(self, link: Sender) -> dict[bytes, DeliveryState | None]:
        """Return all deliveries of a detached link, each with its last state from the receiver."""
        known = {**self.unnamed, **{tag: each.state for tag, each in self.waiting.items()}}
        return known | {tag: each.state for tag, each in link.unsettled.items() if not isinstance(each.state, TERMINAL)}

    def compare(self, mine: Mapping[bytes, DeliveryState | None], theirs: Mapping[bytes, Any], *, incomplete: bool) -> Compared:
        """Compare our deliveries with the receiver's unsettled map, which is `incomplete` or not."""
        compared = Compared({}, [])
        for tag, (action, position) in resolve(mine, theirs, receiver_incomplete=incomplete).items():
            if action is Action.RESUME:
                self.waiting[tag] = Resumption(position or START, mine[tag])
            elif action is Action.UNKNOWN:
                self.unnamed[tag] = mine[tag]
            elif action is Action.STATE:
                compared.ended[tag] = theirs[tag]
            elif action is Action.RESTART:
                compared.lost.append(tag)
        return compared

    def unsettled_map(self) -> dict[bytes, DeliveryState | None]:
        """Return them as our attach's unsettled map."""
        return {**{tag: each.state for tag, each in self.waiting.items()}, **self.unnamed, **self.outcomes}

    def name_only(self, named: Mapping[bytes, Any]) -> None:
        """Resume only the deliveries that our map has room for."""
        self.unnamed |= {tag: self.waiting.pop(tag).state for tag in list(self.waiting) if tag not in named}
        self.outcomes = {tag: state for tag, state in self.outcomes.items() if tag in named}
