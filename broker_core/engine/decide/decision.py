"""Decisions: their type, and the checks that most of them begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from ... import errors, notations
from .. import events as e
from ..columns.rowset import RowSet, clip, row_count
from ..columns.series import Ints
from ..columns.states import LEGAL, State, Verb
from ..model.queue import Queue
from ..model.state import BrokerState

R = TypeVar("R")


class Effects(NamedTuple):
    """Names, each once, in the order of the events that are their reasons."""

    looks: tuple[str, ...] = ()  # queues where who found nothing would find something now, or that are gone
    may_end: tuple[str, ...] = ()  # queues and exchanges that may end now: `EndNode` says whether they do


NO_EFFECTS = Effects()


@dataclass
class Decision(Generic[R]):
    """Events with their payloads (a buffer, several, or None), in order; what to answer when they are durable; and who is told
    of them, which `decide` adds."""

    events: list[tuple[e.Event, Any]]
    reply: R
    waits: bool = True  # False: the reply promises nothing, and need not wait for the disk
    effects: Effects = NO_EFFECTS

    def add(self, event: e.Event, payload: Any = None) -> None:
        """Append an event, with its payload."""
        self.events.append((event, payload))


def need_queue(state: BrokerState, name: str) -> Queue:
    """Return the queue of this name, or raise NotFound."""
    queue = state.queues.get(name)
    if queue is None:
        remedy = notations.advice(name) or f"declare it with `penstock queue declare {name}`"
        raise errors.QueueNotFound(f"there is no queue {name!r}: {remedy}")
    return queue


def check_rows(queue: Queue, rows: RowSet, verb: Verb, holder: int | None = None) -> None:
    """Raise unless the table allows `verb` for every row, and `holder`, if given, holds them all."""
    for number, part in rows.items():
        block = queue.blocks.get(number)
        states = block.state[clip(part, 0, block.filled)] if block is not None else np.array([State.ARCHIVED], np.uint8)
        if block is None or len(states) < row_count(part) or states.tobytes().translate(None, LEGAL[verb]):
            raise queue.illegal(verb, states)
        if holder is not None and not _all_are(block.holder.get(part), holder):
            raise errors.IllegalTransition(
                f"the messages of {queue.name!r} are held by somebody else by now; nothing was changed"
            )


def _all_are(values: Ints | int, value: int) -> bool:
    return values == value if isinstance(values, int) else bool((values == value).all())
