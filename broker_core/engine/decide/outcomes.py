"""Decisions about outcomes of single messages of a batch."""

from __future__ import annotations

import numpy as np

from ... import errors
from .. import commands as c
from .. import events as e
from ..columns.limits import MAX_MALFORMED_TEXTS, MAX_OUTCOMES
from ..columns.rowset import RowSet
from ..columns.states import Verb
from ..model.batch_outcomes import DISPOSITIONS, MALFORMED, RowsOutcome, cut, shortened
from ..model.lease import Batch, BatchState, Lease
from ..model.stages import check_stage
from ..model.state import BrokerState
from . import dead_letters
from .decision import Basis, Decision, Holding, check_rows, decides, need_batch_for_outcomes, need_queue
from .stages import check_count, check_not_ended


@decides(c.StageOutcomes)
def stage_outcomes(state: BrokerState, command: c.StageOutcomes, now: c.Now) -> Decision[None]:
    check_stage(command.stage)
    check_not_ended(state, command.stage)
    check_count(state, command.stage)
    batch = need_batch_for_outcomes(state, command.lease, command.batch, command.epoch)
    known = state.stages.get(command.stage)
    waiting = sum(len(staged.outcomes) for staged in known.outcomes) if known is not None else 0
    for outcome in command.outcomes:
        if outcome.outcome not in DISPOSITIONS:
            raise errors.InvalidRequest(f"outcome {outcome.outcome!r:.80}: allowed are {', '.join(DISPOSITIONS)}")
        if outcome.rows.minus(batch.rows):
            raise errors.MessageNotFound(
                f"lease {command.lease!r}: batch {command.batch} does not hold all of these messages: none of the "
                f"outcomes was taken"
            )
    named = [RowsOutcome(o.outcome, shortened(o.error), o.rows) for o in command.outcomes if o.rows]
    outcomes = [outcome.to_json() for outcome in cut(named, max(0, MAX_OUTCOMES - waiting))]
    if not outcomes:
        return Decision([], None)
    staged = e.OutcomesStaged(command.stage, command.lease, command.batch, command.epoch, outcomes, now.wall)
    return Decision([(staged, None)], None)


@decides(c.SetAside)
def set_aside(state: BrokerState, command: c.SetAside, now: c.Now) -> Decision[int]:
    batch = need_batch_for_outcomes(state, command.lease, command.batch, command.epoch, command.run)
    if batch.state is not BatchState.READ:  # it was read again after its end
        return Decision([], 0)
    earlier = [outcome for outcome in batch.outcomes if outcome.outcome == MALFORMED]
    known = {outcome.error for outcome in earlier}
    before = [outcome.rows for outcome in earlier]
    malformed: list[RowsOutcome] = []
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
        malformed.append(RowsOutcome(MALFORMED, error, rows))
    if not malformed:
        return Decision([], 0)
    event = e.MalformedFound(command.lease, command.batch, [outcome.to_json() for outcome in malformed])
    return Decision([(event, None)], sum(outcome.rows.count for outcome in malformed))


def settle_batch(basis: Basis, lease: Lease, batch: Batch, *, exclude: bool = False) -> e.Event:
    """Settle a batch in one event: messages by their outcomes, the others as accepted."""
    queue = need_queue(basis.state, lease.queue)
    check_rows(queue, batch.rows, Verb.SETTLE, batch.holder)
    holding = Holding(batch.holder, lease.taker)
    events: list[e.Event] = []
    not_accepted: list[RowSet] = []
    for outcome in batch.outcomes:
        rows = outcome.rows.minus(outcome.rows.minus(batch.rows))  # an operator may have ended some
        if outcome.outcome == "accepted" or not rows:
            continue
        not_accepted.append(rows)
        if outcome.outcome == MALFORMED:
            events += dead_letters.end_malformed(basis, queue, rows, holding, outcome.error)
        else:
            events += dead_letters.end(basis, queue, rows, holding, outcome.disposition)
    done = RowSet.of_sequences(np.sort(np.concatenate([rows.sequences() for rows in not_accepted]))) if not_accepted else None
    ended = e.BatchEnded(lease.name, batch.number, BatchState.SETTLED.value, basis.now.wall, exclude, done)
    return dead_letters.as_one([*events, ended])
