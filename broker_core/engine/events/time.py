"""Events of time and of the start of the broker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..columns.limits import NEVER
from ..columns.rowset import RowSet
from ..columns.states import Outcome, Verb
from ..model.search import keeps_order
from ..model.state import BrokerState
from .event import Event, WakesQueue
from .lifetimes import EndsMessages
from .transitions import Ending, archive, replace_values


@dataclass(frozen=True)
class Expired(EndsMessages, Event, kind="expired"):
    """Messages AVAILABLE, DELAYED or DEFERRED → ARCHIVED."""

    queue: str
    rows: RowSet
    time: int

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        rows = queue.allowed(self.rows, Verb.EXPIRE)
        archive(state, queue, rows, Verb.EXPIRE, Ending(Outcome.EXPIRED, self.time))

    def wakes(self, state: BrokerState) -> Iterable[str]:
        return (self.queue,) if keeps_order(state.queues[self.queue]) else ()


@dataclass(frozen=True)
class Delayed(Event, kind="delayed"):
    """Messages AVAILABLE → DELAYED until their retry, after their return in the same `Together`."""

    queue: str
    rows: RowSet
    until: int  # milliseconds since 1970
    time: int

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        for number, rows in queue.allowed(self.rows, Verb.DELAY).items():  # a newer value may have replaced some
            block = queue.blocks[number]
            block.delay_until(rows, self.until)
            queue.move(block, rows, Verb.DELAY)
            queue.note_times(block)


@dataclass(frozen=True)
class CameDue(EndsMessages, WakesQueue, Event, kind="came.due"):
    """Messages DELAYED → AVAILABLE."""

    queue: str
    rows: RowSet
    time: int

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        for number, rows in self.rows.items():
            queue.move(queue.blocks[number], rows, Verb.DUE)
        queue.came_back(self.rows)
        if queue.rules.key:
            replace_values(state, queue, self.rows, self.time)


@dataclass(frozen=True)
class Locked(Event, kind="locked", journaled=False):
    """The time until which a link may hold messages."""

    queue: str
    rows: RowSet
    until: int  # milliseconds of uptime; NEVER: without a limit

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        for number, rows in self.rows.items():
            block = queue.blocks[number]
            block.lock_until(rows, self.until)
            queue.note_times(block)


@dataclass(frozen=True)
class TimePassed(Event, kind="time.passed", journaled=False):
    """Times up to which everything is done: `due` and `expiry` in milliseconds since 1970, `lock` of uptime."""

    due: int
    expiry: int
    lock: int

    def apply(self, state: BrokerState, position: int) -> None:
        if self.expiry:
            state.expired_at = self.expiry
        for clock, until, noted in (
            (state.clocks.due, self.due, "noted_due"),
            (state.clocks.expiry, self.expiry, "noted_expiry"),
            (state.clocks.lock, self.lock, "noted_lock"),
        ):
            for name, number in clock.passed(until):
                queue = state.queues.get(name)
                block = queue.blocks.get(number) if queue is not None else None
                if queue is not None and block is not None:
                    block.look_ahead(self.due)
                    setattr(block, noted, NEVER)
                    queue.note_times(block)
        for name, holder in state.clocks.group.passed(self.lock):
            queue = state.queues.get(name)
            lock = None if queue is None or queue.groups is None else queue.groups.locks.get(holder)
            if lock is not None:  # it was renewed
                state.clocks.group.note(lock.until, name, holder)


@dataclass(frozen=True)
class ClockStarted(Event, kind="clock.started", journaled=False):
    """Leases, groups and totals count uptime from here."""

    up: int
    nonce: str = ""

    def apply(self, state: BrokerState, position: int) -> None:
        state.started, state.nonce = self.up, self.nonce
        for queue in state.queues.values():
            queue.changes += 1
            queue.totals.begin(queue.next_sequence, queue.live, queue.ended)
            queue.losses.clear()
            if queue.groups is not None:
                queue.groups.restarted()
        for lease in state.leases.values():
            lease.renewed = self.up
