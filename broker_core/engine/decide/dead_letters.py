"""Decisions about the end of deliveries, dead letters and retries.

| cause | moves to the dead-letter queue if | otherwise |
|---|---|---|
| rejected | `rejected` is deadLetter and the option `deadLetterQueue` is set | ARCHIVED as rejected; `return`: AVAILABLE |
| last attempt failed | `maxAttempts` is not 0; without a dead-letter queue it stays here as a dead letter | returns each time |
| malformed | the option `deadLetterQueue` is set | ARCHIVED as rejected |
| expired | `expired` is deadLetter and the option `deadLetterQueue` is set | ARCHIVED as expired |
| refused by every link | `refusedByAll` is deadLetter | waits for another link |

Deferred messages wait for no retry, and no link refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import events as e
from ..columns.rowset import RowSet, as_array
from ..columns.series import Ints, Rows
from ..columns.states import Cause, Outcome, Reason
from ..model.capacity import accepts, fitting
from ..model.dispositions import (
    DeliveryEnd,
    Retry,
    attempts_towards_limit,
    counts_attempt,
    counts_towards_limit,
    deferred_among,
    is_failure,
    longest_delay,
    retry_times,
)
from ..model.exclusions import Exclusions, refused_by
from ..model.queue import Queue
from ..model.state import BrokerState
from .decision import Basis, Holding

NOT_HELD = Holding()


def as_one(events: Sequence[e.Event]) -> e.Event:
    """Join journaled events, so that they happen together."""
    return events[0] if len(events) == 1 else e.Together(tuple(events))


def end(
    basis: Basis, queue: Queue, rows: RowSet, holding: Holding, disposition: DeliveryEnd, rejected: Cause = Cause.REJECTED
) -> list[e.Event]:
    """End a delivery of ACQUIRED messages. `rejected`: the cause for rejected messages that the queue returns."""
    rules, outcome, cause = queue.rules, disposition.outcome, disposition.cause
    if outcome is Outcome.REJECTED and rules.rejected == "return":
        cause = rejected
    if cause is not None:
        error = disposition.error if outcome is Outcome.REJECTED else None
        failed = (basis.now.wall, holding.taker, error) if counts_attempt(queue, cause) else (None, None, None)
        annotations = disposition.annotations or None
        returned = e.Returned(queue.name, holding.holder, rows, int(cause), holding.lease, annotations, *failed)
        return [returned, *after_return(basis, queue, rows, cause, holding.taker, disposition.retry, error)]
    assert outcome is not None
    annotated = [e.Annotated(queue.name, rows, disposition.annotations)] if disposition.annotations else []
    if outcome is Outcome.REJECTED and rules.rejected == "deadLetter" and rules.dead_letter_queue is not None:
        return [*annotated, *dead_letter(basis, queue, rows, Reason.REJECTED, holding, disposition.error)]
    time, error, lease, taker = basis.now.wall, disposition.error, holding.lease, holding.taker
    return [*annotated, e.Settled(queue.name, holding.holder, rows, int(outcome), time, error, lease, taker=taker)]


def end_malformed(basis: Basis, queue: Queue, rows: RowSet, holding: Holding, error: str | None) -> list[e.Event]:
    """The queue's policies do not apply: the next reader could not decode the messages either."""
    if queue.rules.dead_letter_queue is not None:
        return dead_letter(basis, queue, rows, Reason.MALFORMED, holding, error)
    outcome, malformed, time = int(Outcome.REJECTED), int(Reason.MALFORMED), basis.now.wall
    return [e.Settled(queue.name, holding.holder, rows, outcome, time, error, holding.lease, malformed, holding.taker)]


def after_return(
    basis: Basis,
    queue: Queue,
    rows: RowSet,
    cause: Cause,
    taker: str | None = None,
    retry: Retry | None = None,
    error: str | None = None,
) -> list[e.Event]:
    """Messages without an attempt left become dead letters, with the last `error`. Others may wait for their retry, by the
    queue's options or by `retry`. `taker`: the former holder's name."""
    last = last_attempts(queue, rows, cause)
    events = dead_letter(basis, queue, last, Reason.DELIVERY_LIMIT, Holding(taker=taker), error) if last else []
    wall, waiting = basis.now.wall // 1000, []
    if retry is not None and not (retry.gives_way and queue.rules.retry_delay):
        until = min(retry.at(wall), wall + longest_delay(queue.rules))
        waiting = [(until, rows.minus(last).minus(deferred_among(queue, rows, cause)))] if until > wall else []
    elif queue.rules.retry_delay and is_failure(queue, cause):
        waiting = list(retry_times(queue, rows.minus(last).minus(deferred_among(queue, rows, cause)), wall))
    return [*events, *(e.Delayed(queue.name, some, until, basis.now.wall) for until, some in waiting if some)]


def last_attempts(queue: Queue, rows: RowSet, cause: Cause) -> RowSet:
    limit = queue.rules.max_attempts
    if not limit or not counts_towards_limit(queue, cause):
        return RowSet()

    def last(part: Rows, attempts: Ints | int) -> Rows:
        if isinstance(attempts, int):
            return part if attempts + 1 >= limit else slice(0, 0)
        used_up = attempts.astype(np.int64) + 1 >= limit
        return part if used_up.all() else as_array(part)[used_up]

    return RowSet.of(
        (number, last(part, attempts_towards_limit(queue, queue.blocks[number], part))) for number, part in rows.items()
    )


def expire(basis: Basis, queue: Queue, rows: RowSet) -> list[e.Event]:
    if queue.rules.expired == "deadLetter" and queue.rules.dead_letter_queue is not None:
        return dead_letter(basis, queue, rows, Reason.EXPIRED)
    return [e.Expired(queue.name, rows, basis.now.wall)]


def refuse(basis: Basis, queue: Queue, holder: int, rows: RowSet) -> list[e.Event]:
    """A link refuses messages now: the policy applies if all other links have refused them."""
    if queue.rules.refused_by_all != "deadLetter":
        return []
    refused = refused_by(_exclusions_of_others(queue, holder), rows, queue.blocks)
    return dead_letter(basis, queue, refused, Reason.REFUSED) if refused else []


def leave(basis: Basis, queue: Queue, holder: int, back: RowSet) -> list[e.Event]:
    """A link ends and returns `back`: the policy applies to messages that all other links have refused."""
    if queue.rules.refused_by_all != "deadLetter" or len(queue.consumers.subscriptions) < 2:
        return []
    others = _exclusions_of_others(queue, holder)
    refused = refused_by(others, None, queue.blocks).plus(refused_by(others, back, queue.blocks))
    return dead_letter(basis, queue, refused, Reason.REFUSED) if refused else []


def _exclusions_of_others(queue: Queue, holder: int) -> list[Exclusions]:
    return [link.excluded for number, link in queue.consumers.subscriptions.items() if number != holder]


def dead_letter(
    basis: Basis, queue: Queue, rows: RowSet, reason: Reason, holding: Holding = NOT_HELD, error: str | None = None
) -> list[e.Event]:
    """Messages that the dead-letter queue cannot take stay here. The caller has applied the queue's policies."""
    target = basis.state.queues.get(queue.rules.dead_letter_queue or "")
    going = RowSet()
    circular = reason is Reason.EXPIRED and _expires_into(basis.state, queue)
    if target is not None and not circular and accepts(target, queue.name):
        going = fitting(target, queue, rows.minus(_going_round(queue, rows, target.name, reason)), basis.coming)
    outcome, time, (holder, taker, lease) = int(Outcome.DEAD_LETTERED), basis.now.wall, holding
    return [
        e.Moved(queue.name, some, name, outcome, time, int(reason), holder, lease, error, taker=taker)
        for name, some in ((queue.rules.dead_letter_queue, going), (None, rows.minus(going)))
        if some
    ]


def _going_round(queue: Queue, rows: RowSet, target: str, reason: Reason) -> RowSet:
    """Rows that came from `target` for the same reason would circulate forever."""
    if target not in queue.origins:
        return RowSet()
    code = queue.origins.index(target) + 1
    return queue.select(rows, lambda block, part: (block.origin.array(part) == code) & (block.reason.array(part) == reason))


def _expires_into(state: BrokerState, queue: Queue) -> bool:
    """Return True if messages that expire here would return on their own, through dead-letter queues.

    For other reasons they circulate only if consumers fail each time.
    """
    seen: set[str] = set()
    following: Queue | None = queue
    while following is not None and following.rules.expired == "deadLetter":
        name = following.rules.dead_letter_queue
        if name is None or name in seen:
            return False
        if name == queue.name:
            return True
        seen.add(name)
        following = state.queues.get(name)
    return False
