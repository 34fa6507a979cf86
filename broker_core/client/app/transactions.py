"""Local transactions (part 4 of AMQP 1.0) with the coordinator of any broker.

All messages received in a transaction are retired together at its end. So the acknowledgements that were sent so far do not bound
a transaction, and a rollback undoes nothing at the broker but the sends. After a rollback the links still hold the deliveries
(4.4.3); the session then returns them (see `Ledger.requeue_everything`).
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
    """A transaction that was rolled back: its sends are discarded, its received messages are delivered again."""


class InDoubt(errors.PeerError):
    """A connection lost during the commit: all of the transaction happened, or nothing; the client cannot know which."""


class Transaction:
    """Current transaction of one session, declared at its first use. The caller holds the lock."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._link: TargetLink | None = None
        #: The broker's id of it; None while it is not declared.
        self.id: bytes | None = None
        self._rollback_cause: errors.PenstockError | None = None
        self._requests = 0
        self._answers: dict[int, object] = {}

    def declared(self) -> bytes:
        """Return the transaction's id; declare it at the broker at its first use. May wait."""
        if self.id is None:
            answer = self._request(Message(value=Declare(), has_value=True), "declare a transaction")
            if not isinstance(answer, Declared):
                raise failures.from_outcome(answer, "the declaration of a transaction was")
            self.id = answer.txn_id
        return self.id

    def mark_rollback_only(self, error: errors.PenstockError) -> None:
        """Forbid the commit, because of `error`."""
        self._rollback_cause = self._rollback_cause or error

    def lost(self, error: errors.PenstockError) -> None:
        """Reset after the loss of the connection: the broker rolls back."""
        if self.id is not None or self._session.ledger.unsettled:
            self.mark_rollback_only(error)
        self._link = self.id = None
        self._answers.clear()

    def commit(self) -> None:
        """Discharge the transaction. Raises RolledBack or InDoubt."""
        session = self._session
        try:
            for producer in list(session.producers):  # their presumptive outcomes come before the discharge (4.4.1)
                producer.flush()
        except errors.PenstockError as error:
            self.mark_rollback_only(error)
        messages = list(session.ledger.unsettled.values())
        for why in filter(None, map(revoked, messages)):
            self.mark_rollback_only(why)
        if self._rollback_cause is not None:
            cause = self._rollback_cause
            self.rollback()
            raise RolledBack(f"the transaction was rolled back: {cause}") from cause
        if self.id is None and not messages:
            return
        try:
            name = self.declared()
            for wanted, group in groupby(messages, key=lambda message: message.commit_outcome):
                state = TransactionalState(txn_id=name, outcome=wanted)
                session.dispose([message.delivery for message in group], state, settled=False)
        except errors.PenstockError as error:
            self.rollback()
            raise RolledBack(f"the transaction was rolled back: {error}") from error
        self._discharge(name)
        for wanted, group in groupby(messages, key=lambda message: message.commit_outcome):
            session.dispose([message.delivery for message in group], wanted)
        session.ledger.settled(messages)

    def _discharge(self, name: bytes) -> None:
        self.id = None
        try:
            answer = self._request(Message(value=Discharge(txn_id=name, fail=False), has_value=True), "commit")
        except errors.PenstockError as error:
            wire = self._session.wire
            if wire is None or wire.failed or self._link is None or self._link.usable:
                if wire is not None:
                    wire.abandon(error)  # the broker's state is unknown: both sides begin anew
                self._session.ledger.lost()
                self._rollback_cause = None  # the loss is this transaction's, not the next one's
                raise InDoubt(f"it is unknown whether the transaction was committed: {error}") from error
            reason = error  # a coordinator may also refuse by ending the link (4.4.3)
        else:
            if isinstance(answer, Accepted):
                return
            reason = failures.from_outcome(answer, "the commit was")
        self.rollback()
        raise RolledBack(f"the transaction was rolled back: {reason}") from reason

    def rollback(self, *, resume: bool = True) -> None:
        """Discard the sends; return the received messages in their order, with their delivery counted."""
        name, self.id = self.id, None
        if name is not None and self._link is not None and self._link.usable:
            with suppress(errors.PenstockError):  # no answer: the connection is gone, and the transaction with it
                self._request(Message(value=Discharge(txn_id=name, fail=True), has_value=True), "roll back")
        for producer in self._session.producers:
            producer.roll_back(RolledBack("the transaction was rolled back"))
        self._session.ledger.requeue_everything(resume=resume)
        self._rollback_cause = None

    # --- the control link

    def _request(self, request: Message, what: str) -> object:
        wire, machine = self._session.current()
        if self._link is None or not self._link.usable:
            target = Coordinator(capabilities=(LOCAL_TRANSACTIONS,))
            self._link = TargetLink(wire, machine, "the coordinator", self._answered, self._gone, target)
        link = self._link
        wire.wait_until(lambda: link.ready or not link.usable, f"its coordinator gives no credit to {what}")
        link.check()
        sequence, self._requests = self._requests, self._requests + 1
        link.put(sequence, request.encode())
        wire.wait_until(lambda: sequence in self._answers or not link.usable, f"it does not {what}")
        if sequence not in self._answers:
            link.check()
        return self._answers.pop(sequence)

    def _answered(self, sequence: int, state: object) -> None:
        self._answers[sequence] = state

    def _gone(self, error: errors.PenstockError) -> None:
        """Handle the end of the control link: the broker rolls back what was declared on it (4.4)."""
        if self.id is not None:
            self.mark_rollback_only(error)
        self.id = None
