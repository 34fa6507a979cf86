"""Events of queues and of messages that arrive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..columns.attributes import Attributes
from ..columns.rowset import RowSet
from ..columns.series import Ints
from ..columns.states import Outcome, Verb
from ..model.queue import PackedBlock
from ..model.recordings import NOT_WANTED
from ..model.search import keeps_order
from ..model.state import BrokerState
from .event import Event, WakesQueue
from .lifetimes import EndsMessages
from .links import Acquired
from .transitions import Arrival, Ending, append, archive, runs_of


@dataclass(frozen=True)
class QueueDeclared(Event, kind="queue.declared"):
    """A new queue."""

    queue: str
    type: str
    options: dict[str, Any]
    user: str | None = None  # whose link made it; None: it was declared by name

    def apply(self, state: BrokerState, position: int) -> None:
        state.add_queue(self.queue, self.type, self.options, self.user)


@dataclass(frozen=True)
class QueueDeleted(WakesQueue, Event, kind="queue.deleted"):
    """The end of a queue, its messages and its bindings."""

    queue: str
    departs: bool = False  # settled messages are still to be recorded

    def apply(self, state: BrokerState, position: int) -> None:
        state.delete_queue(self.queue, departs=self.departs)

    def may_end(self, state: BrokerState) -> Iterable[str]:
        return state.exchanges.leading_to(self.queue)


@dataclass(frozen=True)
class QueueAltered(WakesQueue, Event, kind="queue.altered"):
    """New values of options; None: the default."""

    queue: str
    options: dict[str, Any]

    def apply(self, state: BrokerState, position: int) -> None:
        state.queues[self.queue].alter(self.options)


@dataclass(frozen=True)
class QueuePaused(Event, kind="queue.paused"):
    """A pause of a queue, or its end."""

    queue: str
    paused: bool

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        queue.changes += 1
        queue.paused = self.paused
        if not self.paused:  # consumers that searched during the pause begin again
            for log in queue.returns:
                log.add(0)

    def wakes(self, state: BrokerState) -> Iterable[str]:
        return () if self.paused else (self.queue,)


@dataclass(frozen=True)
class Enqueued(Event, kind="enqueued"):
    """Messages with a payload, at the sequence numbers from `first` on."""

    queue: str
    first: int
    count: int
    sizes: int | Ints
    time: int
    attributes: dict[str, Any] | None = None
    payload_rows: Ints | None = None
    acquired: tuple[Acquired, ...] | None = None  # of *immediate* messages

    def apply(self, state: BrokerState, position: int) -> None:
        runs = runs_of(self.count, self.payload_rows, position)
        arrival = Arrival(self.sizes, runs, self.time, Attributes.of_journal(self.attributes))
        append(state, state.queues[self.queue], arrival, [(event.holder, event.rows) for event in self.acquired or ()])

    def wakes(self, state: BrokerState) -> Iterable[str]:
        # Messages that links acquire as they arrive wake no other link, unless they replace one that kept others waiting.
        return (self.queue,) if self.acquired is None or keeps_order(state.queues[self.queue]) else ()


@dataclass(frozen=True)
class Purged(EndsMessages, Event, kind="purged"):
    """Messages AVAILABLE, DELAYED or DEFERRED → ARCHIVED, by an operator."""

    queue: str
    rows: RowSet
    time: int
    error: str | None = None  # why the operator discarded or replaced them
    taker: str | None = None  # as in `Ending`
    outcome: int | None = None  # None: PURGED

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        ending = Ending(Outcome.PURGED if self.outcome is None else self.outcome, self.time, self.error, self.taker)
        archive(state, queue, queue.allowed(self.rows, Verb.PURGE), Verb.PURGE, ending)

    def wakes(self, state: BrokerState) -> Iterable[str]:
        return (self.queue,) if keeps_order(state.queues[self.queue]) else ()


@dataclass(frozen=True)
class BlockPacked(Event, kind="block.packed"):
    """A block that leaves memory. The payload is its packed columns."""

    queue: str
    number: int
    highest_payload: int
    first_time: int  # microseconds since 1970
    last_time: int
    outcomes: list[int]

    def apply(self, state: BrokerState, position: int) -> None:
        queue = state.queues[self.queue]
        block = queue.blocks[self.number]
        entry = queue.packed[self.number] = PackedBlock(
            self.number, position, self.highest_payload, self.first_time, self.last_time, self.outcomes, block.runs.low
        )
        if block.unrecorded:
            rows = block.unrecorded_rows()
            entry.unrecorded = RowSet.of([(block.number, rows)]).packed()
            entry.unrecorded_bytes = block.sizes.total(rows, len(rows))
        recorded = block.recorded.get(slice(0, block.filled))
        if not isinstance(recorded, int):
            entry.recorded_before, entry.not_wanted = int(recorded.max()), int((recorded == NOT_WANTED).sum())
        queue.drop(block)
        state.finished.remove(self.queue, self.number)
