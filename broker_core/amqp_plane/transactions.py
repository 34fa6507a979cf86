"""Transactions as a connection has them: by the ids that its links name (part 4).

What belongs to one is handed to the turn like everything else: messages by `posting`, outcomes by `retiring`. If something of it
cannot be done nothing of it may be, and its discharge says so.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from broker_core.amqp import Condition, TransactionalState
from broker_core.amqp_plane.conditions import Refusal

if TYPE_CHECKING:
    from broker_core.amqp.deliveries import Delivery
    from broker_core.amqp.performatives import DeliveryState, Outcome
    from broker_core.amqp_plane.coordinator import Control
    from broker_core.amqp_plane.outgoing import Outgoing

ID_OCTETS = 8  # of an id: the engine's number

_owners = itertools.count(1)


class Open:
    """A transaction from its declare until its discharge is answered.

    `discharging`: nothing more belongs to it; `over`: the engine knows it no longer; `failed`: why it can only be rolled back;
    `waiting`: deliveries whose receivers wait to hear how it ends; `later`: what was said of its deliveries behind the discharge.
    """

    __slots__ = ("control", "discharging", "failed", "id", "later", "number", "over", "waiting")

    def __init__(self, number: int, control: Control) -> None:
        self.number = number
        self.id = number.to_bytes(ID_OCTETS, "big")
        self.control = control
        self.discharging = self.over = False
        self.failed: Exception | None = None
        self.waiting: dict[Outgoing, dict[Delivery, None]] = {}
        self.later: list[tuple[Outgoing, Delivery, DeliveryState | None, bool]] = []

    def fail(self, error: Exception) -> None:
        if self.failed is None:
            self.failed = error


class Transactions:
    """Those of one connection."""

    __slots__ = ("_open", "owner")

    def __init__(self) -> None:
        self.owner = next(_owners)
        self._open: dict[bytes, Open] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, transaction: Open) -> None:
        self._open[transaction.id] = transaction

    def forget(self, transaction: Open) -> None:
        self._open.pop(transaction.id, None)

    def get(self, state: object) -> Open | None:
        """The transaction that a delivery's state names; None if it names none, or one that is not there any more."""
        return self._open.get(state.txn_id) if isinstance(state, TransactionalState) else None

    def find(self, txn_id: bytes) -> Open:
        """One that takes work, or its discharge. Raises Refusal."""
        found = self._open.get(txn_id)
        if found is None or found.discharging:
            raise Refusal(
                Condition.TRANSACTION_UNKNOWN_ID,
                f"this connection has no transaction {txn_id.hex()}: it was never declared, or is discharged",
            )
        return found


def provisional(delivery: Delivery, outcome: Outcome, known: Transactions) -> Outcome | TransactionalState:
    """An outcome as the sender of a delivery is told it: that of a transaction's message holds if the transaction commits."""
    transaction = known.get(delivery.remote_state)
    return outcome if transaction is None else TransactionalState(txn_id=transaction.id, outcome=outcome)
