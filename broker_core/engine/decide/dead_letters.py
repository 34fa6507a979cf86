"""Decisions about messages that nobody will process here: rejected, tried too often, expired, refused by all; and about those
that come back and wait for their retry.

Each function returns events, decided on the state before them. Several of one return are meant to happen together, and are put
into one `Together` by `as_one`. `coming` is what the same decision has brought to queues so far.

| cause | goes to the dead-letter queue if | else |
|---|---|---|
| rejected | `rejected` is deadLetter and there is an option `deadLetterQueue` | ARCHIVED as rejected; `return`: AVAILABLE |
| last attempt failed | `maxAttempts` is not 0; without a dead-letter queue it stays here as a dead letter | comes back for ever |
| malformed | there is an option `deadLetterQueue` | ARCHIVED as rejected |
| expired | `expired` is deadLetter and there is an option `deadLetterQueue` | ARCHIVED as expired |
| refused by every link | `refusedByAll` is deadLetter | waits for another link |
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .. import commands as c
from .. import events as e
from ..columns.rowset import RowSet, as_array, row_count
from ..columns.series import Ints, Rows
from ..columns.states import Cause, Outcome, Reason
from ..model.capacity import Coming, accepts, fitting
from ..model.dispositions import Retry, attempts_towards_limit, counts_towards_limit, is_failure, longest_delay, retry_times
from ..model.exclusions import refused_by
from ..model.queue import Queue
from ..model.state import BrokerState


def as_one(events: Sequence[e.Event]) -> e.Event:
    """Join events into one, of which all parts happen or none: at least one event, all journaled."""
    return events[0] if len(events) == 1 else e.Together(tuple(events))


def settle(
    state: BrokerState,
    queue: Queue,
    rows: RowSet,
    outcome: Outcome,
    now: c.Now,
    coming: Coming,
    *,
    holder: int,
    taker: str | None,
    lease: str | None = None,
    error: str | None = None,
    returned: Cause = Cause.REJECTED,
) -> list[e.Event]:
    """Decide how an outcome that settles ends ACQUIRED messages. Rejected ones follow the queue's policy, and come back for
    `returned` where that is to deliver them again. `taker`: the name of the holder, see `events.Settled`."""
    rules = queue.rules
    if outcome is Outcome.REJECTED and rules.rejected == "return":
        event = e.Returned(queue.name, holder, rows, int(returned), lease)
        return [event, *after_return(state, queue, rows, returned, now, coming, taker=taker)]
    if outcome is Outcome.REJECTED and rules.rejected == "deadLetter" and rules.dead_letter_queue is not None:
        return dead_letter(state, queue, rows, Reason.REJECTED, now, coming, holder=holder, taker=taker, lease=lease, error=error)
    return [e.Settled(queue.name, holder, rows, int(outcome), now.wall, error, lease, taker=taker)]


def end_malformed(
    state: BrokerState,
    queue: Queue,
    rows: RowSet,
    now: c.Now,
    coming: Coming,
    *,
    holder: int,
    taker: str | None,
    lease: str | None = None,
    error: str | None = None,
) -> list[e.Event]:
    """Decide how ACQUIRED messages that nobody can decode end: as dead letters where the queue has a dead-letter queue,
    whatever its policy for rejected ones, since the next receiver cannot decode them either."""
    if queue.rules.dead_letter_queue is not None:
        return dead_letter(
            state, queue, rows, Reason.MALFORMED, now, coming, holder=holder, taker=taker, lease=lease, error=error
        )
    malformed = int(Reason.MALFORMED)
    return [e.Settled(queue.name, holder, rows, int(Outcome.REJECTED), now.wall, error, lease, malformed, taker)]


def after_return(
    state: BrokerState,
    queue: Queue,
    rows: RowSet,
    cause: Cause,
    now: c.Now,
    coming: Coming,
    retry: Retry | None = None,
    *,
    taker: str | None = None,
) -> list[e.Event]:
    """Decide what follows where ACQUIRED messages come back for `cause`: those that have no attempt left become dead letters, and
    the others wait for their retry where the queue or, by `retry`, their consumer wants that. `taker`: who had them."""
    last = last_attempts(queue, rows, cause)
    events = dead_letter(state, queue, last, Reason.DELIVERY_LIMIT, now, coming, taker=taker) if last else []
    wall = now.wall // 1000
    if retry is not None and not (retry.gives_way and queue.rules.retry_delay):
        until = min(retry.at(wall), wall + longest_delay(queue.rules))
        waiting = [(until, rows.minus(last))] if until > wall else []
    elif queue.rules.retry_delay and is_failure(queue, cause):
        waiting = list(retry_times(queue, rows.minus(last), wall))
    else:
        waiting = []
    return [*events, *(e.Delayed(queue.name, some, until, now.wall) for until, some in waiting if some)]


def last_attempts(queue: Queue, rows: RowSet, cause: Cause) -> RowSet:
    """Select the ACQUIRED messages that will have used all their attempts when they come back for `cause`."""
    most = queue.rules.max_attempts
    if not most or not counts_towards_limit(queue, cause):
        return RowSet()

    def last(part: Rows, attempts: Ints | int) -> Rows:
        if isinstance(attempts, int):
            return part if attempts + 1 >= most else slice(0, 0)
        worn = attempts.astype(np.int64) + 1 >= most
        return part if worn.all() else as_array(part)[worn]

    return RowSet.of(
        (number, last(part, attempts_towards_limit(queue, queue.blocks[number], part))) for number, part in rows.items()
    )


def expire(state: BrokerState, queue: Queue, rows: RowSet, now: c.Now, coming: Coming) -> list[e.Event]:
    """Move expired messages, AVAILABLE or DELAYED, into the archive or the dead-letter queue, by the queue's policy."""
    if queue.rules.expired == "deadLetter" and queue.rules.dead_letter_queue is not None:
        return dead_letter(state, queue, rows, Reason.EXPIRED, now, coming)
    return [e.Expired(queue.name, rows, now.wall)]


def refuse(state: BrokerState, queue: Queue, holder: int, rows: RowSet, now: c.Now, coming: Coming) -> list[e.Event]:
    """Apply the queue's policy to messages that one link refuses, and that every other link has refused before."""
    if queue.rules.refused_by_all != "deadLetter":
        return []
    others = [each.excluded for number, each in queue.subscriptions.items() if number != holder]
    refused = refused_by(others, rows, queue)
    return dead_letter(state, queue, refused, Reason.REFUSED, now, coming) if refused else []


def leave(state: BrokerState, queue: Queue, holder: int, back: RowSet, now: c.Now, coming: Coming) -> list[e.Event]:
    """Apply the queue's policy when a link ends and gives `back` what it held: to messages that all other links have refused."""
    if queue.rules.refused_by_all != "deadLetter" or len(queue.subscriptions) < 2:
        return []
    others = [each.excluded for number, each in queue.subscriptions.items() if number != holder]
    refused = refused_by(others, None, queue).plus(refused_by(others, back, queue))
    return dead_letter(state, queue, refused, Reason.REFUSED, now, coming) if refused else []


def dead_letter(
    state: BrokerState,
    queue: Queue,
    rows: RowSet,
    reason: Reason,
    now: c.Now,
    coming: Coming,
    *,
    holder: int = 0,
    taker: str | None = None,
    lease: str | None = None,
    error: str | None = None,
) -> list[e.Event]:
    """Put DELAYED, AVAILABLE or ACQUIRED messages (`holder` holds those) into the dead-letter queue; what that cannot take stays
    here, ARCHIVED: nothing is lost, and nobody waits for capacity. The caller has applied the queue's policies. `taker`: who
    has them, or had them until they came back."""
    target = state.queues.get(queue.rules.dead_letter_queue or "")
    going = RowSet()
    if target is not None and accepts(target, queue.name) and not (reason is Reason.EXPIRED and _expires_into(state, queue)):
        going = fitting(target, queue, rows.minus(_going_round(queue, rows, target.name, reason)), coming)
    events: list[e.Event] = []
    for name, some in ((queue.rules.dead_letter_queue, going), (None, rows.minus(going))):
        if some:
            events.append(
                e.Moved(
                    queue.name,
                    some,
                    name,
                    int(Outcome.DEAD_LETTERED),
                    now.wall,
                    int(reason),
                    holder,
                    lease,
                    error,
                    taker=taker,
                )
            )
    return events


def _going_round(queue: Queue, rows: RowSet, target: str, reason: Reason) -> RowSet:
    """Select the rows that came from `target` as dead letters for the same reason: they would go round for ever."""
    if target not in queue.origins:
        return RowSet()
    code = queue.origins.index(target) + 1
    parts = []
    for number, part in rows.items():
        block, count = queue.blocks[number], row_count(part)
        origins = np.broadcast_to(block.origin.get(part), count)
        reasons = np.broadcast_to(block.reason.get(part), count)
        parts.append((number, as_array(part)[(origins == code) & (reasons == reason)]))
    return RowSet.of(parts)


def _expires_into(state: BrokerState, queue: Queue) -> bool:
    """Return True if messages that expire here, again and again, come back by themselves. Messages that go round for other
    reasons need somebody who rejects them, or fails, each time."""
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
