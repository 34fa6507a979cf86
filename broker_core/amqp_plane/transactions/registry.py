"""ConnectionTransactions as a connection has them: by the ids that its links name (part 4).

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
from ...amqp.deliveries import Delivery
from ...amqp.events import Named
from ...amqp.performatives import DeliveryState, Outcome
from ...amqp.transactions import Coordinated
from ..conditions import Refusal
from ..links.endpoint import LinkEnd
from ..loop.requests import TransactionWork

if TYPE_CHECKING:
    from ..links.consumer import ConsumerLink

RANDOM_OCTETS = 8  # of an id, in hexadecimal behind the engine's number

_owners = itertools.count(1)


class OpenTransaction(TransactionWork):
    """A transaction from its declare until its discharge is answered.

    `control`: the link that declared it; `discharging`: nothing more belongs to it; `over`: the engine knows it no longer;
    `waiting`: deliveries whose receivers wait to hear how it ends; `later`: outcomes of its deliveries that came behind the
    discharge; `takers`: links that acquire in it.
    """

    __slots__ = ("control", "discharging", "id", "later", "over", "takers", "waiting")

    def __init__(self, number: int, control: LinkEnd) -> None:
        super().__init__(number)
        # Numbers begin anew in each process: a client that has lost one names no transaction of the next.
        self.id = f"{number}-{secrets.token_hex(RANDOM_OCTETS)}".encode()
        self.control = control
        self.discharging = self.over = False
        self.takers: dict[ConsumerLink, None] = {}
        self.waiting: dict[ConsumerLink, dict[Delivery, None]] = {}
        self.later: list[tuple[ConsumerLink, Delivery, DeliveryState | None, bool]] = []


class ConnectionTransactions:
    """The transactions of one connection."""

    __slots__ = ("_coordinated", "_open", "owner")

    def __init__(self, coordinated: Coordinated) -> None:
        self.owner = next(_owners)
        self._coordinated = coordinated
        self._open: dict[bytes, OpenTransaction] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, transaction: OpenTransaction) -> None:
        """Take in a transaction that was declared."""
        self._open[transaction.id] = transaction
        self._coordinated.open(transaction.id)

    def of(self, control: LinkEnd) -> list[OpenTransaction]:
        """Return the transactions that a control link has declared."""
        return [transaction for transaction in self._open.values() if transaction.control is control]

    def named(self, event: Named) -> None:
        """Count what names a transaction. What is behind its discharge is not of it."""
        transaction = self._open.get(event.txn_id)
        if transaction is not None and not transaction.discharging:
            transaction.asked += event.count

    def forget(self, transaction: OpenTransaction) -> None:
        """Take out a transaction that is discharged; its id is unknown from here on."""
        self._open.pop(transaction.id, None)
        self._coordinated.close(transaction.id)

    def get(self, state: object) -> OpenTransaction | None:
        """Find the transaction that a delivery's state names; None if it names none, or one that is not there any more."""
        return self._open.get(state.txn_id) if isinstance(state, TransactionalState) else None

    def find(self, txn_id: bytes) -> OpenTransaction:
        """Find a transaction that takes work, or its discharge. Raises Refusal."""
        found = self._open.get(txn_id)
        if found is None or found.discharging:
            raise Refusal(
                Condition.TRANSACTION_UNKNOWN_ID,
                f"this connection has no transaction {txn_id.hex()}: it was never declared, or is discharged",
            )
        return found


def provisional(delivery: Delivery, outcome: Outcome, known: ConnectionTransactions) -> Outcome | TransactionalState:
    """Form an outcome as the sender of a delivery is told it: that of a transaction's message holds if the transaction
    commits."""
    transaction = known.get(delivery.remote_state)
    return outcome if transaction is None else TransactionalState(txn_id=transaction.id, outcome=outcome)
