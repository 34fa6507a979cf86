"""Commands about transactions, in words of part 4 of AMQP 1.0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import PenstockError
from ..columns.attributes import NO_ATTRIBUTES, Attributes
from ..columns.rowset import RowSet
from ..columns.series import Ints
from ..columns.states import Cause
from ..model.dispositions import ROLLED_BACK, DeliveryEnd
from .command import Command


@dataclass(frozen=True)
class BeginTransaction(Command[int]):
    """A new transaction of `owner`, a connection of `user`. Reply: its number."""

    owner: int
    user: str | None = None


@dataclass(frozen=True)
class Post(Command[None]):
    """Messages that the commit adds to the queue."""

    transaction: int
    queue: str
    count: int
    sizes: int | Ints
    payload: Any = None
    attributes: Attributes = NO_ATTRIBUTES


@dataclass(frozen=True)
class Retire(Command[None]):
    """The outcome of messages of a link at the commit. After a rollback the link still holds them. If it has `settled` them, or
    has ended, they end by `default`."""

    transaction: int
    queue: str
    holder: int
    rows: RowSet
    disposition: DeliveryEnd
    default: DeliveryEnd = ROLLED_BACK
    settled: bool = False


@dataclass(frozen=True)
class FailTransaction(Command[None]):
    """The transaction can only be rolled back then."""

    transaction: int
    why: str


@dataclass(frozen=True)
class DischargeTransaction(Command[PenstockError | None]):
    """Reply: None, or the reason why a commit became a rollback."""

    transaction: int
    fail: bool = False
    cause: Cause = Cause.ROLLBACK  # for messages that no link can settle


@dataclass(frozen=True)
class TimeOutTransactions(Command[None]):
    """The rollback of transactions that have worked too long: before `Tick`, or a message could return twice."""
