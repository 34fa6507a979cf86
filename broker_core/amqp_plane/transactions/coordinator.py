"""The control link of transactions (4.1 to 4.3).

A discharge is carried out after all earlier requests. It is answered when all deliveries of the transaction have outcomes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ... import errors
from ...amqp import Condition, DecodeError, FieldError, Receiver, TransactionalState
from ...amqp.deliveries import Delivery
from ...amqp.performatives import Coordinator, Declare, Declared, Discharge, Error, Source
from ...amqp.transactions import LOCAL_TRANSACTIONS, MULTI_SSNS_PER_TXN, MULTI_TXNS_PER_SSN, request_of
from ...engine import commands as c
from ...engine.columns.states import Cause
from ...service.turn import Turn
from ..conditions import Refusal, as_error
from ..connections.peer import Peer
from ..links.consumer import ConsumerLink
from ..links.incoming_link import IncomingLink, can_reject
from ..links.termini import TargetTerminus
from .outcomes import discharged
from .registry import ConnectionTransactions, OpenTransaction

# The coordinator's capabilities, independent of the desired ones (4.5.1).
ANSWERED = Coordinator(capabilities=(LOCAL_TRANSACTIONS, MULTI_TXNS_PER_SSN, MULTI_SSNS_PER_TXN))


class Control(IncomingLink):
    """One control link. Its messages are requests."""

    keeps = False

    def __init__(
        self, peer: Peer, transactions: ConnectionTransactions, link: Receiver, terminus: TargetTerminus, source: Source
    ) -> None:
        super().__init__(peer, transactions, link, terminus)
        self._can_reject = can_reject(source)

    def __repr__(self) -> str:
        return f"control link {self.link.name!r} of {self.peer}"

    def delivered(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self._unconfirmed += 1
            if delivery.remote_settled:
                self._violated("a declare or discharge must not be settled by its sender")
                return
            if isinstance(delivery.remote_state, TransactionalState):
                self._violated("no transactional work is allowed on the control link")
                return
            try:
                self._request(delivery)
            except (Refusal, DecodeError, FieldError) as error:
                self._reject(delivery, error)

    def _violated(self, text: str) -> None:
        self.peer.detach(self, Error(condition=Condition.NOT_ALLOWED, description=text))

    def _request(self, delivery: Delivery) -> None:
        body, loop = request_of(delivery.payload), self.loop
        delivery.payload = b""
        if isinstance(body, Declare):
            if body.global_id is not None:
                raise Refusal(Condition.NOT_IMPLEMENTED, "there are no distributed transactions here: leave the global-id out")
            loop.in_commit(lambda turn: self._declare(turn, delivery))
            return
        assert isinstance(body, Discharge)
        transaction, fail = self.transactions.find(body.txn_id), bool(body.fail)
        if any(_is_partly(link, transaction) for link in self.peer.links):
            text = "a delivery of this transaction is not complete"
            self.peer.detach(transaction.control, Error(condition=Condition.TRANSACTION_ROLLBACK, description=text))
            return
        transaction.discharging = True
        for link in transaction.takers:
            if link.acquisition.transaction is transaction:
                link.acquisition.begin(None)
        loop.in_commit(lambda turn: self._discharge(turn, delivery, transaction, fail))

    # --- in the commit

    def _declare(self, turn: Turn, delivery: Delivery) -> None:
        if self.ended:
            return
        try:
            self.peer.check_declare(len(self.transactions))
            number, _ = turn.execute(c.BeginTransaction(self.transactions.owner, self.peer.user))
        except errors.StorageError:
            raise
        except (Refusal, errors.PenstockError) as refusal:
            self.loop.behind_all(turn, partial(self._reject, delivery, refusal))
            return
        transaction = OpenTransaction(number, self)
        self.transactions.add(transaction)
        self.loop.when_durable(0, partial(self._tell_declared, delivery, transaction))

    def _discharge(self, turn: Turn, delivery: Delivery, transaction: OpenTransaction, fail: bool) -> None:
        if transaction.over:
            return  # its control link has ended
        transaction.over = True
        transaction.check()
        if transaction.failed is not None:
            turn.execute(c.FailTransaction(transaction.number, str(transaction.failed)))
        why, _ = turn.execute(c.DischargeTransaction(transaction.number, fail))
        if fail or why is not None:
            for link in transaction.takers:
                link.acquisition.roll_back(turn, transaction)

        def answer() -> None:
            self._over(transaction, committed=not fail and why is None)
            self._tell_discharged(delivery, why, transaction, transaction.takers)

        self.loop.behind_all(turn, answer)

    def end(self, turn: Turn) -> None:
        """Roll back the transactions of this link (4.1)."""
        super().end(turn)
        for transaction in self.transactions.of(self):
            if not transaction.over:
                transaction.over = transaction.discharging = True
                cause = Cause.ROLLBACK if self.end_cause is Cause.LINK_LOST else self.end_cause
                turn.execute(c.DischargeTransaction(transaction.number, fail=True, cause=cause))
                for link in transaction.takers:
                    link.acquisition.abandon(turn, transaction, self.end_cause)
                self._over(transaction, committed=False)

    # --- effects

    def _tell_declared(self, delivery: Delivery, transaction: OpenTransaction) -> None:
        self._unconfirmed -= 1
        self._dispose([delivery], Declared(txn_id=transaction.id))
        self._renew_batch()

    def _tell_discharged(
        self, delivery: Delivery, why: errors.PenstockError | None, transaction: OpenTransaction, takers: Iterable[ConsumerLink]
    ) -> None:
        """Answer a discharge when the half-sent deliveries of the transaction have ended (4.4.3)."""
        left = [link for link in takers if link.acquisition.ends_later(transaction)]
        if left:
            self.peer.when_unblocked(left[0].session, lambda: self._tell_discharged(delivery, why, transaction, left))
        elif why is None:
            self.confirmed([delivery])
        else:
            self.peer.log(f"{self}: {why}")
            self._reject(delivery, why)

    def _over(self, transaction: OpenTransaction, *, committed: bool) -> None:
        self.transactions.forget(transaction)
        for link, deliveries in transaction.waiting.items():
            discharged(link, transaction.id, deliveries, committed=committed)
        for link in transaction.takers:
            link.acquisition.over(transaction, committed=committed)
        for link, delivery, state, settled in transaction.later:
            # It is the first outcome of a delivery that was acquired in the transaction and has no outcome there.
            if not link.current.ended and (not committed or delivery.state is None):
                link.current.disposed([delivery], state, settled)

    def _reject(self, delivery: Delivery, error: Exception) -> None:
        """Reject a request; if the link's source does not know *rejected*, end the link (4.2, 4.3)."""
        if self._can_reject:
            self.refused([delivery], error)
        else:
            self._unconfirmed -= 1
            self.peer.detach(self, as_error(error))


def _is_partly(link: object, transaction: OpenTransaction) -> bool:
    unfinished = getattr(link, "unfinished", None)  # a sending link of ours lacks it
    state = None if unfinished is None else unfinished.remote_state
    return isinstance(state, TransactionalState) and state.txn_id == transaction.id
