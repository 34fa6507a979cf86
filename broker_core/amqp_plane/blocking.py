"""Credit of senders to a queue that lets them wait when it is full: option `overflow=block` (Q15, C9).

Such a queue takes what its senders have credit for, so credit is what holds them back: all of them together get no more than
there is room for, and while there is any, each at least one. So a sender that has credit and does not use it keeps nobody waiting
for ever, and the limit is passed by one message a sender at most; in bytes, by what messages are larger than those before them.

What a link was granted and is not confirmed yet changes only when credit is granted and when messages are confirmed, both of
which ask here. Room that others make (consumers, time, operators) is looked for at the end of each turn, and now and then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker_core.amqp_plane.incoming import Incoming
    from broker_core.engine.options import Rules
    from broker_core.engine.queues import Queue
    from broker_core.engine.state import BrokerState

USUAL_BYTES = 1024  # of a message, as long as the queue has none to judge by


def blocks(rules: Rules) -> bool:
    return rules.overflow == "block" and bool(rules.max_messages or rules.max_bytes)


def room_of(queue: Queue) -> int:
    """For how many messages there is room: less than one, for none."""
    rules, room = queue.rules, 1 << 31
    messages = queue.live + queue.staged
    if rules.max_messages:
        room = rules.max_messages - messages
    if rules.max_bytes:
        taken = queue.bytes + queue.staged_bytes
        usual = max(1, taken // messages if messages else USUAL_BYTES)
        left = rules.max_bytes - taken
        room = min(room, max(1, left // usual) if left > 0 else 0)
    return room


class Blocking:
    """All senders of the plane to queues that block; used in its thread. What it reads of a queue may be a moment old."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._granted: dict[str, dict[Incoming, int]] = {}  # by queue and link: credit, and what is not confirmed
        self._totals: dict[str, int] = {}
        self._waiting: dict[str, dict[Incoming, None]] = {}  # links with less credit than they should have

    def is_full(self, name: str) -> bool:
        """For messages that come without credit of the queue's own."""
        queue = self._state.queues.get(name)
        return queue is not None and blocks(queue.rules) and room_of(queue) <= 0

    def allowed(self, link: Incoming, wanted: int, unconfirmed: int) -> int:
        """The credit that a link may have, of what it should have: `wanted`. To be granted at once, if it is more than it has."""
        queue = self._state.queues.get(link.queue)
        if queue is None or not blocks(queue.rules):
            self.forget(link)
            return wanted
        granted, room = self._granted.setdefault(link.queue, {}), room_of(queue)
        others = self._totals.get(link.queue, 0) - granted.get(link, 0)
        least = 1 if room > 0 and not unconfirmed else 0
        credit = max(min(wanted, max(room - others - unconfirmed, least)), link.link.link_credit)
        granted[link] = credit + unconfirmed
        self._totals[link.queue] = others + granted[link]
        if credit < wanted:
            self._waiting.setdefault(link.queue, {})[link] = None
        else:
            self._wait_no_more(link)
        return credit

    def forget(self, link: Incoming) -> None:
        """It has ended, or its queue blocks nobody."""
        if self._granted:
            granted = self._granted.get(link.queue, {})
            if link in granted:
                self._totals[link.queue] -= granted.pop(link)
            if not granted:
                self._granted.pop(link.queue, None)
                self._totals.pop(link.queue, None)
            self._wait_no_more(link)

    def _wait_no_more(self, link: Incoming) -> None:
        waiting = self._waiting.get(link.queue)
        if waiting is not None:
            waiting.pop(link, None)
            if not waiting:
                del self._waiting[link.queue]

    def look(self) -> None:
        """Let those who wait have what room there is, by turns."""
        for name, waiting in list(self._waiting.items()):
            queue = self._state.queues.get(name)
            room = 0 if queue is None else room_of(queue)
            for link in list(waiting)[: max(room, 0)]:
                waiting.pop(link, None)
                waiting[link] = None  # to the tail
                link.renew()
