"""State changes by the events of queues."""

from __future__ import annotations

from .. import events as e
from ..columns.attributes import Attributes
from ..columns.rowset import RowSet
from ..columns.runs import Run
from ..columns.states import Outcome, Verb
from ..model import consumers
from ..model.options import checked, rules
from ..model.passes import NOT_WANTED
from ..model.queue import PackedBlock
from ..model.state import BrokerState
from .transitions import append, archive, runs_of


def queue_declared(state: BrokerState, event: e.QueueDeclared, position: int) -> None:
    """Add a queue."""
    state.add_queue(event.queue, event.type, event.options, event.user, event.defaults)


def queue_deleted(state: BrokerState, event: e.QueueDeleted, position: int) -> None:
    """Remove a queue with its messages."""
    state.delete_queue(event.queue, departs=event.departs)


def queue_altered(state: BrokerState, event: e.QueueAltered, position: int) -> None:
    """Set a queue's options, and the rules that follow from them."""
    queue = state.queues[event.queue]
    queue.changes += 1
    queue.options = checked(queue.kind, {**queue.options, **event.options})
    queue.rules = rules(queue.kind, queue.options, queue.defaults)
    consumers.reconsider(queue)


def queue_paused(state: BrokerState, event: e.QueuePaused, position: int) -> None:
    """Pause a queue, or resume it and let its consumers look from the start."""
    queue = state.queues[event.queue]
    queue.changes += 1
    queue.paused = event.paused
    if not event.paused:  # who looked meanwhile found nothing, and has passed what is there
        for log in queue.returns:
            log.add(0)


def enqueued(state: BrokerState, event: e.Enqueued, position: int) -> None:
    """Append messages to a queue. Those that links acquire with their arrival are never AVAILABLE."""
    runs = [Run(event.count, position, 0)] if event.kept is None else runs_of(event.kept, position)
    queue, attributes = state.queues[event.queue], Attributes.of_journal(event.attributes)
    append(state, queue, event.sizes, runs, event.time, attributes, event.acquired or ())


def purged(state: BrokerState, event: e.Purged, position: int) -> None:
    """Archive rows as purged."""
    queue = state.queues[event.queue]
    archive(state, queue, queue.allowed(event.rows, Verb.PURGE), Verb.PURGE, Outcome.PURGED, event.time, event.error)


def block_packed(state: BrokerState, event: e.BlockPacked, position: int) -> None:
    """Replace a block in memory by the log position of its packed columns."""
    queue = state.queues[event.queue]
    block = queue.blocks[event.number]
    entry = queue.packed[event.number] = PackedBlock(
        event.number, position, event.highest_payload, event.first_time, event.last_time, event.outcomes
    )
    entry.lowest_payload = block.runs.low
    if block.unrecorded:
        rows = block.unrecorded_rows()
        entry.unrecorded = RowSet.of([(block.number, rows)]).packed()
        entry.unrecorded_bytes = block.sizes.total(rows, len(rows))
    recorded = block.recorded.get(slice(0, block.filled))
    if not isinstance(recorded, int):
        entry.recorded_before, entry.not_wanted = int(recorded.max()), int((recorded == NOT_WANTED).sum())
    queue.drop(block)
    state.finished.remove(event.queue, event.number)


def retained(state: BrokerState, event: e.Retained, position: int) -> None:
    """Forget what had its payload below a log position: the event of older versions."""
    state.drop([[0, event.position]])
