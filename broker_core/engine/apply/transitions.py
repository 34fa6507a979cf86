"""Changes of rows' states, and what follows from them: all that moves messages in the state calls these functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import events as e
from ..columns.attributes import NO_ATTRIBUTES, Attributes
from ..columns.limits import MAX_ERROR_TEXT
from ..columns.rowset import RowSet, as_array, row_count
from ..columns.runs import Run
from ..columns.series import Ints
from ..columns.states import LIMITED_BY_RULE, UNLIMITED, Cause, Outcome, Verb
from ..model import consumers
from ..model.admission import fresh
from ..model.dispositions import counts_attempt
from ..model.last_values import arrived, replaced, surplus
from ..model.lease import Lease
from ..model.queue import Queue
from ..model.state import BrokerState


# Rows change state by `Queue.move`: in these three functions, and where a delay ends or a dead letter is redriven.
def acquire(queue: Queue, rows: RowSet, holder: int, lease: Lease | None) -> None:
    """Make rows ACQUIRED by `holder`, and count them for its subscription."""
    subscription = queue.subscriptions.get(holder)
    taker = subscription or lease
    chose = taker is not None and bool(taker.selector is not None or taker.excluded)
    for number, part in rows.items():
        block = queue.blocks[number]
        queue.move(block, part, Verb.ACQUIRE)
        queue.acquired(block, part, holder, chose=chose)
        queue.totals.acquired(block, part)
        block.lock.set(part, 0, len(block.state))
        if subscription is not None:
            subscription.held[number] = subscription.held.get(number, 0) + row_count(part)


def archive(
    state: BrokerState,
    queue: Queue,
    rows: RowSet,
    verb: Verb,
    outcome: int,
    time: int,
    error: str | None = None,
    taker: str | None = None,
) -> None:
    """Put rows into the archive by one of the verbs that lead there, and note their outcome, and the name of who had them."""
    code = queue.takers.code(taker) if rows else 0
    for number, part in rows.items():
        block = queue.blocks[number]
        queue.move(block, part, verb)
        block.archive(part, outcome, time, code)
        queue.passes.settled(block, part, time, wanted=queue.rules.archive)
        if error:
            block.note_errors(dict.fromkeys(as_array(part).tolist(), error[:MAX_ERROR_TEXT]))
        state.note_finished(queue, block)
    queue.ended[outcome] += rows.count


def give_back(state: BrokerState, queue: Queue, rows: RowSet, cause: int) -> None:
    """Make ACQUIRED rows AVAILABLE, count the attempt by its cause, and archive last values that have a newer one."""
    if not rows:
        return
    for number, part in rows.items():
        block = queue.blocks[number]
        queue.move(block, part, Verb.RETURN)
        block.returned.set(part, 1, len(block.state))
        if counts_attempt(queue, Cause(cause)):
            block.attempts.increment(part, len(block.state))
            if cause in LIMITED_BY_RULE:
                block.defaulted.increment(part, len(block.state))
            if cause in UNLIMITED:
                block.leased.increment(part, len(block.state))
        if block.expiry.values is not None:  # its time may have come, or come nearer than that of the others
            block.look_ahead(state.time // 1000)
            queue.note_times(block)
    queue.came_back(rows)
    if queue.rules.key:
        replace_values(state, queue, rows, state.time)


def append(
    state: BrokerState,
    queue: Queue,
    sizes: int | Ints,
    runs: Sequence[Run],
    time: int,
    attributes: Attributes = NO_ATTRIBUTES,
    acquired: Sequence[e.Acquired] = (),
) -> None:
    """Append messages to a queue, without duplicates of earlier ones. `acquired`: links that take some of them with their
    arrival."""
    first = queue.next_sequence
    if attributes.ids is not None and queue.rules.duplicate_window:
        rows = np.flatnonzero(fresh(queue, attributes.ids, time // 1000))
        if len(rows) < len(attributes.ids):
            sizes, runs, attributes = sizes if isinstance(sizes, int) else sizes[rows], _only(runs, rows), attributes.take(rows)
        assert attributes.ids is not None
        queue.remembered.remember(attributes.ids, time // 1000, queue.rules.duplicate_window)
    queue.append(sizes, runs, time, attributes)
    for event in acquired:  # before anything gives way to them: a ring drops only AVAILABLE messages
        acquire(queue, event.rows, event.holder, None)
    settle_in(state, queue, first, time)


def settle_in(state: BrokerState, queue: Queue, first: int, time: int) -> None:
    """Archive what the messages from sequence number `first` on replace by key, or push out of a ring."""
    if queue.rules.key:
        replace_values(state, queue, arrived(queue, first), time)
    if queue.rules.overflow == "ring":
        archive(state, queue, surplus(queue), Verb.DROP, Outcome.DROPPED, time)


def replace_values(state: BrokerState, queue: Queue, rows: RowSet, time: int) -> None:
    """Archive the values that give way, in a last-value queue, now that `rows` are no longer delayed."""
    archive(state, queue, queue.allowed(replaced(queue, rows), Verb.REPLACE), Verb.REPLACE, Outcome.REPLACED, time)


def _only(runs: Sequence[Run], rows: Ints) -> list[Run]:
    """Select some messages of runs: `rows` are their indices, ascending."""
    found: list[Run] = []
    start = 0
    for run in runs:
        mine = rows[(rows >= start) & (rows < start + run.rows)]
        if len(mine):
            found += runs_of(mine - start + run.skip, run.position)
        start += run.rows
    return found


def let_go(state: BrokerState, queue: Queue, holder: int, rows: RowSet, *, lost: bool = False) -> None:
    """Take rows from a link's count; `lost`: the link did not give them back itself."""
    state.transactions.take_back(holder, rows, lost=lost)
    subscription = queue.subscriptions.get(holder)
    if subscription is None:
        consumers.let_go(queue, holder, rows.count)
        return
    for number, part in rows.items():
        subscription.held[number] -= row_count(part)
        if not subscription.held[number]:
            del subscription.held[number]


def take_out(state: BrokerState, lease: str | None, rows: RowSet) -> None:
    """Remove rows that an operator ended from a lease's batch."""
    if lease is not None:
        batch = state.leases[lease].current
        assert batch is not None
        batch.rows = batch.rows.minus(rows)


def runs_of(kept: Ints, position: int) -> list[Run]:
    """Rows of one payload, in ascending order, as runs of neighbours."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(kept) != 1) + 1])
    lengths = np.diff(np.append(starts, len(kept)))
    return [Run(rows, position, skip) for rows, skip in zip(lengths.tolist(), kept[starts].tolist(), strict=True)]
