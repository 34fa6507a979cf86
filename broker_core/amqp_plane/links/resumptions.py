"""Deliveries of a link that is resumed, and the progress of its receiver before.

A resuming attach compares our deliveries with the receiver's unsettled map (`amqp.resume`):

- A delivery without an outcome is sent again under its tag, from the point that the receiver has reached.
- A delivery with an outcome is settled by it, and the receiver is answered when that is durable.
- The message of a delivery that the receiver does not know goes back, as lost with its link.
- A delivery that an incomplete map does not name stays as it is.

A receiver prefetches, so most of its deliveries may never have reached the application. AMQP has no frame for *the application
has it*, but consumers work in the order of delivery. So a receiver has begun with

- each delivery up to the last one that it has settled as worked on, or for which it has sent the state *received*, and
- the next delivery. Otherwise a message that crashes its receiver would come back for ever.

A receiver with the link property `annotations.REPORTS` sends *received* before the application has a delivery. Then the next
delivery is untouched. *Released*, and *modified* without delivery-failed, are outcomes of deliveries that were not worked on.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...amqp import Modified, Released, Sender, TransactionalState, serial
from ...amqp.deliveries import Delivery
from ...amqp.performatives import TERMINAL, DeliveryState
from ...amqp.resume import Action, resolve

AT_ONCE = 4  # messages of resumed deliveries that are read together: each may have the maximal size
START = (0, 0)  # of a message: section 0, first octet


class Resumption(NamedTuple):
    """Delivery to be sent again."""

    position: tuple[int, int]  # section and offset
    state: DeliveryState | None  # the last one from the receiver


class Compared(NamedTuple):
    """Deliveries by tag whose message need not be sent."""

    ended: dict[bytes, DeliveryState]  # with the receiver's outcome
    lost: list[bytes]  # unknown to the receiver


class Resumptions:
    """Resumed deliveries of one link, by tag."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, Resumption] = {}  # to be sent again
        self.underway: dict[bytes, Resumption] = {}  # their messages are read, and have not left
        self.unnamed: dict[bytes, DeliveryState | None] = {}  # an incomplete map did not name them: their state is unknown
        self.outcomes: dict[bytes, DeliveryState] = {}  # outcomes of the receiver that are durable: it expects an answer

    def __len__(self) -> int:
        return len(self.waiting) + len(self.unnamed)

    def take(self, most: int) -> dict[bytes, Resumption]:
        tags = list(itertools.islice(self.waiting, min(most, AT_ONCE)))
        return {tag: self.waiting.pop(tag) for tag in tags}

    def begin_again(self) -> None:
        self.waiting = {**self.underway, **self.waiting}
        self.underway.clear()

    def with_unsettled(self, link: Sender) -> dict[bytes, DeliveryState | None]:
        """Return all deliveries of a detached link, each with its last state from the receiver."""
        known = {**self.unnamed, **{tag: delivery.state for tag, delivery in self.waiting.items()}}
        return known | {
            tag: delivery.state for tag, delivery in link.unsettled.items() if not isinstance(delivery.state, TERMINAL)
        }

    def compare(self, mine: Mapping[bytes, DeliveryState | None], theirs: Mapping[bytes, Any], *, incomplete: bool) -> Compared:
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

    def name_only(self, named: Mapping[bytes, Any]) -> None:
        self.unnamed |= {tag: self.waiting.pop(tag).state for tag in list(self.waiting) if tag not in named}
        self.outcomes = {tag: state for tag, state in self.outcomes.items() if tag in named}


class ReceiverProgress:
    """The last delivery that the receiver has begun with. `reports`: it sends *received* for each."""

    __slots__ = ("_last", "_reports")

    def __init__(self, *, reports: bool) -> None:
        self._reports = reports
        self._last: int | None = None  # its delivery id in the link's session

    def reach(self, deliveries: Sequence[Delivery], state: DeliveryState | None) -> None:
        if isinstance(state, TransactionalState):
            state = state.outcome
        if not deliveries or isinstance(state, Released) or (isinstance(state, Modified) and not state.delivery_failed):
            return
        first, last = deliveries[0].id, deliveries[-1].id
        if serial.difference(last, first) != len(deliveries) - 1:  # nearly always, they are neighbours
            last = serial.add(first, max(serial.difference(delivery.id, first) for delivery in deliveries))
        if self._last is None or serial.difference(last, self._last) > 0:
            self._last = last

    def begun(self, link: Sender) -> list[Delivery]:
        """Return the unsettled deliveries that the receiver may have begun with."""
        begun: list[Delivery] = []
        for delivery in link.unsettled.values():
            if delivery is link.incomplete:
                continue
            if self._last is not None and serial.difference(delivery.id, self._last) <= 0:
                begun.append(delivery)
            elif not _is_decided(delivery):
                if not self._reports:
                    begun.append(delivery)
                break
        return begun


def _is_decided(delivery: Delivery) -> bool:
    state = delivery.state
    return isinstance(state, TERMINAL) or (isinstance(state, TransactionalState) and state.outcome is not None)
