"""Transactions as a connection has them: by the ids that its links name (part 4).

What belongs to one is handed to the pass like everything else: messages by `posting`, outcomes by `retiring`. If something of it
cannot be done nothing of it may be, and its discharge says so.

A commit counts. What the peer names in a transaction is counted as its frames come in (`events.Named`), before anything can
refuse or drop them; what is done of it, where it is done. Where the two numbers differ a commit is a rollback: so whatever was
refused, ignored, dropped or cut off on the way fails its transaction, whatever refused it.
"""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING

from ...amqp import Condition, TransactionalState
from ...errors import TransactionRolledBack
from ..links.conditions import Refusal

if TYPE_CHECKING:
    from ...amqp.deliveries import Delivery
    from ...amqp.events import Named
    from ...amqp.performatives import DeliveryState, Outcome
    from ...amqp.transactions import Coordinated
    from ..links.consuming import Consuming
    from .coordinator import Control

RANDOM_OCTETS = 8  # of an id, in hexadecimal behind the engine's number

_owners = itertools.count(1)


class Open:
    """A transaction from its declare until its discharge is answered.

    `asked`: messages and outcomes that named it; `done`: those of them that are done; `discharging`: nothing more belongs to
    it; `over`: the engine knows it no longer; `failed`: why it can only be rolled back; `waiting`: deliveries whose receivers
    wait to hear how it ends; `later`: outcomes of its deliveries that came behind the discharge; `takers`: links that
    acquire in it.
    """

    __slots__ = ("asked", "control", "discharging", "done", "failed", "id", "later", "number", "over", "takers", "waiting")

    def __init__(self, number: int, control: Control) -> None:
        self.number = number
        # Numbers begin anew in each process: a client that has lost one names no transaction of the next.
        self.id = f"{number}-{secrets.token_hex(RANDOM_OCTETS)}".encode()
        self.control = control
        self.asked = self.done = 0
        self.discharging = self.over = False
        self.failed: Exception | None = None
        self.takers: dict[Consuming, None] = {}
        self.waiting: dict[Consuming, dict[Delivery, None]] = {}
        self.later: list[tuple[Consuming, Delivery, DeliveryState | None, bool]] = []

    def fail(self, error: Exception) -> None:
        """Note why the transaction can only be rolled back; the first reason stays."""
        if self.failed is None:
            self.failed = error

    def check(self) -> None:
        """Fail the transaction, before its commit, unless all of it has been done."""
        if self.done != self.asked:
            self.fail(
                TransactionRolledBack(
                    f"{self.done} of the {self.asked} messages and outcomes that named it could be done;"
                    " the others were refused, or came when their link, delivery or lock had ended"
                )
            )


class Transactions:
    """The transactions of one connection."""

    __slots__ = ("_coordinated", "_open", "owner")

    def __init__(self, coordinated: Coordinated) -> None:
        self.owner = next(_owners)
        self._coordinated = coordinated
        self._open: dict[bytes, Open] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, transaction: Open) -> None:
        """Take in a transaction that was declared."""
        self._open[transaction.id] = transaction
        self._coordinated.open(transaction.id)

    def named(self, event: Named) -> None:
        """Count what names a transaction. What is behind its discharge is not of it."""
        transaction = self._open.get(event.txn_id)
        if transaction is not None and not transaction.discharging:
            transaction.asked += event.count

    def forget(self, transaction: Open) -> None:
        """Take out a transaction that is discharged; its id is unknown from here on."""
        self._open.pop(transaction.id, None)
        self._coordinated.close(transaction.id)

    def get(self, state: object) -> Open | None:
        """Find the transaction that a delivery's state names; None if it names none, or one that is not there any more."""
        return self._open.get(state.txn_id) if isinstance(state, TransactionalState) else None

    def find(self, txn_id: bytes) -> Open:
        """Find a transaction that takes work, or its discharge. Raises Refusal."""
        found = self._open.get(txn_id)
        if found is None or found.discharging:
            raise Refusal(
                Condition.TRANSACTION_UNKNOWN_ID,
                f"this connection has no transaction {txn_id.hex()}: it was never declared, or is discharged",
            )
        return found


def provisional(delivery: Delivery, outcome: Outcome, known: Transactions) -> Outcome | TransactionalState:
    """Form an outcome as the sender of a delivery is told it: that of a transaction's message holds if the transaction
    commits."""
    transaction = known.get(delivery.remote_state)
    return outcome if transaction is None else TransactionalState(txn_id=transaction.id, outcome=outcome)
