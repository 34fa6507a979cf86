"""Waiting lists of queues that block (Q15): messages to the anonymous terminus wait for capacity, without an outcome.

The credit of such a link is not for one queue, so waiting messages use it up. *Immediate* messages, and messages of a
transaction, whose end may come next, cannot wait and are refused.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ...amqp.deliveries import Delivery
from ...errors import QueueFull
from ..loop.confirmations import also_staged

if TYPE_CHECKING:
    from .incoming_link import AnonymousTerminus

CAPACITY_TIMEOUT_S = 60.0  # as long as a message that comes by Flight waits
OF_ONE_USER = 64 << 20  # octets of one user's waiting messages, in memory
WAITING_BYTES = 80 << 20  # of all users together
DELIVERY_BYTES = 1 << 10  # added for each delivery


class WaitingList:
    """Waiting messages of one link for one queue. The commit loop and `SenderCredit` treat it as the sender."""

    def __init__(self, link: AnonymousTerminus, queue: str) -> None:
        self.peer, self.session, self.transport = link.peer, link.session, link.transport
        self._loop, self._context = link.loop, link.context
        self.queue = queue
        self.usual_bytes = 0
        self.link = link
        self._waiting: deque[tuple[Delivery, float]] = deque()  # with the time until which each may wait
        self._underway = 0  # handed on, and not confirmed

    def add(self, deliveries: list[Delivery]) -> None:
        """Hand on the messages that have capacity. If too much waits, the last ones are refused."""
        blocking, until = self._context.sender_credit, self._context.now() + CAPACITY_TIMEOUT_S
        self.usual_bytes = len(deliveries[-1].payload)
        for delivery in deliveries:
            blocking.hold(self.peer.user, _cost(delivery))
            self._waiting.append((delivery, until))
        self.renew()
        beyond = []  # messages beyond the limits
        while self._waiting and (why := self._too_much()):
            beyond.append((self._next(last=True), why))
        for delivery, why in reversed(beyond):
            self._refuse(delivery, why)
        self._rest()

    def renew(self) -> None:
        if self.link.ended:
            return
        count = self._context.sender_credit.allowed(self, len(self._waiting), self._underway)
        self._hand_on(count)
        self._rest()

    def look(self, now: float) -> None:
        """Refuse messages that have waited for too long, or whose queue was deleted."""
        if not self._context.nodes.has_queue(self.queue):
            self._hand_on(len(self._waiting))  # the commit refuses them
        while self._waiting and self._waiting[0][1] <= now:
            self._refuse(self._next(), f"there was no room for {CAPACITY_TIMEOUT_S:g} s")
        self._rest()

    def confirmed(self, deliveries: list[Delivery]) -> None:
        self.link.confirmed(deliveries)
        self._came_back(len(deliveries))

    def refused(self, deliveries: list[Delivery], error: Exception) -> None:
        self.link.refused(deliveries, error)
        self._came_back(len(deliveries))

    def end(self) -> list[Delivery]:
        """Returns the waiting deliveries, which get no outcome."""
        left = []
        while self._waiting:
            left.append(self._next())
            left[-1].payload = b""  # it is no longer counted
        self._context.sender_credit.forget(self)
        return left

    def _too_much(self) -> str:
        held = self._context.sender_credit
        if held.waiting_bytes_of[self.peer.user] > OF_ONE_USER:
            return f"{OF_ONE_USER >> 20} MiB of one user wait for room already"
        return f"{WAITING_BYTES >> 20} MiB wait for room already" if held.waiting_bytes > WAITING_BYTES else ""

    def _hand_on(self, count: int) -> None:
        if count:
            self._underway += count
            self._loop.enqueue(self.queue, self, [self._next() for _ in range(count)])

    def _next(self, *, last: bool = False) -> Delivery:
        delivery, _ = self._waiting.pop() if last else self._waiting.popleft()
        self._context.sender_credit.hold(self.peer.user, -_cost(delivery))
        return delivery

    def _came_back(self, count: int) -> None:
        self._underway -= count
        if self.link.ended:
            return
        if self._waiting:
            self._context.call(self.renew)  # not now: a commit may be running
        else:
            self._rest()

    def _rest(self) -> None:
        """Leave unneeded capacity to others."""
        if self._waiting:
            return
        if self._underway:
            self._context.sender_credit.allowed(self, 0, self._underway)
        else:
            self._context.sender_credit.forget(self)
            self.link.leave(self)

    def _refuse(self, delivery: Delivery, why: str) -> None:
        staged = also_staged(self._context.nodes, self.queue)
        error = QueueFull(f"the queue {self.queue!r} is full{staged}: {why}")
        self._loop.count_refused(self.queue, error)
        self.link.keep_out(delivery, error)


def _cost(delivery: Delivery) -> int:
    return len(delivery.payload) + DELIVERY_BYTES
