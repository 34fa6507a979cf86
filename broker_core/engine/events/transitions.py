"""Transitions of rows between states, and their consequences.

Consequences that follow from the state are in no event: a newer value replaces an older one, a ring drops its oldest messages,
and a publish leaves out duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..columns.attributes import NO_ATTRIBUTES, Attributes
from ..columns.counters import add_to
from ..columns.limits import MAX_ERROR_TEXT, MAX_FAILURE_TEXT
from ..columns.losses import DUPLICATE, RING
from ..columns.rowset import RowSet, as_array, row_count
from ..columns.runs import Run
from ..columns.series import Ints
from ..columns.states import LIMITED_BY_RULE, UNLIMITED, Cause, Outcome, Verb
from ..model.admission import fresh
from ..model.dispositions import counts_attempt, deferred_among
from ..model.last_values import arrived, replaced, surplus
from ..model.lease import Lease
from ..model.queue import Queue
from ..model.state import BrokerState


class Arrival(NamedTuple):
    """Messages that come into a queue together."""

    sizes: int | Ints  # as in `Candidates`
    runs: Sequence[Run]
    time: int  # microseconds since 1970
    attributes: Attributes = NO_ATTRIBUTES


class Ending(NamedTuple):
    """End of messages, as the archive records it."""

    outcome: int
    time: int  # microseconds since 1970
    error: str | None = None
    taker: str | None = None  # name of the link, lease or command: see `model.names`


class Failure(NamedTuple):
    """A failed delivery, as the archive records it."""

    time: int  # microseconds since 1970
    taker: str | None = None  # as in `Ending`
    error: str | None = None  # of the consumer


# Rows change their state in `acquire`, `archive` and `give_back`, except for delays and redrives.
def acquire(queue: Queue, rows: RowSet, holder: int, lease: Lease | None = None) -> None:
    subscription = queue.consumers.link(holder)
    taker = subscription or lease
    chose = taker is not None and bool(taker.selector is not None or taker.excluded)
    for number, part in rows.items():
        block = queue.blocks[number]
        queue.move(block, part, Verb.ACQUIRE)
        queue.acquired(block, part, holder, chose=chose)
        queue.totals.acquired(block, part)
        block.lock.set(part, 0, len(block.state))
        if subscription is not None:
            add_to(subscription.held, number, row_count(part))


def archive(state: BrokerState, queue: Queue, rows: RowSet, verb: Verb, ending: Ending) -> None:
    code = queue.takers.code(ending.taker) if rows else 0
    for number, part in rows.items():
        block = queue.blocks[number]
        queue.move(block, part, verb)
        block.archive(part, ending.outcome, ending.time, code)
        queue.recordings.settled(block, part, ending.time, wanted=queue.rules.archive)
        if ending.error:
            block.note_errors(dict.fromkeys(as_array(part).tolist(), ending.error[:MAX_ERROR_TEXT]))
        state.note_finished(queue, block)
    queue.ended[ending.outcome] += rows.count


def annotate(queue: Queue, rows: RowSet, annotations: bytes) -> None:
    for number, part in rows.items():
        queue.overlay_bytes += queue.blocks[number].overlays.add(part, annotations)


def give_back(state: BrokerState, queue: Queue, rows: RowSet, cause: int, failure: Failure | None = None) -> None:
    """Make ACQUIRED rows AVAILABLE or DEFERRED, and count the attempt if the cause counts."""
    if not rows:
        return
    taker = 0 if failure is None else queue.takers.code(failure.taker)
    deferred = deferred_among(queue, rows, cause)
    available = rows.minus(deferred) if deferred else rows
    for number, part in available.items():
        queue.move(queue.blocks[number], part, Verb.RETURN)
    for number, part in deferred.items():
        block = queue.blocks[number]
        queue.move(block, part, Verb.DEFER)
        block.deferred.set(part, 1, len(block.state))
    for number, part in rows.items():
        block = queue.blocks[number]
        block.returned.set(part, 1, len(block.state))
        if counts_attempt(queue, Cause(cause)):
            block.attempts.increment(part, len(block.state))
            if failure is not None:
                error = None if failure.error is None else failure.error[:MAX_FAILURE_TEXT]
                block.note_failure(part, cause + 1, failure.time, taker, error)
            if cause in LIMITED_BY_RULE:
                block.defaulted.increment(part, len(block.state))
            if cause in UNLIMITED:
                block.leased.increment(part, len(block.state))
        if block.expiry.values is not None:  # the rows may expire before the others
            block.look_ahead(state.time // 1000)
            queue.note_times(block)
    if available:
        queue.came_back(available)
    if queue.rules.key:
        replace_values(state, queue, rows, state.time)


def append(state: BrokerState, queue: Queue, arrival: Arrival, acquired: Sequence[tuple[int, RowSet]] = ()) -> None:
    """Append messages, except for duplicates. `acquired`: links that acquire some as they arrive."""
    first, attributes = queue.next_sequence, arrival.attributes
    if attributes.ids is not None and queue.rules.duplicate_window:
        wall = arrival.time // 1000
        rows = np.flatnonzero(fresh(queue, attributes.ids, wall))
        if len(rows) < len(attributes.ids):
            sizes = arrival.sizes if isinstance(arrival.sizes, int) else arrival.sizes[rows]
            arrival = Arrival(sizes, _only(arrival.runs, rows), arrival.time, attributes.take(rows))
            queue.losses[DUPLICATE] += len(attributes.ids) - len(rows)
        assert arrival.attributes.ids is not None
        queue.remembered.remember(arrival.attributes.ids, wall, queue.rules.duplicate_window)
    queue.append(*arrival)
    for holder, rows_of_holder in acquired:  # before a ring drops AVAILABLE messages
        acquire(queue, rows_of_holder, holder)
    settle_in(state, queue, first, arrival.time)


def settle_in(state: BrokerState, queue: Queue, first: int, time: int) -> None:
    """Archive the messages that newer ones, from sequence number `first` on, replace or push out of a ring."""
    if queue.rules.key:
        replace_values(state, queue, arrived(queue, first), time)
    if queue.rules.overflow == "ring":
        oldest = surplus(queue)
        archive(state, queue, oldest, Verb.DROP, Ending(Outcome.DROPPED, time))
        queue.losses[RING] += oldest.count


def replace_values(state: BrokerState, queue: Queue, rows: RowSet, time: int) -> None:
    """Archive the values that `rows` replace."""
    older = queue.allowed(replaced(queue, rows), Verb.REPLACE)
    archive(state, queue, older, Verb.REPLACE, Ending(Outcome.REPLACED, time))


def _only(runs: Sequence[Run], rows: Ints) -> list[Run]:
    """Select messages of runs by their indexes, ascending."""
    selected: list[Run] = []
    start = 0
    for run in runs:
        rows_of_run = rows[(rows >= start) & (rows < start + run.rows)]
        if len(rows_of_run):
            selected += runs_of(len(rows_of_run), rows_of_run - start + run.skip, run.position)
        start += run.rows
    return selected


def runs_of(count: int, payload_rows: Ints | None, position: int) -> list[Run]:
    """`payload_rows`: ascending; None: all rows of the payload."""
    if payload_rows is None:
        return [Run(count, position, 0)]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(payload_rows) != 1) + 1])
    lengths = np.diff(np.append(starts, count))
    return [Run(rows, position, skip) for rows, skip in zip(lengths.tolist(), payload_rows[starts].tolist(), strict=True)]


def let_go(state: BrokerState, queue: Queue, holder: int, rows: RowSet, *, lost: bool = False) -> None:
    """The holder no longer holds these rows. `lost`: it did not return them itself."""
    state.transactions.take_back(holder, rows, lost=lost)
    subscription = queue.consumers.link(holder)
    if subscription is None:
        queue.consumers.let_go(holder, rows.count)
        return
    for number, part in rows.items():
        add_to(subscription.held, number, -row_count(part))


def take_out(state: BrokerState, lease: str | None, rows: RowSet) -> None:
    """An operator ended rows of a lease's batch."""
    if lease is not None:
        batch = state.leases[lease].current
        assert batch is not None
        batch.rows = batch.rows.minus(rows)
