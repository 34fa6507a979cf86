"""Decisions about transactions (part 4 of AMQP 1.0).

A commit publishes the stage of posted messages, and ends the retired messages, in one event. The ends of deliveries come first:
each counts the messages that earlier ones bring to queues with limits. The messages of the publish already count as staged.
"""

from __future__ import annotations

from typing import Any

from ... import errors
from .. import commands as c
from .. import events as e
from ..columns.limits import (
    MAX_OWN_TRANSACTIONS,
    MAX_TRANSACTION_BYTES,
    MAX_TRANSACTION_MESSAGES,
    MAX_TRANSACTIONS,
    MAX_USER_TRANSACTIONS,
    SECOND,
    TRANSACTION_AGE,
)
from ..columns.rowset import RowSet
from ..columns.states import Cause
from ..model.dispositions import ROLLED_BACK, DeliveryEnd
from ..model.state import BrokerState
from ..model.transaction import ProvisionalOutcome, Transaction, stage_of
from .dead_letters import as_one
from .decision import Basis, Decision, decides, need_queue
from .links import end_delivery
from .stages import publish_stages, stage

Parts = list[tuple[e.Event, Any]]


def need_transaction(state: BrokerState, number: int) -> Transaction:
    transaction = state.transactions.open.get(number)
    if transaction is None:
        raise errors.UnknownTransaction(f"there is no transaction {number}: it was never declared, or is discharged")
    return transaction


def _need_working(state: BrokerState, number: int) -> Transaction:
    transaction = need_transaction(state, number)
    if transaction.failed is not None:
        raise transaction.failed
    return transaction


@decides(c.BeginTransaction)
def begin_transaction(state: BrokerState, command: c.BeginTransaction, now: c.Now) -> Decision[int]:
    if state.transactions.by_owner[command.owner] >= MAX_OWN_TRANSACTIONS:
        raise errors.ResourceLimit(f"one connection has at most {MAX_OWN_TRANSACTIONS} transactions open: discharge some")
    if state.transactions.by_user[command.user] >= MAX_USER_TRANSACTIONS:
        raise errors.ResourceLimit(f"one user has at most {MAX_USER_TRANSACTIONS} transactions open: discharge some")
    if len(state.transactions.open) >= MAX_TRANSACTIONS:
        raise errors.ResourceLimit(f"{MAX_TRANSACTIONS} transactions are open, which is the broker's limit: discharge some")
    number = state.transactions.next
    return Decision([(e.TransactionBegun(number, command.owner, command.user), None)], number, waits=False)


@decides(c.Post)
def post(state: BrokerState, command: c.Post, now: c.Now) -> Decision[None]:
    transaction = _need_working(state, command.transaction)
    sizes = command.sizes
    size = sizes * command.count if isinstance(sizes, int) else int(sizes.sum(dtype="int64"))
    _check_capacity(transaction, command.count, size)
    staged = c.StageMessages(
        stage_of(transaction.number), command.queue, command.count, sizes, command.payload, command.attributes
    )
    decision = stage(state, staged, now)
    decision.add(e.Posted(transaction.number, command.count, size, now.up))
    return decision


def _check_capacity(transaction: Transaction, messages: int, size: int) -> None:
    if transaction.messages + messages > MAX_TRANSACTION_MESSAGES:
        raise errors.ResourceLimit(
            f"a transaction has at most {MAX_TRANSACTION_MESSAGES} messages, sent and settled: commit earlier"
        )
    if transaction.bytes + size > MAX_TRANSACTION_BYTES:
        raise errors.ResourceLimit(f"a transaction sends at most {MAX_TRANSACTION_BYTES >> 20} MiB: commit earlier")


@decides(c.Retire)
def retire(state: BrokerState, command: c.Retire, now: c.Now) -> Decision[None]:
    transaction, rows = _need_working(state, command.transaction), command.rows
    if not rows:
        return Decision([], None, waits=False)
    _check_capacity(transaction, rows.count, 0)
    end_delivery(Basis(state, now), command.queue, command.holder, rows, command.disposition)  # a check: raises
    for number, _ in state.transactions.having(command.holder, rows, beside=transaction.number):
        raise errors.TransactionRolledBack(
            f"transaction {number} has settled a message of {command.queue!r} that transaction {transaction.number} settles now: "
            "nothing was changed"
        )
    outcome = ProvisionalOutcome(command.disposition, command.default, command.settled)
    event = e.Retired(transaction.number, command.queue, command.holder, rows, outcome, now.up)
    return Decision([(event, None)], None, waits=False)


@decides(c.FailTransaction)
def fail_transaction(state: BrokerState, command: c.FailTransaction, now: c.Now) -> Decision[None]:
    transaction = need_transaction(state, command.transaction)
    if transaction.failed is not None:
        return Decision([], None, waits=False)
    why = errors.TransactionRolledBack(f"something of this transaction could not be done: {command.why}")
    return Decision([(e.TransactionFailed(transaction.number, why, undone=False), None)], None, waits=False)


@decides(c.DischargeTransaction)
def discharge(state: BrokerState, command: c.DischargeTransaction, now: c.Now) -> Decision[errors.PenstockError | None]:
    transaction = need_transaction(state, command.transaction)
    ended, why = e.TransactionEnded(transaction.number), transaction.failed
    if not command.fail and why is None:
        try:
            return Decision([(ended, None), *_together(_commit(Basis(state, now), transaction))], None)
        except errors.PenstockError as error:
            why = errors.TransactionRolledBack(f"nothing of this transaction was done: {error}")
    undone = _together(_roll_back(Basis(state, now), transaction, command.cause))
    return Decision([(ended, None), *undone], None if command.fail else why)


def _commit(basis: Basis, transaction: Transaction) -> Parts:
    state, parts = basis.state, Parts()
    for holder, outcomes in transaction.outcomes.items():
        queue = need_queue(state, outcomes.queue)
        for outcome, rows in outcomes:
            disposition = outcome.disposition
            if queue.consumers.link(holder) is None:
                disposition = disposition._replace(exclude=False)  # the link has ended
            parts += end_delivery(basis, outcomes.queue, holder, rows, disposition)
    name = stage_of(transaction.number)
    if name in state.stages:
        parts += publish_stages(state, c.Publish([name]), basis.now).events
    return parts


def _roll_back(basis: Basis, transaction: Transaction, cause: Cause = Cause.ROLLBACK) -> Parts:
    """Drop the posted messages, and forget the outcomes. Messages that no link can settle end by their default, or return for the
    cause of a rollback by the broker."""
    parts: Parts = []
    if (name := stage_of(transaction.number)) in basis.state.stages:
        parts.append((e.Discarded([name]), None))
    for holder, outcomes in transaction.outcomes.items():
        queue = basis.state.queues.get(outcomes.queue)
        if queue is None:
            continue
        for outcome, rows in outcomes:
            if outcome.settled or queue.consumers.link(holder) is None:
                default = outcome.default if cause is Cause.ROLLBACK else DeliveryEnd(cause=cause)
                parts += _end_by_default(basis, outcomes.queue, holder, rows, default)
    return parts


def _end_by_default(basis: Basis, queue: str, holder: int, rows: RowSet, default: DeliveryEnd) -> Parts:
    for disposition in (default._replace(exclude=False), ROLLED_BACK):
        try:
            return end_delivery(basis, queue, holder, rows, disposition)
        except errors.ResourceLimit:
            continue  # too many annotations: return the messages without them
        except errors.PenstockError:
            break  # the link no longer holds them: they have ended otherwise
    return []


def _together(parts: Parts) -> Parts:
    """Join the journaled events. The others follow."""
    journaled = [event for event, _ in parts if event.journaled]
    rest = [(event, payload) for event, payload in parts if not event.journaled]
    return [(as_one(journaled), None), *rest] if journaled else rest


@decides(c.TimeOutTransactions)
def time_out_transactions(state: BrokerState, command: c.TimeOutTransactions, now: c.Now) -> Decision[None]:
    basis, parts = Basis(state, now), Parts()
    for transaction in state.transactions.open.values():
        if transaction.began is None or now.up - transaction.began <= TRANSACTION_AGE:
            continue
        why = errors.TransactionTimedOut(
            f"this transaction was rolled back: its work took longer than {TRANSACTION_AGE // SECOND} s, which is the limit"
        )
        undone = _together(_roll_back(basis, transaction))
        parts += [(e.TransactionFailed(transaction.number, why, undone=True), None), *undone]
    return Decision(parts, None, waits=bool(parts))
