"""Progress of a receiver: the deliveries of its link that it had begun to work on when the link was lost.

A receiver prefetches, so most of its deliveries may never have reached the application. AMQP has no frame for *the application
has it*, but consumers work in the order of delivery. So a receiver has begun with

- each delivery up to the last one that it has settled as worked on, or for which it has sent the state *received*, and
- the next delivery. It may have crashed the receiver, and without this rule such a message would come back for ever.

A receiver that asks for the link property `annotations.REPORTS` sends *received* for each delivery before the application has
it: then the next delivery is known to be untouched. Penstock's own client does so. *Released*, and *modified* without
delivery-failed, are outcomes of deliveries that were not worked on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...amqp import Modified, Released, TransactionalState, serial
from ...amqp.performatives import TERMINAL

if TYPE_CHECKING:
    from ...amqp import Sender
    from ...amqp.deliveries import Delivery
    from ...amqp.performatives import DeliveryState


class Progress:
    """The last delivery of a link that its receiver has begun with. `reports`: the receiver sends *received* for each."""

    __slots__ = ("_last", "_reports")

    def __init__(self, *, reports: bool) -> None:
        self._reports = reports
        self._last: int | None = None  # its delivery id in the link's session

    def reach(self, deliveries: Sequence[Delivery], state: DeliveryState | None) -> None:
        """Note the state that the receiver has given to some deliveries of this link."""
        if isinstance(state, TransactionalState):
            state = state.outcome
        if not deliveries or isinstance(state, Released) or (isinstance(state, Modified) and not state.delivery_failed):
            return
        first, last = deliveries[0].id, deliveries[-1].id
        if serial.difference(last, first) != len(deliveries) - 1:  # nearly always neighbours
            last = serial.add(first, max(serial.difference(delivery.id, first) for delivery in deliveries))
        if self._last is None or serial.difference(last, self._last) > 0:
            self._last = last

    def begun(self, link: Sender) -> list[Delivery]:
        """Return the unsettled deliveries that the receiver may have begun with, in their order."""
        found: list[Delivery] = []
        for delivery in link.unsettled.values():
            if delivery is link.incomplete:
                continue
            if self._last is not None and serial.difference(delivery.id, self._last) <= 0:
                found.append(delivery)
            elif not _is_decided(delivery):
                if not self._reports:
                    found.append(delivery)
                break
        return found


def _is_decided(delivery: Delivery) -> bool:
    state = delivery.state
    return isinstance(state, TERMINAL) or (isinstance(state, TransactionalState) and state.outcome is not None)
