"""Commands about transactions. Part 4 of AMQP 1.0 uses the words *declare*, *post*, *retire* and *discharge*."""

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
    """The outcome that messages of a link get at the commit. The last outcome of a message counts.

    After a rollback the link still holds them, except for messages that it has `settled`, or whose link has ended: these end by
    `default`.
    """

    transaction: int
    queue: str
    holder: int
    rows: RowSet
    disposition: DeliveryEnd
    default: DeliveryEnd = ROLLED_BACK
    settled: bool = False


@dataclass(frozen=True)
class FailTransaction(Command[None]):
    """The failure of a transaction, which can only be rolled back then."""

    transaction: int
    why: str


@dataclass(frozen=True)
class DischargeTransaction(Command[PenstockError | None]):
    """The end of a transaction. Reply: None, or the reason why a commit became a rollback."""

    transaction: int
    fail: bool = False
    cause: Cause = Cause.ROLLBACK  # for messages that no link can settle


@dataclass(frozen=True)
class TimeOutTransactions(Command[None]):
    """The rollback of transactions that have worked too long. It comes before `Tick`, so that a message that both would return
    returns once."""
