"""Events of messages that change their queue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..columns.failures import REDRIVEN
from ..columns.limits import MAX_ERROR_TEXT
from ..columns.rowset import RowSet, as_array
from ..columns.states import Outcome, Reason, Verb
from ..model.search import keeps_order
from ..model.state import BrokerState
from ..model.transfer import Cargo, load, unload
from .event import Event, WakesQueue
from .lifetimes import EndsMessages
from .transitions import Ending, archive, let_go, replace_values, settle_in, take_out


@dataclass(frozen=True)
class Moved(EndsMessages, Event, kind="moved"):
    """Messages ARCHIVED in their queue, and AVAILABLE or DELAYED at the tail of the target, with the same payloads.

    With a reason they are dead letters. Without a target they stay here, because no queue could take them.
    """

    queue: str
    rows: RowSet
    target: str | None
    outcome: int
    time: int
    reason: int = 0
    holder: int = 0  # a link that holds them
    lease: str | None = None  # as in `Settled`
    error: str | None = None
    redriven: bool = False  # dead letters that return to their queue
    taker: str | None = None

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        verb = Verb.DEAD_LETTER if self.reason else Verb.MOVE
        rows = queue.allowed(self.rows, verb)  # a newer value may have replaced some as they returned
        cargo = None if self.target is None else load(queue, rows)
        if self.target is None:
            for number, part in rows.items():
                queue.keep_dead_letter(queue.blocks[number], part, self.reason)
        archive(state, queue, rows, verb, Ending(self.outcome, self.time, self.error, self.taker))
        if self.holder:
            let_go(state, queue, self.holder, self.rows)
        take_out(state, self.lease, self.rows)
        queue.malformed += rows.count * (self.reason == Reason.MALFORMED)
        if cargo is None or self.target is None:
            return
        if self.redriven:
            cargo = cargo.revived()
        elif self.reason:
            cargo = cargo.died(queue.name, Reason(self.reason))
            if self.error:
                cargo.errors.update(dict.fromkeys(range(cargo.count), self.error[:MAX_ERROR_TEXT]))
        _arrive(state, self.target, cargo, self.time)

    def wakes(self, state: BrokerState) -> Iterable[str]:
        queue = state.queues[self.queue]
        frees = queue.frees_others(self.holder) or keeps_order(queue)
        return [name for name in (self.target, self.queue if frees else None) if name is not None]


@dataclass(frozen=True)
class Copied(Event, kind="copied"):
    """Copies in the target, as in `Moved`."""

    queue: str
    rows: RowSet
    target: str
    time: int

    def apply(self, state: BrokerState, position: int) -> None:
        _arrive(state, self.target, load(state.queues[self.queue], self.rows), self.time)

    def wakes(self, state: BrokerState) -> Iterable[str]:
        return (self.target,)


def _arrive(state: BrokerState, name: str, cargo: Cargo, time: int) -> None:
    queue = state.queues[name]
    first = queue.next_sequence
    unload(queue, cargo, time)
    settle_in(state, queue, first, time)


@dataclass(frozen=True)
class Redriven(WakesQueue, Event, kind="redriven"):
    """Dead letters that had stayed, ARCHIVED → AVAILABLE, with a delivery count of 0. If they had expired, they lose their
    expiry, so that they do not expire again."""

    queue: str
    rows: RowSet
    time: int
    taker: str | None = None

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        taker = queue.takers.code(self.taker)
        for number, part in self.rows.items():
            block = queue.blocks[number]
            expired = as_array(part)[np.asarray(block.reason.get(part)) == Reason.EXPIRED]
            block.expiry.set(expired, 0, len(block.state))
            queue.take_up(block, part)
            block.note_failure(part, REDRIVEN, self.time, taker)
            state.finished.remove(queue.name, number)
        queue.ended[Outcome.DEAD_LETTERED] -= self.rows.count
        queue.totals.redriven += self.rows.count
        queue.came_back(self.rows)
        if queue.rules.key:
            replace_values(state, queue, self.rows, self.time)
