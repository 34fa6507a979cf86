"""Credit of senders to a queue with the option `overflow=block` (Q15, C9).

Such a queue accepts as many messages as its senders have credit for. A link gets half of the capacity that others leave, and at
least one message while there is any. So a sender that does not use its credit cannot block others forever. Credit is never
withdrawn: if other producers fill the queue first, or messages grow, a sender may exceed the limit by its outstanding credit.

A link with less credit than it wants is asked again after each commit, when a full queue has capacity, and on a timer.

A sender that settles after us (receiver-settles-second) may leave its messages unsettled. All such links of a connection share a
limit, which includes their credit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ...amqp import Connection
from ...service.blocked_producers import WaitingProducer
from ...service.broker import BrokerService


class CreditedSender(Protocol):
    """A link or a waiting list."""

    queue: str  # that it sends to; "" if no single queue limits it
    usual_bytes: int  # of its last message; 0 before the first

    def renew(self) -> None:
        """Ask for credit again: there may be capacity."""


class WaitingSender(CreditedSender, Protocol):
    """A sender whose messages wait for capacity."""

    def look(self, now: float) -> None:
        """Refuse messages that have waited for too long."""


class SenderCredit:
    """All senders of the plane to queues that block. `call` runs a function in the plane's thread."""

    def __init__(self, broker: BrokerService, call: Callable[[Callable[[], None]], None]) -> None:
        self._broker = broker
        self._call = call
        self._granted: dict[str, dict[CreditedSender, int]] = {}  # by queue and link: credit and unconfirmed messages
        self._totals: dict[str, int] = {}
        self._waiting: dict[str, dict[CreditedSender, None]] = {}  # links with less credit than they want
        self._asked: set[str] = set()  # full queues whose capacity will be reported
        self.waiting_lists: dict[WaitingSender, None] = {}
        self.waiting_bytes = 0  # of messages in waiting lists
        self.waiting_bytes_of: Counter[str] = Counter()  # the same for each user
        self._claims: dict[CreditedSender, int] = {}  # of links whose sender settles second: credit and unsettled messages
        self._claimed: Counter[Connection] = Counter()

    def blocks(self, queue: str) -> bool:
        return self._broker.capacity_of(queue) is not None

    def is_full(self, queue: str) -> bool:
        return self._broker.capacity_of(queue) == 0

    def hold(self, user: str, octets: int) -> None:
        self.waiting_bytes += octets
        self.waiting_bytes_of[user] += octets
        if not self.waiting_bytes_of[user]:
            del self.waiting_bytes_of[user]

    def allowed(self, link: CreditedSender, wanted: int, unconfirmed: int, has: int | None = None) -> int:
        """Return the credit to grant: at most `wanted`, but never less than `has`, the present credit.

        A waiting list passes None for `has`: its messages have arrived, so it gets all that others leave.
        `unconfirmed`: messages under way.
        """
        queue = link.queue
        capacity = self._broker.capacity_of(queue, link.usual_bytes) if queue else None
        if capacity is None:
            self.forget(link)
            return wanted
        granted = self._granted.setdefault(queue, {})
        others = self._totals.get(queue, 0) - granted.get(link, 0)
        least = 1 if capacity and not unconfirmed else 0
        share = capacity - others - unconfirmed
        if has is not None:
            share = -(-share // 2)
        credit = max(min(wanted, max(share, least)), has or 0)
        granted[link] = credit + unconfirmed
        self._totals[queue] = others + granted[link]
        if credit < wanted:
            self._waiting.setdefault(queue, {})[link] = None
            if not capacity and queue not in self._asked:
                self._asked.add(queue)
                waiting = WaitingProducer(lambda: self._call(partial(self._on_capacity, queue)))
                self._broker.blocked.wait(queue, waiting)
        else:
            self._wait_no_more(link)
        return credit

    def forget(self, link: CreditedSender) -> None:
        granted = self._granted.get(link.queue)
        if granted is None:
            return
        if link in granted:
            self._totals[link.queue] -= granted.pop(link)
        if not granted:
            del self._granted[link.queue], self._totals[link.queue]
        self._wait_no_more(link)

    def room(self, link: CreditedSender, connection: Connection, held: int, most: int) -> int:
        """Return the credit of a link whose sender settles second: the part of `most` that other links leave.

        A link without unsettled messages (`held`) may send one, so that none starves.
        """
        others = self._claimed[connection] - self._claims.get(link, 0)
        return max(most - others - held, 0 if held else 1)

    def claim(self, link: CreditedSender, connection: Connection, count: int) -> None:
        """Note the credit and unsettled messages of such a link."""
        self._claimed[connection] += count - self._claims.get(link, 0)
        self._claims[link] = count

    def leave(self, link: CreditedSender, connection: Connection) -> None:
        self.forget(link)
        if link in self._claims:
            self._claimed[connection] -= self._claims.pop(link)
            if not self._claimed[connection]:
                del self._claimed[connection]

    def _wait_no_more(self, link: CreditedSender) -> None:
        waiting = self._waiting.get(link.queue)
        if waiting is not None:
            waiting.pop(link, None)
            if not waiting:
                del self._waiting[link.queue]

    def _on_capacity(self, queue: str) -> None:
        self._asked.discard(queue)
        self._look_at(queue)

    def look(self) -> None:
        for queue in tuple(self._waiting):
            self._look_at(queue)

    def tick(self, now: float) -> None:
        """`now`: the plane's clock, seconds."""
        self.look()
        for line in tuple(self.waiting_lists):
            line.look(now)

    def _look_at(self, queue: str) -> None:
        """Serve waiting senders in turn."""
        capacity = self._broker.capacity_of(queue)
        for link in list(self._waiting.get(queue, ()))[:capacity]:
            self._wait_no_more(link)  # `renew` adds it at the tail if it still wants more
            link.renew()
