"""Commands about Spark's leases. A planner's request has several: `EnterLease`, then `FinishBatches` and `AcquireBatch`, or
`PlanBatches`."""

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
    """A check that a planner may use the lease. Reply: its epoch; None: it does not exist yet."""

    queue: str
    lease: str
    run: str
    epoch: int | None
    fresh: bool = False
    timeout: int | None = None
    keep_timeout: bool = False  # the request contains neither a timeout nor a selector
    selector: str | None = None
    signs: tuple[tuple[int, str], ...] = ()  # batches of the checkpoint, with their signs
    head: tuple[str, int] | None = None  # of a planner with several leases: the first one, and its epoch
    waiting: bool = False  # the planner has asked before, and the lease did not exist


@dataclass(frozen=True)
class FinishBatches(Command[tuple[int | None, int, int]]):
    """The end of batches up to `finished`: read ones are settled, unread ones return."""

    lease: str
    finished: int
    strict: bool = True  # refuse a lower number than the lease has finished
    exclude: bool = False
    fail_on_data_loss: bool = True


class LeasedBatch(NamedTuple):
    """Reply of `AcquireBatch`."""

    epoch: int | None  # None: the lease does not exist yet
    batch: int  # the held one, or the finished one
    sign: str | None = None  # None: not remembered
    unread: int = 0  # as in `Lease`
    unevaluated: int | None = None  # as in `Taken`


@dataclass(frozen=True)
class AcquireBatch(Command[LeasedBatch]):
    """The next batch for a lease, before sequence number `until`."""

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
    matching: Matching | None = None
    alone: bool = True  # a message larger than `max_bytes` is a batch; False: it is not acquired


@dataclass(frozen=True)
class MeasureBatch(Command[tuple[int, int]]):
    """Messages and bytes of a batch; (0, 0) if the lease does not hold it."""

    lease: str
    batch: int


@dataclass(frozen=True)
class PlanBatches(Command[tuple[int, list[list[int]]]]):
    """A plan of the batches after `after` up to `batch`. Reply: the epoch, and the parts for tasks."""

    lease: str
    after: int
    batch: int
    min_partitions: int = 1
    max_messages: int | None = None
    fail_on_data_loss: bool = True
    written: bool = False  # Spark has written the offset of `batch`, and asks for tasks now


@dataclass(frozen=True)
class ReadBatch(Command[tuple[str, RowSet]]):
    """The read of sequence numbers `first` to `last` of a batch. Reply: the queue and the rows."""

    lease: str
    run: str
    epoch: int
    batch: int
    first: int
    last: int
    fail_on_data_loss: bool = True
    reader: SparkBatch | None = None
    query_name: str | None = None


@dataclass(frozen=True)
class RenewLease(Command[None]):
    """A sign of life of a planner or task."""

    lease: str
    epoch: int
    run: str | None = None


@dataclass(frozen=True)
class ListLeases(Command[list[dict[str, Any]]]):
    """Descriptions of all leases."""


@dataclass(frozen=True)
class ReleaseLease(Command[int]):
    """The end of the batch that a lease holds, by an operator."""

    lease: str
    settle: bool


@dataclass(frozen=True)
class SettleRow(Command[None]):
    """The end of one message of a batch, by an operator. The query is fenced, and plans again."""

    lease: str
    sequence: int
    outcome: str
    error: str | None = None
    user: str | None = None


@dataclass(frozen=True)
class DeleteLease(Command[None]):
    """Only for a lease without a batch."""

    lease: str
