"""Which queues are worth another look: who found nothing there before would find something else now."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker_core.engine.events import exchanges as xe
from penstock.broker_core.engine.events import moves as me
from penstock.broker_core.engine.events import queues as e
from penstock.broker_core.engine.model import consumers
from penstock.broker_core.engine.model.lease import Stage
from penstock.broker_core.engine.model.queue import Queue
from penstock.broker_core.engine.model.state import BrokerState


def worth_a_look(state: BrokerState, event: e.Event) -> Iterable[str]:
    """Names of the queues in which messages become AVAILABLE with `event`, or which end with it: who waits there is told that
    it is gone. Asked before `event` is applied, while the stages that it publishes are there."""
    if isinstance(event, (e.Acquired, e.Looked)):
        return ()  # as most are
    if isinstance(event, (e.Enqueued, e.Returned, e.CameDue, e.QueueDeleted)):
        return (event.queue,)
    if isinstance(event, e.Published):
        return {part.queue for name in event.names for part in state.stages[name].parts}
    if isinstance(event, e.BatchEnded):
        queue = state.queues[state.leases[event.lease].queue]
        freed = queue.active is not None or queue.grouping is not None
        return (queue.name,) if event.stage != Stage.SETTLED.value or freed else ()
    if isinstance(event, e.Unsubscribed):  # now it is another's turn, or its groups are free
        queue = state.queues[event.queue]
        return (queue.name,) if queue.active == event.holder or queue.grouping is not None else ()
    if isinstance(event, e.Settled):
        return (event.queue,) if _frees(state.queues[event.queue], event.holder) else ()
    if isinstance(event, me.Moved):
        frees = _frees(state.queues[event.queue], event.holder)
        return {name for name in (event.target, event.queue if frees else None) if name is not None}
    if isinstance(event, me.Copied):
        return (event.target,)
    if isinstance(event, (me.Redriven, me.QueueAltered)):
        return (event.queue,)
    if isinstance(event, me.QueuePaused):
        return () if event.paused else (event.queue,)
    if isinstance(event, xe.Routed):
        return event.queues
    if isinstance(event, e.HoldersLost):
        return event.rows
    if isinstance(event, e.Together):
        return {queue for part in event.parts for queue in worth_a_look(state, part)}
    return ()


def _frees(queue: Queue, holder: int) -> bool:
    """Whether the end of messages that somebody held may let others take what is there: the next of a group, or their turn."""
    return queue.grouping is not None or consumers.outlasts(queue, holder)
