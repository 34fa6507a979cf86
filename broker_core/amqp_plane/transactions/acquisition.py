"""Messages that a link acquires in a transaction (4.4.3, 4.4.4), which the receiver's flow names.

Their outcomes must name it. After a commit, a message without an outcome belongs to the link like any delivery. A rollback
returns the messages as after a failed attempt, and their deliveries end. If the link or its control link is lost, only the
messages that the receiver had begun with count as failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from ...amqp import Condition, Modified, Released, TransactionalState
from ...amqp.deliveries import Delivery
from ...amqp.performatives import Error
from ...engine import commands as c
from ...engine.columns.states import Cause
from ...engine.model.dispositions import ROLLED_BACK
from ...service.turn import Turn
from .. import queue_reads
from ..links.dispositions import ACCEPTED, rows_of, rows_of_tags
from .registry import OpenTransaction

if TYPE_CHECKING:
    from ..links.consumer import ConsumerLink


class Acquisition:
    """Transactions of one link."""

    __slots__ = ("_link", "_untouched", "aborts", "deliveries", "transaction")

    def __init__(self, link: ConsumerLink) -> None:
        self._link = link
        self.transaction: OpenTransaction | None = None  # in which the link acquires
        self.deliveries: dict[Delivery, OpenTransaction] = {}
        self.aborts: OpenTransaction | None = None  # of a half-sent delivery, which is aborted when the window opens
        self._untouched: set[Delivery] = set()  # that go back although the receiver had not begun with them

    @property
    def state(self) -> TransactionalState | None:
        return None if self.transaction is None else TransactionalState(txn_id=self.transaction.id)

    def begin(self, transaction: OpenTransaction | None) -> None:
        """Acquire in this transaction from now on. Messages that have not left are acquired again."""
        self._link.link.txn_id = None if transaction is None else transaction.id
        if transaction is not self.transaction:
            self.transaction = transaction
            if transaction is not None:
                transaction.takers[self._link] = None
            self._link.return_unsent()

    def sent(self, deliveries: Iterable[Delivery]) -> None:
        if self.transaction is not None:
            state = self.state
            for delivery in deliveries:
                delivery.state = state
                self.deliveries[delivery] = self.transaction

    def sent_settled(self, tags: list[bytes]) -> None:
        """Note messages that were sent settled: a commit accepts them."""
        link, transaction, rows = self._link, self.transaction, rows_of_tags(tags)
        assert transaction is not None

        def retire(turn: Turn) -> None:
            if transaction.over:
                link.execute(turn, c.command_of(ROLLED_BACK, link.queue, link.holder, rows))
                return
            retirement = c.Retire(transaction.number, link.queue, link.holder, rows, ACCEPTED, settled=True)
            if (error := turn.carry_out(retirement).error) is not None:
                transaction.fail(error)

        link.loop.in_commit(retire)

    def without_strays(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Leave out deliveries whose outcome came outside of their transaction; its control link ends (4.4.2, 4.4.4)."""
        strays = {d: t for d in deliveries if (t := self.deliveries.get(d)) is not None and not t.discharging}
        text = "an outcome outside of the transaction in which its delivery was acquired"
        for transaction in strays.values():
            self._link.peer.detach(transaction.control, Error(condition=Condition.TRANSACTION_ROLLBACK, description=text))
        return [delivery for delivery in deliveries if delivery not in strays]

    # --- the end: of a transaction, or of the link

    def roll_back(self, turn: Turn, transaction: OpenTransaction) -> None:
        self._return(turn, self._deliveries_of(transaction), Cause.ROLLBACK)

    def abandon(self, turn: Turn, transaction: OpenTransaction, cause: Cause) -> None:
        self._abandon(turn, self._deliveries_of(transaction), cause)

    def end(self, turn: Turn) -> None:
        """Return messages of open transactions without an outcome."""
        left = [d for d, transaction in self.deliveries.items() if not transaction.over and _is_open(d)]
        self._abandon(turn, left, self._link.end_cause)

    def _deliveries_of(self, transaction: OpenTransaction) -> list[Delivery]:
        return [delivery for delivery, acquired_in in self.deliveries.items() if acquired_in is transaction]

    def _abandon(self, turn: Turn, deliveries: list[Delivery], cause: Cause) -> None:
        if cause is not Cause.LINK_LOST:
            self._return(turn, deliveries, cause)
            return
        begun = self._link.progress.begun(self._link.link)
        untouched = {d for d in deliveries if _is_open(d)}.difference(begun)
        self._untouched |= untouched
        self._return(turn, [d for d in deliveries if d not in untouched], Cause.ROLLBACK)
        self._return(turn, [d for d in deliveries if d in untouched], Cause.PREFETCHED)

    def _return(self, turn: Turn, deliveries: list[Delivery], cause: Cause) -> None:
        link = self._link
        if deliveries and not link.ended:
            rows = queue_reads.held(turn, link.queue, link.holder, rows_of(deliveries))
            if rows:
                link.execute(turn, c.Release(link.queue, link.holder, rows, cause))

    def over(self, transaction: OpenTransaction, *, committed: bool) -> None:
        """End the deliveries of a transaction, or after a commit let them continue as others do."""
        link, mine = self._link, self._deliveries_of(transaction)
        for delivery in mine:
            del self.deliveries[delivery]
        if committed:
            for delivery in filter(_is_open, mine):
                delivery.state = None
            return
        waiting = [delivery for delivery in mine if not delivery.settled and not delivery.remote_settled]
        untouched, self._untouched = self._untouched, set()
        for delivery in waiting:
            delivery.state = Released() if delivery in untouched else Modified(delivery_failed=True)
        link.session.lost.add(delivery.id for delivery in waiting)
        if waiting and link.may_tell:
            if link.link.incomplete in waiting and link.link.abort_rest():
                self.aborts = transaction
            unsettled = [delivery for delivery in waiting if not delivery.settled]
            for state, several in groupby(unsettled, lambda delivery: delivery.state):
                link.session.dispose(list(several), state)
            link.peer.send_soon()
        if mine and not link.ended:
            link.gained_capacity()

    def ends_later(self, transaction: OpenTransaction) -> bool:
        """Return True if the end of an aborted delivery of this transaction has not left.

        A session has at most one, since it sends nothing behind it.
        """
        return self.aborts is transaction and self._link.session.blocked and self._link.may_tell


def _is_open(delivery: Delivery) -> bool:
    return isinstance(delivery.state, TransactionalState) and delivery.state.outcome is None
