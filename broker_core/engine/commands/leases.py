"""Commands of Spark's leases, and of operators about them.

A planner's request comes in parts: `EnterLease`, then `FinishBatches` and `AcquireBatch`, or `PlanBatches`; each is decided on
the state that the one before left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..columns.rowset import RowSet
from ..model.reads import SparkBatch
from .command import Command

if TYPE_CHECKING:
    from ..model.search import Matching


@dataclass(frozen=True)
class EnterLease(Command[int | None]):
    """First part of every planner's request: may this planner speak for the lease? See docs/protocols/flight.md."""

    queue: str
    lease: str
    run: str
    epoch: int | None
    fresh: bool = False
    timeout: int | None = None  # microseconds
    keep_timeout: bool = False  # the request says nothing of it, nor of the selector
    selector: str | None = None  # the canonical text
    signs: tuple[tuple[int, str], ...] = ()  # batches that the checkpoint names, with the signs it has of them
    head: tuple[str, int] | None = None  # of a planner with several leases: the one it took up first, and its epoch of that
    waiting: bool = False  # it has asked before, when there was no such lease


@dataclass(frozen=True)
class FinishBatches(Command[tuple[int | None, int, int]]):
    """Spark has finished every batch up to `finished`: settle what was read, give back what was not."""

    lease: str
    finished: int
    strict: bool = True  # refuse a number lower than what the lease has finished
    exclude: bool = False
    fail_on_data_loss: bool = True


class LeasedBatch(NamedTuple):
    """Reply of AcquireBatch: the lease's epoch, None where there is no lease yet; the batch that it holds, or the finished one
    where it holds none; this batch's sign, None where the lease remembers none; and how many batches in a row its query has
    finished without reading them."""

    epoch: int | None
    batch: int
    sign: str | None = None
    unread: int = 0
    unevaluated: int | None = None  # as of `Taken`


@dataclass(frozen=True)
class AcquireBatch(Command[LeasedBatch]):
    """The next batch for a lease: at most `messages` and `max_bytes`, before `until`; `timeout` in microseconds."""

    queue: str
    lease: str
    run: str
    finished: int
    messages: int | None = None
    max_bytes: int | None = None
    until: int | None = None
    exclude: bool = False
    timeout: int | None = None
    fail_on_data_loss: bool = True
    selector: str | None = None
    matching: Matching | None = None  # of the selector
    alone: bool = True  # one message larger than `max_bytes` is taken alone; else nothing is


@dataclass(frozen=True)
class MeasureBatch(Command[tuple[int, int]]):
    """The size of a batch that a lease holds. Reply: messages and bytes, 0 and 0 where it holds no such batch."""

    lease: str
    batch: int


@dataclass(frozen=True)
class PlanBatches(Command[tuple[int, list[list[int]]]]):
    """A plan of the batches after `after` up to `batch`. Reply: the lease's epoch, and the parts that tasks read."""

    lease: str
    after: int
    batch: int
    min_partitions: int = 1
    max_messages: int | None = None
    fail_on_data_loss: bool = True
    written: bool = False  # Spark asks for tasks now, and has written the offset of `batch` before


@dataclass(frozen=True)
class ReadBatch(Command[tuple[str, RowSet]]):
    """The read of a part of a batch, sequence numbers `first` to `last`. Reply: the queue and the rows."""

    lease: str
    run: str
    epoch: int
    batch: int
    first: int
    last: int
    fail_on_data_loss: bool = True
    reader: SparkBatch | None = None  # the batch of Spark's that it is read for


@dataclass(frozen=True)
class RenewLease(Command[None]):
    """A sign of life of the planner or task with this epoch: the lease's timeout starts anew."""

    lease: str
    epoch: int
    run: str | None = None


@dataclass(frozen=True)
class ListLeases(Command[list[dict[str, Any]]]):
    """The descriptions of all leases."""


@dataclass(frozen=True)
class ReleaseLease(Command[int]):
    """An operator ends the batch that a lease holds."""

    lease: str
    settle: bool


@dataclass(frozen=True)
class SettleRow(Command[None]):
    """An operator ends one poisonous message of a lease; the running query is fenced and plans again without it."""

    lease: str
    sequence: int
    outcome: str
    error: str | None = None


@dataclass(frozen=True)
class DeleteLease(Command[None]):
    """The deletion of a lease that holds no batch."""

    lease: str
