"""Events of acquired, settled and returned messages, and of subscriptions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..columns.limits import MAX_EXCLUDED
from ..columns.rowset import RowSet
from ..columns.states import Cause, Reason, Verb
from ..model.consumers import Subscription
from ..model.lease import Batch
from ..model.state import NEXT_HOLDER, BrokerState
from .event import Event, WakesQueue
from .lifetimes import UNTIL_UNUSED, EndsMessages, with_lifetime
from .transitions import Ending, Failure, acquire, annotate, archive, give_back, let_go, take_out


@dataclass(frozen=True)
class Acquired(Event, kind="acquired"):
    """Messages AVAILABLE → ACQUIRED by a link, or by a lease as its new batch; DEFERRED → ACQUIRED by a link."""

    queue: str
    holder: int
    rows: RowSet
    lease: str | None = None
    batch: int | None = None
    sign: str | None = None  # of the batch

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        acquire(queue, self.rows, self.holder, None if self.lease is None else state.leases[self.lease])
        if self.lease is not None and self.batch is not None:
            queue.consumers.begin_batch(self.holder)
            state.next_holder = self.holder + NEXT_HOLDER
            state.leases[self.lease].remember(Batch(self.batch, self.holder, self.rows, sign=self.sign))


@dataclass(frozen=True)
class Settled(EndsMessages, Event, kind="settled"):
    """Messages ACQUIRED → ARCHIVED. With a lease: an operator ended them."""

    queue: str
    holder: int
    rows: RowSet
    outcome: int
    time: int
    error: str | None = None
    lease: str | None = None
    reason: int | None = None  # None, or MALFORMED
    taker: str | None = None

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        archive(state, queue, self.rows, Verb.SETTLE, Ending(self.outcome, self.time, self.error, self.taker))
        queue.malformed += self.rows.count * (self.reason == Reason.MALFORMED)
        let_go(state, queue, self.holder, self.rows)
        take_out(state, self.lease, self.rows)

    def wakes(self, state: BrokerState) -> Iterable[str]:
        return (self.queue,) if state.queues[self.queue].frees_others(self.holder) else ()


@dataclass(frozen=True)
class Annotated(Event, kind="annotated"):
    """Annotations added to messages."""

    queue: str
    rows: RowSet
    annotations: bytes

    def apply(self, state: BrokerState, position: int) -> None:
        annotate(state.queues[self.queue], self.rows, self.annotations)


@dataclass(frozen=True)
class Returned(EndsMessages, WakesQueue, Event, kind="returned"):
    """Messages ACQUIRED → AVAILABLE or DEFERRED."""

    queue: str
    holder: int
    rows: RowSet
    cause: int
    lease: str | None = None
    annotations: bytes | None = None
    time: int | None = None  # with the next two fields: a `Failure`
    taker: str | None = None
    error: str | None = None

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        failure = None if self.time is None else Failure(self.time, self.taker, self.error)
        give_back(state, queue, self.rows, self.cause, failure)
        if self.annotations:
            annotate(queue, self.rows, self.annotations)
        late = self.cause == Cause.LOCK_TIMED_OUT
        queue.totals.unlocked += self.rows.count * late
        let_go(state, queue, self.holder, self.rows, lost=late)
        take_out(state, self.lease, self.rows)


@dataclass(frozen=True)
class HoldersLost(Event, kind="holders.lost"):
    """Messages of links that ended with the broker's last run."""

    rows: dict[str, RowSet]
    cause: int

    def apply(self, state: BrokerState, position: int) -> None:
        for name, rows in self.rows.items():
            give_back(state, state.queues[name], rows, self.cause)

    def wakes(self, state: BrokerState) -> Iterable[str]:
        return self.rows

    def may_end(self, state: BrokerState) -> Iterable[str]:
        return self.rows


@dataclass(frozen=True)
class Subscribed(Event, kind="subscribed", journaled=False):
    """The fields are as in `Subscription` and `commands.Subscribe`."""

    queue: str
    holder: int
    priority: int = 0
    exclusive: bool = False
    selector: str | None = None
    taker: str | None = None
    by_number: bool = False
    one_group: bool = False

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        queue.changes += 1
        positions, epochs = [0] * queue.rules.levels, [log.epoch for log in queue.returns]
        subscription = Subscription(self.holder, positions, epochs, self.priority, self.selector, self.taker, self.one_group)
        if self.by_number:
            queue.consumers.by_number[self.holder] = subscription
        else:
            queue.consumers.subscribe(subscription, self.exclusive)
        state.next_link = self.holder + NEXT_HOLDER


@dataclass(frozen=True)
class Looked(Event, kind="looked", journaled=False):
    """Progress of a subscription's search, by level."""

    queue: str
    holder: int
    positions: list[int]
    epochs: list[int]

    def apply(self, state: BrokerState, position: int) -> None:
        subscription = state.queues[self.queue].consumers.subscriptions[self.holder]
        subscription.positions, subscription.epochs = self.positions, self.epochs


@dataclass(frozen=True)
class Excluded(Event, kind="excluded", journaled=False):
    """Messages that a link has refused."""

    queue: str
    holder: int
    rows: RowSet

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        link = queue.consumers.link(self.holder)
        assert link is not None
        excluded = link.excluded
        excluded.add(self.rows)
        if excluded.count > MAX_EXCLUDED:
            excluded.forget(queue.blocks)


@dataclass(frozen=True)
class Unsubscribed(Event, kind="unsubscribed", journaled=False):
    """The end of a link's subscription."""

    queue: str
    holder: int

    def apply(self, state: BrokerState, position: int) -> None:
        state.queues[self.queue].unsubscribe(self.holder)

    def wakes(self, state: BrokerState) -> Iterable[str]:
        queue = state.queues[self.queue]
        return (self.queue,) if queue.consumers.active == self.holder or queue.groups is not None else ()

    def may_end(self, state: BrokerState) -> Iterable[str]:
        return with_lifetime(state, self.queue, UNTIL_UNUSED)
