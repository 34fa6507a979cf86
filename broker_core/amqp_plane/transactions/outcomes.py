"""Outcomes in a transaction: the engine receives them as they come, and waiting receivers are answered at its end (4.4.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...amqp import Condition, TransactionalState
from ...amqp.deliveries import Delivery
from ...amqp.performatives import TERMINAL, DeliveryState, Error, in_short
from ...errors import InvalidRequest
from ..conditions import Refusal, as_error
from ..links.outgoing_link import OutgoingLink
from ..loop.requests import Retirement
from .registry import ConnectionTransactions, OpenTransaction

if TYPE_CHECKING:
    from ..links.consumer import ConsumerLink


def retire(link: ConsumerLink, deliveries: list[Delivery], state: TransactionalState, settled: bool) -> None:
    """Carry out outcomes that hold if a transaction commits."""
    peer, transactions = link.peer, link.transactions
    fresh = [d for d in deliveries if not isinstance(d.state, TERMINAL)]
    named = transactions.get(state)
    try:
        disposition = link._end_of(state.outcome, settled)
    except InvalidRequest as error:
        if named is not None:
            named.fail(error)
        link.refuse_outcomes(fresh, error, in_transaction=True)
        return
    if not fresh and (named is None or named.discharging):
        return  # the first outcome holds
    transaction = known(link, transactions, state)
    if transaction is None:
        return
    if any(transactions.get(d.state) not in (None, transaction) for d in fresh):
        text = "a delivery whose outcome is another transaction's"
        peer.detach(transaction.control, Error(condition=Condition.TRANSACTION_ROLLBACK, description=text))
        return
    if disposition is None and state.outcome is None:
        transaction.done += len(deliveries)  # they have no outcome to carry out
    if disposition is None or not fresh:
        return
    its = in_short(state)
    for delivery in fresh:
        delivery.state = its
    if not settled:
        transaction.waiting.setdefault(link, {}).update(dict.fromkeys(fresh))
    acquired = [d for d in fresh if link.acquisition.deliveries.get(d) is transaction]
    if acquired:  # a rollback undoes their acquisition, and applies no default
        fresh = [d for d in fresh if d not in link.acquisition.deliveries]
        peer.loop.settle(link, Retirement(disposition, None, transaction, settled), acquired)
    if fresh:
        peer.loop.settle(link, Retirement(disposition, link.default, transaction, settled), fresh)
    if settled:
        link.gained_capacity()


def known(link: OutgoingLink, transactions: ConnectionTransactions, state: TransactionalState) -> OpenTransaction | None:
    """Return the transaction that an outcome names, or detach the link."""
    try:
        return transactions.find(state.txn_id)
    except Refusal as error:
        link.peer.detach(link, as_error(error))
        return None


def still_open(link: ConsumerLink, deliveries: list[Delivery], state: DeliveryState | None, settled: bool) -> list[Delivery]:
    """Return the deliveries whose outcome can be carried out now.

    For the others, a discharge is under way, after which their messages may belong to others. So their outcome waits for it.
    """
    now, known = [], link.transactions
    for delivery in deliveries:
        transaction = known.get(delivery.state)
        if transaction is not None and transaction.discharging:
            transaction.later.append((link, delivery, state, settled))
        else:
            now.append(delivery)
    return now


def discharged(link: ConsumerLink, txn_id: bytes, deliveries: Iterable[Delivery], *, committed: bool) -> None:
    """Answer the outcomes of deliveries that waited for the end of a transaction."""
    link = link.current
    by_outcome: list[tuple[DeliveryState | None, list[Delivery]]] = []
    for delivery in deliveries if committed else ():
        state = delivery.state
        if delivery.settled or delivery.remote_settled or not isinstance(state, TransactionalState) or state.txn_id != txn_id:
            continue  # it has ended otherwise, or is in another transaction
        answer = link.answer_in(state)
        alike = next((several for outcome, several in by_outcome if outcome == answer), None)
        if alike is None:
            by_outcome.append((answer, [delivery]))
        else:
            alike.append(delivery)
    if by_outcome and link.may_tell:
        for outcome, several in by_outcome:
            link.link.session.dispose(several, outcome)
        link.peer.send_soon()
    if not link.ended:
        link.gained_capacity()
