"""Local transactions (part 4 of AMQP 1.0) with the coordinator of any broker.

All messages received in a transaction are retired at its end, so a rollback at the broker undoes only the sends. The links then
still hold the deliveries (4.4.3), and `Ledger.requeue_everything` returns them.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

from ... import errors
from ...amqp import Accepted, Message
from ...amqp.performatives import Coordinator, Declare, Declared, Discharge, TransactionalState
from ...amqp.transactions import LOCAL_TRANSACTIONS
from ..amqp import failures
from .ledger import revoked
from .target_link import TargetLink

if TYPE_CHECKING:
    from .session import Session


class RolledBack(errors.PeerError):
    """A transaction that was rolled back. Its sends are discarded; its received messages come again."""


class InDoubt(errors.PeerError):
    """A connection lost during the commit: everything was committed, or nothing."""


class Transaction:
    """Current transaction of one session, declared at its first use. The caller holds the lock."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._link: TargetLink | None = None
        self.id: bytes | None = None
        self._rollback_cause: errors.PenstockError | None = None
        self._requests = 0
        self._answers: dict[int, object] = {}

    def declared(self) -> bytes:
        if self.id is None:
            answer = self._request(Message(value=Declare(), has_value=True), "declare a transaction")
            if not isinstance(answer, Declared):
                raise failures.from_outcome(answer, "the declaration of a transaction was")
            self.id = answer.txn_id
        return self.id

    def mark_rollback_only(self, error: errors.PenstockError) -> None:
        self._rollback_cause = self._rollback_cause or error

    def lost(self, error: errors.PenstockError) -> None:
        if self.id is not None or self._session.ledger.unsettled:
            self.mark_rollback_only(error)
        self._link = self.id = None
        self._answers.clear()

    def commit(self) -> None:
        session = self._session
        try:
            for producer in list(session.producers):  # provisional outcomes come before the discharge (4.4.1)
                producer.flush()
        except errors.PenstockError as error:
            self.mark_rollback_only(error)
        messages = list(session.ledger.unsettled.values())
        for revocation in filter(None, map(revoked, messages)):
            self.mark_rollback_only(revocation)
        if self._rollback_cause is not None:
            cause = self._rollback_cause
            self.rollback()
            raise RolledBack(f"the transaction was rolled back: {cause}") from cause
        if self.id is None and not messages:
            return
        try:
            transaction_id = self.declared()
            for outcome, group in groupby(messages, key=lambda message: message.commit_outcome):
                state = TransactionalState(txn_id=transaction_id, outcome=outcome)
                session.dispose([message.delivery for message in group], state, settled=False)
        except errors.PenstockError as error:
            self.rollback()
            raise RolledBack(f"the transaction was rolled back: {error}") from error
        self._discharge(transaction_id)
        for outcome, group in groupby(messages, key=lambda message: message.commit_outcome):
            session.dispose([message.delivery for message in group], outcome)
        session.ledger.settled(messages)

    def _discharge(self, transaction_id: bytes) -> None:
        self.id = None
        try:
            answer = self._request(Message(value=Discharge(txn_id=transaction_id, fail=False), has_value=True), "commit")
        except errors.PenstockError as error:
            server = self._session.server
            if server is None or server.failed or self._link is None or self._link.usable:
                if server is not None:
                    server.abandon(error)  # the broker's state is unknown: both sides begin again
                self._session.ledger.lost()
                self._rollback_cause = None  # the loss belongs to this transaction alone
                raise InDoubt(f"it is unknown whether the transaction was committed: {error}") from error
            reason = error  # A coordinator may also refuse by ending the link (4.4.3)
        else:
            if isinstance(answer, Accepted):
                return
            reason = failures.from_outcome(answer, "the commit was")
        self.rollback()
        raise RolledBack(f"the transaction was rolled back: {reason}") from reason

    def rollback(self, *, resume: bool = True) -> None:
        transaction_id, self.id = self.id, None
        if transaction_id is not None and self._link is not None and self._link.usable:
            with suppress(errors.PenstockError):  # the connection has ended, and with it the transaction
                self._request(Message(value=Discharge(txn_id=transaction_id, fail=True), has_value=True), "roll back")
        for producer in self._session.producers:
            producer.roll_back(RolledBack("the transaction was rolled back"))
        self._session.ledger.requeue_everything(resume=resume)
        self._rollback_cause = None

    def _request(self, request: Message, purpose: str) -> object:
        server, machine = self._session.current()
        if self._link is None or not self._link.usable:
            target = Coordinator(capabilities=(LOCAL_TRANSACTIONS,))
            self._link = TargetLink(server, machine, "the coordinator", self._answered, self._link_failed, target)
        link = self._link
        server.wait_until(lambda: link.ready or not link.usable, f"its coordinator gives no credit to {purpose}")
        link.check()
        sequence, self._requests = self._requests, self._requests + 1
        link.put(sequence, request.encode())
        server.wait_until(lambda: sequence in self._answers or not link.usable, f"it does not {purpose}")
        if sequence not in self._answers:
            link.check()
        return self._answers.pop(sequence)

    def _answered(self, sequence: int, state: object) -> None:
        self._answers[sequence] = state

    def _link_failed(self, error: errors.PenstockError) -> None:
        """The broker rolls back the transaction that was declared on the link (4.4)."""
        if self.id is not None:
            self.mark_rollback_only(error)
        self.id = None
