"""Commands about transactions. Part 4 of AMQP 1.0 calls them declaring, posting, retiring and discharging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import PenstockError
from ..columns.attributes import NO_ATTRIBUTES, Attributes
from ..columns.rowset import RowSet
from ..columns.series import Ints
from ..columns.states import Cause
from ..model.dispositions import ROLLED_BACK, Disposition
from .command import Command


@dataclass(frozen=True)
class BeginTransaction(Command[int]):
    """A new transaction of `owner`, a connection of `user`; each with too many is refused. Reply: its number."""

    owner: int
    user: str | None = None


@dataclass(frozen=True)
class Post(Command[None]):
    """Messages that are in the queue if the transaction commits. As `Enqueue`, but they have no sequence numbers before."""

    transaction: int
    queue: str
    count: int
    sizes: int | Ints
    payload: Any = None
    attributes: Attributes = NO_ATTRIBUTES


@dataclass(frozen=True)
class Retire(Command[None]):
    """Outcome of messages that a link holds, if the transaction commits; until then they stay ACQUIRED by it. Of several for the
    same messages, the last one counts.

    After a rollback the link holds them as before, but for those that it has `settled`, or whose link is gone: these end with
    `default`."""

    transaction: int
    queue: str
    holder: int
    rows: RowSet
    disposition: Disposition
    default: Disposition = ROLLED_BACK
    settled: bool = False


@dataclass(frozen=True)
class FailTransaction(Command[None]):
    """Failure of a part of a transaction, so that all of it can only be rolled back."""

    transaction: int
    why: str


@dataclass(frozen=True)
class Discharge(Command[PenstockError | None]):
    """The end of a transaction. Reply: None, or why what was to be committed was rolled back instead."""

    transaction: int
    fail: bool = False
    cause: Cause = Cause.ROLLBACK  # of a rollback that the broker causes itself: how messages that no link can settle come back


@dataclass(frozen=True)
class TimeOutTransactions(Command[None]):
    """Undo those whose work has taken too long; who goes on with one is told. A command of its own, before `Tick`: what both
    would give back comes back once."""
