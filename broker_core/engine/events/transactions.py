"""Events of open transactions, which end with the broker."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import PenstockError
from ..columns.rowset import RowSet
from ..model.state import BrokerState
from ..model.transaction import ProvisionalOutcome
from .event import Event


@dataclass(frozen=True)
class TransactionBegun(Event, kind="transaction.begun", journaled=False):
    """`owner`: a connection."""

    transaction: int
    owner: int
    user: str | None

    def apply(self, state: BrokerState, position: int) -> None:
        state.transactions.begin(self.transaction, self.owner, self.user)


@dataclass(frozen=True)
class Posted(Event, kind="transaction.posted", journaled=False):
    """The size of posted messages. A `Staged` contains them."""

    transaction: int
    count: int
    bytes: int
    up: int

    def apply(self, state: BrokerState, position: int) -> None:
        transaction = state.transactions.open[self.transaction]
        transaction.posted += self.count
        transaction.bytes += self.bytes
        transaction.works(self.up)


@dataclass(frozen=True)
class Retired(Event, kind="transaction.retired", journaled=False):
    """The outcome that messages of a link get at the commit."""

    transaction: int
    queue: str
    holder: int
    rows: RowSet
    outcome: ProvisionalOutcome
    up: int

    def apply(self, state: BrokerState, position: int) -> None:
        taker = state.taker_of(state.queues[self.queue], self.holder)
        state.transactions.retire(self.transaction, self.queue, self.holder, taker, self.rows, self.outcome)
        state.transactions.open[self.transaction].works(self.up)


@dataclass(frozen=True)
class TransactionFailed(Event, kind="transaction.failed", journaled=False):
    """The transaction can only be rolled back. `undone`: its work is forgotten."""

    transaction: int
    why: PenstockError
    undone: bool

    def apply(self, state: BrokerState, position: int) -> None:
        state.transactions.open[self.transaction].failed = self.why
        if self.undone:
            state.transactions.forget_work(self.transaction)


@dataclass(frozen=True)
class TransactionEnded(Event, kind="transaction.ended", journaled=False):
    """The end of a transaction, by commit or rollback."""

    transaction: int

    def apply(self, state: BrokerState, position: int) -> None:
        state.transactions.end(self.transaction)
