"""Effects: what follows from a decision beside its reply: whose consumers are woken, and which nodes may end.

Both are rules by kind of event, asked of the state before the events are applied: while the stages that are published are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .. import events as e
from ..model import consumers
from ..model.lease import BatchState
from ..model.queue import Queue
from ..model.search import keeps_order
from ..model.state import BrokerState
from .decision import NO_EFFECTS, Effects
from .lifetimes import MAY_END

_Rule = Callable[[BrokerState, Any], Iterable[str]]


def effects_of(state: BrokerState, events: Sequence[tuple[e.Event, Any]]) -> Effects:
    """The effects of a decision, before any of its events is applied."""
    looks: Iterable[str] = ()
    ending: Iterable[str] = ()
    for event, _ in events:
        kind = type(event)
        if kind in _LOOKS:
            found = _LOOKS[kind](state, event)
            looks = {**dict.fromkeys(looks), **dict.fromkeys(found)} if looks else found
        if kind in _MAY_END:
            found = _MAY_END[kind](state, event)
            ending = {**dict.fromkeys(ending), **dict.fromkeys(found)} if ending else found
    return Effects(tuple(looks), tuple(ending)) if looks or ending else NO_EFFECTS


def _its_queue(state: BrokerState, event: Any) -> Iterable[str]:
    return (event.queue,)


def _with_parts(rules: Mapping[type[e.Event], _Rule]) -> Mapping[type[e.Event], _Rule]:
    """Rules for all kinds: the given ones, and one for `Together`, of any depth, that asks those of its parts."""
    whole = dict(rules)

    def of_parts(state: BrokerState, event: e.Together) -> Iterable[str]:
        return {name: None for part in event.parts if type(part) in whole for name in whole[type(part)](state, part)}

    whole[e.Together] = of_parts
    return whole


def _enqueued(state: BrokerState, event: e.Enqueued) -> Iterable[str]:
    """Messages that links acquire with their arrival wake no other link, unless they replace one that others wait behind."""
    return (event.queue,) if event.acquired is None or keeps_order(state.queues[event.queue]) else ()


def _published(state: BrokerState, event: e.Published) -> Iterable[str]:
    return {part.queue: None for name in event.names for part in state.stages[name].parts}


def _batch_ended(state: BrokerState, event: e.BatchEnded) -> Iterable[str]:
    queue = state.queues[state.leases[event.lease].queue]
    freed = queue.active is not None or queue.grouping is not None
    return (queue.name,) if event.stage != BatchState.SETTLED.value or freed else ()


def _unsubscribed(state: BrokerState, event: e.Unsubscribed) -> Iterable[str]:
    """Wake the others if it was this link's turn, or if groups are free now."""
    queue = state.queues[event.queue]
    return (queue.name,) if queue.active == event.holder or queue.grouping is not None else ()


def _settled(state: BrokerState, event: e.Settled) -> Iterable[str]:
    return (event.queue,) if _frees(state.queues[event.queue], event.holder) else ()


def _ended(state: BrokerState, event: e.Expired | e.Purged) -> Iterable[str]:
    return (event.queue,) if keeps_order(state.queues[event.queue]) else ()


def _moved(state: BrokerState, event: e.Moved) -> Iterable[str]:
    queue = state.queues[event.queue]
    frees = _frees(queue, event.holder) or keeps_order(queue)
    return [name for name in (event.target, event.queue if frees else None) if name is not None]


def _frees(queue: Queue, holder: int) -> bool:
    """Return True if the end of held messages may let others take more: the next of a group, or the next consumer's turn."""
    return queue.grouping is not None or consumers.outlasts(queue, holder)


#: By kind of event, the queues where it makes a look worth it. A kind that is in neither table has no effects.
LOOKS: dict[type[e.Event], _Rule] = {
    e.Enqueued: _enqueued,
    e.Returned: _its_queue,
    e.CameDue: _its_queue,
    e.Expired: _ended,
    e.Purged: _ended,
    e.QueueDeleted: _its_queue,
    e.Published: _published,
    e.BatchEnded: _batch_ended,
    e.Unsubscribed: _unsubscribed,
    e.Settled: _settled,
    e.HoldersLost: lambda state, event: event.rows,
    e.Moved: _moved,
    e.Copied: lambda state, event: (event.target,),
    e.Redriven: _its_queue,
    e.QueueAltered: _its_queue,
    e.QueuePaused: lambda state, event: () if event.paused else (event.queue,),
    e.Routed: lambda state, event: event.queues,
}
_LOOKS, _MAY_END = _with_parts(LOOKS), _with_parts(MAY_END)
