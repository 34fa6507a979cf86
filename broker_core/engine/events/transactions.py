"""Events of open transactions. None is journaled: transactions end with the broker."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import PenstockError
from ..columns.rowset import RowSet
from ..model.transaction import ProvisionalOutcome
from .codec import Event


@dataclass(frozen=True)
class TransactionBegun(Event):
    """A new transaction of a connection, which is a user's."""

    kind = "transaction.begun"
    journaled = False
    transaction: int
    owner: int
    user: str | None


@dataclass(frozen=True)
class Posted(Event):
    """Messages posted in a transaction, beside the `Staged` that holds them; `up` is microseconds of uptime."""

    kind = "transaction.posted"
    journaled = False
    transaction: int
    count: int
    bytes: int
    up: int


@dataclass(frozen=True)
class Retired(Event):
    """Outcome that messages held by a link get at the commit; `up` is microseconds of uptime."""

    kind = "transaction.retired"
    journaled = False
    transaction: int
    queue: str
    holder: int
    rows: RowSet
    outcome: ProvisionalOutcome
    up: int


@dataclass(frozen=True)
class TransactionFailed(Event):
    """Failure of a transaction, which can only be rolled back. `undone`: its work is forgotten already."""

    kind = "transaction.failed"
    journaled = False
    transaction: int
    why: PenstockError
    undone: bool


@dataclass(frozen=True)
class TransactionEnded(Event):
    """The end of a transaction, by commit or rollback."""

    kind = "transaction.ended"
    journaled = False
    transaction: int
