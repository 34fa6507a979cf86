"""Consumers of a queue.

| option `consumers` | a second consumer | an exclusive link (`Subscribe.exclusive`) |
|---|---|---|
| all | shares the messages | is refused if the queue has a consumer; refuses every later one |
| exclusive | is refused | is like every link of this queue |
| single | waits until the active one ends; the highest priority follows, then the oldest | is like with `all` |

A link is a consumer until its end, also without credit; a lease, while it holds a batch. Two consumers of a *single* queue never
hold messages at a time, so a new consumer of a higher priority waits. A link that has ended still holds the messages that its
open transactions settle. Browsers, and links that only ask for deferred messages by number, do not count as consumers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...errors import InUse
from ..columns.blocks import Block
from ..columns.rowset import RowSet
from .exclusions import Exclusions, refused_by


@dataclass
class Subscription:
    """A consuming link, until the broker ends."""

    holder: int
    positions: list[int]  # by level
    epochs: list[int]  # of the return log that it has seen, by level
    priority: int = 0
    selector: str | None = None
    taker: str | None = None  # its name in the archive
    one_group: bool = False  # it takes only messages of the group that it has locked
    held: dict[int, int] = field(default_factory=dict)  # block → number of held rows
    excluded: Exclusions = field(default_factory=Exclusions)


class Consumers:
    """`rule`: the queue's option `consumers`."""

    def __init__(self, queue: str, rule: str) -> None:
        self.subscriptions: dict[int, Subscription] = {}
        self.by_number: dict[int, Subscription] = {}  # of links that only ask for deferred messages
        self.active: int | None = 0 if rule == "single" else None  # the only holder that may take messages; None: all may
        self.rule = rule
        self._queue = queue
        self._batches: set[int] = set()
        self._exclusive = 0
        self._outlasting = 0  # messages that an ended active link holds by open transactions

    @property
    def holders(self) -> set[int]:
        return {*self.subscriptions, *self.by_number, *self._batches}

    def link(self, holder: int) -> Subscription | None:
        return self.subscriptions.get(holder) or self.by_number.get(holder)

    def refused_by_all(self, blocks: dict[int, Block]) -> RowSet:
        """Only AVAILABLE messages."""
        sets = [subscription.excluded for subscription in self.subscriptions.values()]
        return refused_by(sets, None, blocks) if sets else RowSet()

    def check_link(self, exclusive: bool) -> None:
        if self._exclusive:
            raise InUse(f"queue {self._queue!r} has an exclusive consumer: no other link may consume it before that one ends")
        if (exclusive or self.rule == "exclusive") and (self.subscriptions or self._batches):
            raise InUse(
                f"queue {self._queue!r} is consumed by {len(self.subscriptions)} links and {len(self._batches)} leases that hold "
                "a batch: an exclusive consumer may come when they have ended"
            )

    def check_lease(self) -> None:
        alone = self.rule == "exclusive"
        if self._exclusive or (alone and self.subscriptions):
            raise InUse(f"queue {self._queue!r} has an exclusive consumer, a link: a lease may acquire when that has ended")
        if alone and self._batches:
            raise InUse(f"queue {self._queue!r} takes one consumer at a time, and another lease holds a batch of it")

    def may_take(self, holder: int) -> bool:
        """`holder`: a link, or 0 for a lease without a batch."""
        return self.active is None or self.active == holder

    def subscribe(self, subscription: Subscription, exclusive: bool) -> None:
        self.subscriptions[subscription.holder] = subscription
        if exclusive:  # `check_link` reads the option, which can be altered
            self._exclusive = subscription.holder
        self.reconsider()

    def unsubscribe(self, holder: int) -> None:
        """The link still holds the messages of its open transactions."""
        if self.by_number.pop(holder, None) is not None:
            return
        held = sum(self.subscriptions.pop(holder).held.values())
        if self._exclusive == holder:
            self._exclusive = 0
        if self.active == holder:
            self._outlasting = held
        self.reconsider()

    def let_go(self, holder: int, messages: int) -> None:
        if self.outlasts(holder):
            self._outlasting -= messages
            self.reconsider()

    def begin_batch(self, holder: int) -> None:
        self._batches.add(holder)
        self.reconsider()

    def end_batch(self, holder: int) -> None:
        self._batches.discard(holder)
        self.reconsider()

    def outlasts(self, holder: int) -> bool:
        """Return True if the link has ended, but is active by open transactions."""
        return self._outlasting > 0 and self.active == holder

    def reconsider(self) -> None:
        if self.rule != "single":
            self.active, self._outlasting = None, 0
        elif not self._outlasting and self.active not in self.subscriptions and self.active not in self._batches:
            links = self.subscriptions.values()
            following = max(links, key=lambda link: (link.priority, -link.holder), default=None)
            self.active = max(self._batches, default=0) or (0 if following is None else following.holder)
