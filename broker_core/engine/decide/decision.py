"""The type of decisions, the register of functions that decide commands, and common checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from ... import errors, notations
from .. import commands as c
from .. import events as e
from ..columns.rowset import RowSet, clip, row_count
from ..columns.states import LEGAL, State, Verb
from ..model.capacity import Coming
from ..model.lease import Batch, BatchState, Lease
from ..model.queue import Queue
from ..model.state import BrokerState

R = TypeVar("R")
C = TypeVar("C", bound=c.Command[Any])


class Effects(NamedTuple):
    """Names from `Event.wakes` and `Event.may_end`, each once, in the order of the events."""

    wakes: tuple[str, ...] = ()
    may_end: tuple[str, ...] = ()  # `EndNode` decides


NO_EFFECTS = Effects()


@dataclass
class Decision(Generic[R]):
    """Events with payloads, and the reply, which is sent when they are durable. `decide` adds the effects."""

    events: list[tuple[e.Event, Any]]  # a payload is a buffer, several buffers, or None
    reply: R
    waits: bool = True  # False: the reply does not wait for the disk
    effects: Effects = NO_EFFECTS

    def add(self, event: e.Event, payload: Any = None) -> None:
        self.events.append((event, payload))

    def extend(self, events: Iterable[e.Event]) -> None:
        self.events += [(event, None) for event in events]


@dataclass(frozen=True)
class Basis:
    """Shared by all parts of a decision: the state before, the time, and the messages that earlier parts bring to queues."""

    state: BrokerState
    now: c.Now
    coming: Coming = field(default_factory=dict)


class Holding(NamedTuple):
    """The holder of messages that a decision ends."""

    holder: int = 0  # 0: the messages are not acquired
    taker: str | None = None  # name of the link, lease or command that ends them, or had them
    lease: str | None = None  # an operator ends messages of its batch


HANDLERS: dict[type[c.Command[Any]], Callable[[BrokerState, Any, c.Now], Decision[Any]]] = {}


def decides(
    command: type[C],
) -> Callable[[Callable[[BrokerState, C, c.Now], Decision[R]]], Callable[[BrokerState, C, c.Now], Decision[R]]]:
    """Register the function that decides this type of command."""

    def register(handler: Callable[[BrokerState, C, c.Now], Decision[R]]) -> Callable[[BrokerState, C, c.Now], Decision[R]]:
        HANDLERS[command] = handler
        return handler

    return register


def need_queue(state: BrokerState, name: str) -> Queue:
    queue = state.queues.get(name)
    if queue is None:
        remedy = notations.advice(name) or f"declare it with `penstock queue declare {name}`"
        raise errors.QueueNotFound(f"there is no queue {name!r}: {remedy}")
    return queue


def need_lease(state: BrokerState, name: str) -> Lease:
    lease = state.leases.get(name)
    if lease is None:
        raise errors.LeaseNotFound(f"there is no lease {name!r}: see `penstock lease list`")
    return lease


def need_batch_for_outcomes(state: BrokerState, name: str, number: int, epoch: int, run: str | None = None) -> Batch:
    """Return the batch if its messages may get outcomes. Raises NotFound, Fenced, DataLoss.

    A settled batch may: Spark repeats writes, with the same outcomes.
    """
    lease = need_lease(state, name)
    if epoch != lease.epoch or run not in (None, lease.run):
        raise errors.Fenced(
            f"lease {name!r} was taken up again since these messages were read (epoch {lease.epoch}, these are of {epoch}): "
            "nothing was settled. The query that holds the lease reads them again"
        )
    batch = lease.batches.get(number)
    if batch is None or batch.state not in (BatchState.READ, BatchState.SETTLED):
        raise errors.DataLoss(
            f"batch {number} of lease {name!r} is not held any longer: its messages were given back, and may be delivered again. "
            "Nothing was settled"
        )
    return batch


def check_rows(queue: Queue, rows: RowSet, verb: Verb, holder: int | None = None) -> None:
    """Raise IllegalTransition unless `verb` is allowed for every row, and `holder`, if it is set, holds every row."""
    for number, part in rows.items():
        block = queue.blocks.get(number)
        states = block.state[clip(part, 0, block.filled)] if block is not None else np.array([State.ARCHIVED], np.uint8)
        if block is None or len(states) < row_count(part) or states.tobytes().translate(None, LEGAL[verb]):
            raise queue.illegal(verb, states)
        if holder is None:
            continue
        holders = block.holder.get(part)
        if holders != holder if isinstance(holders, int) else (holders != holder).any():
            raise errors.IllegalTransition(
                f"the messages of {queue.name!r} are held by another consumer now; nothing was changed"
            )
