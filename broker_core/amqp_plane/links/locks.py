"""Deliveries that a link has lost because their lock has ended; others may hold the messages by now (Q14).

The deliveries end before the link acquires again: otherwise the same message would come with the tag of an open delivery. A later
outcome for a lost delivery changes nothing. But a transaction with such an outcome cannot be committed.
"""

from __future__ import annotations

from ...amqp import Modified
from ...amqp.deliveries import Delivery
from ...amqp.performatives import TERMINAL
from ...service.turn import Turn
from .dispositions import rows_of_tags, tags_of
from .outgoing_link import OutgoingLink


class Locks:
    """The locks of one link's deliveries."""

    __slots__ = ("_link", "_seen")

    def __init__(self, link: OutgoingLink) -> None:
        self._link = link
        self._seen = 0  # the number of locks that had ended in the queue at the last check

    def begin(self, turn: Turn) -> None:
        self._seen = turn.view.unlocked(self._link.queue)

    def follow(self, former: Locks) -> None:
        self._seen = former._seen

    def look(self, turn: Turn) -> bool:
        """End the deliveries that the link has lost. Returns whether locks have ended in its queue."""
        count = turn.view.unlocked(self._link.queue)
        changed = count != self._seen
        if changed:
            self._seen = count
            open_ones = [d for d in self._link.link.unsettled.values() if not isinstance(d.state, TERMINAL)]
            self.end(self.divided(turn, open_ones)[1])
        return changed

    def divided(self, turn: Turn, deliveries: list[Delivery]) -> tuple[list[Delivery], list[Delivery]]:
        """Divide deliveries into held and lost ones."""
        held = self.held(turn, [delivery.tag for delivery in deliveries])
        return [d for d in deliveries if d.tag in held], [d for d in deliveries if d.tag not in held]

    def end(self, lost: list[Delivery]) -> None:
        link = self._link
        for delivery in lost:
            delivery.state = Modified(delivery_failed=True)
        waiting = [delivery for delivery in lost if not delivery.settled and not delivery.remote_settled]
        link.link.session.lost.add(delivery.id for delivery in waiting)
        if waiting and link.may_tell:
            link.link.session.dispose(waiting, waiting[0].state)
            link.peer.log(f"{link}: {len(waiting)} deliveries were not settled before their lock ended")
            link.peer.send_soon()
        link.gained_capacity()

    def held(self, turn: Turn, tags: list[bytes]) -> set[bytes]:
        """Return the tags of messages that the link still holds."""
        if not tags:
            return set()
        return set(tags_of(turn.view.held(self._link.queue, self._link.holder, rows_of_tags(tags))))
