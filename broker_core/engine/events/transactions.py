"""The events of open transactions, which do not outlive the broker: none is journaled. See `queues` for the rules of all."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.events.codec import Event
from penstock.broker_core.engine.model.transaction import Word
from penstock.broker_core.errors import PenstockError


@dataclass(frozen=True)
class TransactionBegun(Event):
    kind = "transaction.begun"
    journaled = False
    transaction: int
    owner: int


@dataclass(frozen=True)
class Posted(Event):
    """Beside the `Staged` that holds the messages."""

    kind = "transaction.posted"
    journaled = False
    transaction: int
    count: int
    bytes: int
    up: int


@dataclass(frozen=True)
class Retired(Event):
    kind = "transaction.retired"
    journaled = False
    transaction: int
    queue: str
    holder: int
    rows: RowSet
    word: Word
    up: int


@dataclass(frozen=True)
class TransactionFailed(Event):
    """It can only be rolled back any more. `undone`: what was said in it is forgotten already."""

    kind = "transaction.failed"
    journaled = False
    transaction: int
    why: PenstockError
    undone: bool


@dataclass(frozen=True)
class TransactionEnded(Event):
    kind = "transaction.ended"
    journaled = False
    transaction: int
