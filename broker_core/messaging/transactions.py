"""Local transactions (part 4 of AMQP 1.0) with the coordinator of any broker.

The messages received in a transaction are retired with it at its end, all in one go: so a transaction is not bounded by what the
client has told so far, and a rollback has nothing to undo at the broker but the sends. After a rollback the deliveries are still
acquired by their links (4.4.3); the session then gives them back (see `Ledger.give_back`).
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING

from penstock.broker_core import errors
from penstock.broker_core.amqp import Accepted, Message
from penstock.broker_core.amqp.performatives import Coordinator, Declare, Declared, Discharge, TransactionalState
from penstock.broker_core.amqp.transactions import LOCAL_TRANSACTIONS
from penstock.broker_core.amqp_client import failures
from penstock.broker_core.messaging.ledger import taken_back
from penstock.broker_core.messaging.target_link import TargetLink

if TYPE_CHECKING:
    from penstock.broker_core.messaging.session import Session


class RolledBack(errors.PeerError):
    """Nothing of the transaction happened: what was sent in it is gone, what was received is delivered again."""


class InDoubt(errors.PeerError):
    """The connection was lost while the broker committed: all of it happened, or nothing; nobody here knows which."""


class Transaction:
    """The present transaction of one session, declared when something is first done in it. Everything under the lock."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._link: TargetLink | None = None
        self._id: bytes | None = None
        self._doom: errors.PenstockError | None = None
        self._asked = 0
        self._answers: dict[int, object] = {}

    def declared(self) -> bytes:
        """Its name at the broker, which is asked for one when something is first done. May wait."""
        if self._id is None:
            answer = self._ask(Message(value=Declare(), has_value=True), "declare a transaction")
            if not isinstance(answer, Declared):
                raise failures.from_outcome(answer, "the declaration of a transaction was")
            self._id = answer.txn_id
        return self._id

    def doom(self, error: errors.PenstockError) -> None:
        """It cannot be committed any more, because of `error`."""
        self._doom = self._doom or error

    def lost(self, error: errors.PenstockError) -> None:
        """The connection is gone, and the broker rolls back."""
        if self._id is not None or self._session.ledger.open:
            self.doom(error)
        self._link = self._id = None
        self._answers.clear()

    def commit(self) -> None:
        """Raises RolledBack or InDoubt."""
        session = self._session
        try:
            for producer in list(session.producers):  # their presumptive outcomes come before the discharge (4.4.1)
                producer.flush()
        except errors.PenstockError as error:
            self.doom(error)
        messages = list(session.ledger.open.values())
        for why in filter(None, map(taken_back, messages)):
            self.doom(why)
        if self._doom is not None:
            doom = self._doom
            self.rollback()
            raise RolledBack(f"the transaction was rolled back: {doom}") from doom
        if self._id is None and not messages:
            return
        try:
            name = self.declared()
            for wanted, group in groupby(messages, key=lambda message: message.wanted):
                state = TransactionalState(txn_id=name, outcome=wanted)
                session.dispose([message.delivery for message in group], state, settled=False)
        except errors.PenstockError as error:
            self.rollback()
            raise RolledBack(f"the transaction was rolled back: {error}") from error
        self._discharge(name)
        for wanted, group in groupby(messages, key=lambda message: message.wanted):
            session.dispose([message.delivery for message in group], wanted)
        session.ledger.settled(messages)

    def _discharge(self, name: bytes) -> None:
        self._id = None
        try:
            answer = self._ask(Message(value=Discharge(txn_id=name, fail=False), has_value=True), "commit")
        except errors.PenstockError as error:
            wire = self._session.wire
            if wire is None or wire.over or self._link is None or self._link.usable:
                if wire is not None:
                    wire.give_up(error)  # what it has settled is not known: both sides begin anew
                raise InDoubt(f"nobody knows whether the transaction was committed: {error}") from error
            reason = error  # a coordinator that ends the link says that it could not, too (4.4.3)
        else:
            if isinstance(answer, Accepted):
                return
            reason = failures.from_outcome(answer, "the commit was")
        self.rollback()
        raise RolledBack(f"the transaction was rolled back: {reason}") from reason

    def rollback(self, *, go_on: bool = True) -> None:
        """What was sent is gone, what was received goes back in its order, its delivery counted."""
        name, self._id = self._id, None
        if name is not None and self._link is not None and self._link.usable:
            with suppress(errors.PenstockError):  # without its answer the connection is gone, and the transaction with it
                self._ask(Message(value=Discharge(txn_id=name, fail=True), has_value=True), "roll back")
        for producer in self._session.producers:
            producer.roll_back(RolledBack("the transaction was rolled back"))
        self._session.ledger.give_back(go_on=go_on)
        self._doom = None

    # --- the control link

    def _ask(self, request: Message, what: str) -> object:
        wire, machine = self._session.present()
        if self._link is None or not self._link.usable:
            target = Coordinator(capabilities=(LOCAL_TRANSACTIONS,))
            self._link = TargetLink(wire, machine, "the coordinator", self._answered, self._gone, target)
        link = self._link
        wire.until(lambda: link.ready or not link.usable, f"its coordinator gives no credit to {what}")
        link.check()
        place, self._asked = self._asked, self._asked + 1
        link.put(place, request.encode())
        wire.until(lambda: place in self._answers or not link.usable, f"it does not {what}")
        if place not in self._answers:
            link.check()
        return self._answers.pop(place)

    def _answered(self, place: int, state: object) -> None:
        self._answers[place] = state

    def _gone(self, error: errors.PenstockError) -> None:
        """The control link has ended, and the broker rolls back what was declared on it (4.4)."""
        if self._id is not None:
            self.doom(error)
        self._id = None
