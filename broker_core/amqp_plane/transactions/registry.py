"""The transactions of a connection, by the ids that its links name (part 4).

Messages and outcomes that name a transaction are counted when their frames arrive (`events.Named`), and again when they are
carried out. If the two numbers differ, a commit becomes a rollback.
"""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING

from ...amqp import Condition, TransactionalState
from ...amqp.deliveries import Delivery
from ...amqp.events import Named
from ...amqp.performatives import DeliveryState
from ...amqp.transactions import Coordinated
from ..conditions import Refusal
from ..links.endpoint import LinkEnd
from ..loop.requests import TransactionWork

if TYPE_CHECKING:
    from ..links.consumer import ConsumerLink

RANDOM_OCTETS = 8  # of an id, in hexadecimal after the engine's number

_owners = itertools.count(1)


class OpenTransaction(TransactionWork):
    """A transaction from its declare until its discharge is answered.

    - `discharging`: it takes no more work. `over`: the engine has ended it.
    - `takers`: links that acquire in it. `waiting`: deliveries whose receivers wait for its end.
    - `later`: outcomes of its deliveries that came after the discharge.
    """

    __slots__ = ("control", "discharging", "id", "later", "over", "takers", "waiting")

    def __init__(self, number: int, control: LinkEnd) -> None:
        super().__init__(number)
        # Numbers start again in each process, so a client could name a transaction of another process.
        self.id = f"{number}-{secrets.token_hex(RANDOM_OCTETS)}".encode()
        self.control = control
        self.discharging = self.over = False
        self.takers: dict[ConsumerLink, None] = {}
        self.waiting: dict[ConsumerLink, dict[Delivery, None]] = {}
        self.later: list[tuple[ConsumerLink, Delivery, DeliveryState | None, bool]] = []


class ConnectionTransactions:
    """Transactions by their id."""

    __slots__ = ("_coordinated", "_open", "owner")

    def __init__(self, coordinated: Coordinated) -> None:
        self.owner = next(_owners)
        self._coordinated = coordinated
        self._open: dict[bytes, OpenTransaction] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, transaction: OpenTransaction) -> None:
        self._open[transaction.id] = transaction
        self._coordinated.open(transaction.id)

    def of(self, control: LinkEnd) -> list[OpenTransaction]:
        return [transaction for transaction in self._open.values() if transaction.control is control]

    def named(self, event: Named) -> None:
        """Count messages and outcomes that name a transaction, until its discharge."""
        transaction = self._open.get(event.txn_id)
        if transaction is not None and not transaction.discharging:
            transaction.asked += event.count

    def forget(self, transaction: OpenTransaction) -> None:
        self._open.pop(transaction.id, None)
        self._coordinated.close(transaction.id)

    def get(self, state: object) -> OpenTransaction | None:
        return self._open.get(state.txn_id) if isinstance(state, TransactionalState) else None

    def find(self, txn_id: bytes) -> OpenTransaction:
        """Return a transaction that takes work, or its discharge. Raises Refusal."""
        transaction = self._open.get(txn_id)
        if transaction is None or transaction.discharging:
            text = f"this connection has no transaction {txn_id.hex()}: it was never declared, or is discharged"
            raise Refusal(Condition.TRANSACTION_UNKNOWN_ID, text)
        return transaction
