"""Decisions about outcomes of single messages of a batch: their check, and their effect when the batch ends."""

from __future__ import annotations

import numpy as np

from ... import errors
from .. import commands as c
from .. import events as e
from ..columns.limits import MAX_MALFORMED_TEXTS, MAX_OUTCOMES, MAX_STAGES
from ..columns.rowset import RowSet
from ..columns.states import Verb
from ..model.batch_outcomes import DISPOSITIONS, MALFORMED, RowsOutcome, cut, shortened
from ..model.capacity import Coming
from ..model.lease import Batch, BatchState, Lease
from ..model.stages import check_stage
from ..model.state import BrokerState
from . import dead_letters
from .decision import Decision, check_rows, need_queue
from .outcome_checks import need_batch_for_outcomes
from .stages import check_not_ended, too_many_stages


def stage_outcomes(state: BrokerState, command: c.StageOutcomes, now: c.Now) -> Decision[None]:
    """Put outcomes of a batch's messages into a stage. NotFound, Fenced, DataLoss, InvalidRequest, ResourceLimit."""
    check_stage(command.stage)
    check_not_ended(state, command.stage)
    if command.stage not in state.stages and len(state.stages) >= MAX_STAGES:
        raise too_many_stages()
    batch = need_batch_for_outcomes(state, command.lease, command.batch, command.epoch)
    known = state.stages.get(command.stage)
    waiting = sum(len(each.outcomes) for each in known.outcomes) if known is not None else 0
    for each in command.outcomes:
        if each.outcome not in DISPOSITIONS:
            raise errors.InvalidRequest(f"outcome {each.outcome!r:.80}: allowed are {', '.join(DISPOSITIONS)}")
        if each.rows.minus(batch.rows):
            raise errors.MessageNotFound(
                f"lease {command.lease!r}: batch {command.batch} does not hold all of these messages: none of the "
                f"outcomes was taken"
            )
    given = [RowsOutcome(each.outcome, shortened(each.error), each.rows) for each in command.outcomes if each.rows]
    outcomes = [each.to_json() for each in cut(given, max(0, MAX_OUTCOMES - waiting))]
    if not outcomes:
        return Decision([], None)
    staged = e.OutcomesStaged(command.stage, command.lease, command.batch, command.epoch, outcomes, now.up, now.wall)
    return Decision([(staged, None)], None)


def set_aside(state: BrokerState, command: c.SetAside, now: c.Now) -> Decision[int]:
    """Note messages of a batch that its reader cannot decode. Reply: how many are new. NotFound, Fenced, DataLoss."""
    batch = need_batch_for_outcomes(state, command.lease, command.batch, command.epoch, command.run)
    if batch.state is not BatchState.READ:  # it is read again after its end: what became of its messages stays
        return Decision([], 0)
    known = {each.error for each in batch.outcomes if each.outcome == MALFORMED}
    before = [each.rows for each in batch.outcomes if each.outcome == MALFORMED]
    found: list[RowsOutcome] = []
    for reason, named in command.reasons.items():
        rows = named.minus(named.minus(batch.rows))  # an operator may have ended some
        for noted in before:
            rows = rows.minus(noted)
        if not rows:
            continue
        error = shortened(f"{MALFORMED}: {reason}")
        if error not in known and len(known) >= MAX_MALFORMED_TEXTS:
            error = f"{MALFORMED}: no valid AMQP message"
        known.add(error)
        before.append(rows)
        found.append(RowsOutcome(MALFORMED, error, rows))
    count = sum(each.rows.count for each in found)
    if not count:
        return Decision([], 0)
    return Decision([(e.MalformedFound(command.lease, command.batch, [each.to_json() for each in found]), None)], count)


def settle_batch(state: BrokerState, lease: Lease, batch: Batch, now: c.Now, coming: Coming, *, exclude: bool = False) -> e.Event:
    """End a batch that was read, as one event: messages with an outcome by that, the others as accepted."""
    queue = need_queue(state, lease.queue)
    check_rows(queue, batch.rows, Verb.SETTLE, batch.holder)
    events: list[e.Event] = []
    others: list[RowSet] = []
    for each in batch.outcomes:
        rows = each.rows.minus(each.rows.minus(batch.rows))  # an operator may have ended some
        if each.outcome == "accepted" or not rows:
            continue
        others.append(rows)
        if each.outcome == MALFORMED:
            events += dead_letters.end_malformed(
                state, queue, rows, now, coming, holder=batch.holder, taker=lease.name, error=each.error
            )
            continue
        disposition = each.disposition
        if disposition.outcome is not None:
            events += dead_letters.settle(
                state,
                queue,
                rows,
                disposition.outcome,
                now,
                coming,
                holder=batch.holder,
                taker=lease.name,
                error=disposition.error,
            )
        elif disposition.cause is not None:
            returned = e.Returned(queue.name, batch.holder, rows, int(disposition.cause))
            events += [returned, *dead_letters.after_return(state, queue, rows, disposition.cause, now, coming, taker=lease.name)]
    done = RowSet.of_sequences(np.sort(np.concatenate([rows.sequences() for rows in others]))) if others else None
    ended = e.BatchEnded(lease.name, batch.number, BatchState.SETTLED.value, now.wall, exclude, done)
    return dead_letters.as_one([*events, ended])
