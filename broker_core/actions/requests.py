"""Fields that requests share, and the requests of streams: tickets and puts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from .. import errors
from ..engine.model.reads import SparkBatch
from ..engine.model.state import BrokerState
from . import namespaces
from . import permissions as p
from .callers import Caller
from .fields import About, Request, parse_op
from .permissions import Operation

QueueName = Annotated[str, About("name of the queue")]
LeaseName = Annotated[str, About("name of the lease")]

OptionalRun = Annotated[str | None, About("run of the query, from its checkpoint")]

Epoch = Annotated[int, About("epoch of the lease in the caller's possession; null: take over the lease")]
BatchNumber = Annotated[int, About("number of a batch", least=0)]

Selector = Annotated[str | None, About("selector in the syntax of JMS; null or blank: all messages")]
MessageLimit = Annotated[int | None, About("maximum number of messages; null: unlimited", least=1)]

First = Annotated[int, About("sequence number of the first message, included")]
Last = Annotated[int | None, About("sequence number of the last message, included; null: no end")]

Since = Annotated[int | None, About("earliest arrival, microseconds since 1970; null: any")]
Until = Annotated[int | None, About("end of arrival times, excluded, microseconds since 1970; null: any")]

OutcomeName = Annotated[str | None, About("outcome of the messages; null: any")]
States = Annotated[list[str], About("available, acquired, archived, delayed, deferred")]

QueueId = Annotated[int | None, About("number of the queue, from archive.plan; null: of the present queue with the name")]
RecordedAfter = Annotated[int | None, About("last recording that the client reads on its own; null: none")]

TableVersion = Annotated[int | None, About("version of the table; null: the newest")]

MinPartitions = Annotated[int, About("minimum number of parts", least=1)]
MaxMessages = Annotated[int | None, About("maximum number of messages in a part; null: unlimited", least=1)]

BatchSign = Annotated[str | None, About("sign of the batch in the checkpoint")]

StageNames = Annotated[list[str], About("ids of stages, in order")]
WriteId = Annotated[str | None, About("id of a write; null: `stages` names the stages")]

AttemptNumbers = Annotated[list[int], About("numbers of a write's attempts, in order")]

Reason = Annotated[str | None, About("reason, for operators who view the messages later")]

HeadLease = Annotated[dict[str, Any] | None, About("first lease of a query over several queues, and its epoch")]


@dataclass(frozen=True, kw_only=True)
class OfQueue(Request):
    """A request about a queue."""

    queue: QueueName


@dataclass(frozen=True, kw_only=True)
class OfExchange(Request):
    """A request about an exchange."""

    exchange: Annotated[str, About("name of the exchange")]


@dataclass(frozen=True, kw_only=True)
class OfLease(Request):
    """A request about a lease."""

    lease: LeaseName


@dataclass(frozen=True, kw_only=True)
class BrowseRange(OfQueue):
    """Messages of a queue."""

    states: States = field(default_factory=lambda: ["available"])
    first: First = 0
    last: Last = None
    since: Since = None
    until: Until = None
    outcome: OutcomeName = None


@dataclass(frozen=True, kw_only=True)
class ArchiveRows(Request):
    """Rows of the archive's table."""

    queue_id: QueueId = None
    lineages: Annotated[list[Any], About("lineages of the table: by turns a name and a number of recordings")]
    recorded_after: RecordedAfter = None
    first: First = 0
    last: Last = None
    since: Since = None
    until: Until = None
    outcome: OutcomeName = None
    settled_since: Annotated[int | None, About("earliest settlement, microseconds since 1970; null: any")] = None
    settled_until: Annotated[int | None, About("end of settlement times, excluded, microseconds since 1970; null: any")] = None


@dataclass(frozen=True, kw_only=True)
class PlanBrowse(BrowseRange):
    """The fields of `browse.plan` and `archive.plan`."""

    min_partitions: MinPartitions = 1
    max_messages: MaxMessages = None


@dataclass(frozen=True, kw_only=True)
class _ArchiveTable(OfQueue):
    version: TableVersion = None


@dataclass(frozen=True, kw_only=True)
class ArchiveFiles(ArchiveRows, _ArchiveTable):
    """The fields of `archive.files`."""


@dataclass(frozen=True, kw_only=True)
class StageOrAttempt(Request):
    """The stage that a put fills."""

    stage: str | None = None
    write: str | None = None
    attempt: Annotated[int | None, About("", least=0)] = None


@dataclass(frozen=True, kw_only=True)
class StreamRequest(Request):
    """A request that begins a stream."""

    op: str


@dataclass(frozen=True, kw_only=True)
class BatchPart(StreamRequest):
    """A part of a lease's batch."""

    lease: str
    run: str
    epoch: int
    batch: Annotated[int, About("", least=0)]
    first: int
    last: int
    bucket: int = 0
    buckets: Annotated[int, About("", least=1)] = 1
    columns: list[str]
    query: str | None = None
    query_batch: int | None = None
    query_name: str | None = None
    fail_on_data_loss: bool = True


@dataclass(frozen=True, kw_only=True)
class BatchTicket(BatchPart):
    """`batch`: the messages as record batches."""

    stored: bool = False


@dataclass(frozen=True, kw_only=True)
class MapTicket(BatchPart):
    """`map`: the messages' places in the journal's files, for a reader on the broker's host."""

    or_messages: bool = False
    host: str | None = None


@dataclass(frozen=True, kw_only=True)
class BrowseTicket(BrowseRange, StreamRequest):
    """`browse`: messages of a queue, unchanged."""

    selector: Selector = None
    columns: list[str]
    stored: bool = False
    recorded_after: RecordedAfter = None


@dataclass(frozen=True, kw_only=True)
class ArchiveFilePart(StreamRequest):
    """A part of a file of the archive's table."""

    queue: str
    path: str
    part: int = 0
    parts: int = 1
    version: TableVersion = None


@dataclass(frozen=True, kw_only=True)
class ArchiveTicket(ArchiveRows, ArchiveFilePart):
    """`archive`: rows of the archive's table."""

    selector: Selector = None
    columns: list[str]
    stored: bool = False


@dataclass(frozen=True, kw_only=True)
class EnqueuePut(StreamRequest):
    """`enqueue`: messages for a queue or an exchange."""

    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class StagePut(StageOrAttempt, EnqueuePut):
    """`stage`: messages for a stage."""

    routed: bool = False


@dataclass(frozen=True, kw_only=True)
class SettlePut(StageOrAttempt, StreamRequest):
    """`settle`: outcomes of a lease's messages, for a stage."""

    lease: str


@dataclass(frozen=True, kw_only=True)
class BatchMetadata(Request):
    """The metadata of a record batch that names its queue."""

    queue: str


def _by_name(*operations: Operation) -> dict[str, Operation]:
    return {operation.name: operation for operation in operations}


TICKETS = _by_name(
    Operation("batch", BatchTicket, p.RECEIVE),
    Operation("map", MapTicket, p.RECEIVE),
    Operation("browse", BrowseTicket, p.BROWSE, p.browse_needs),
    Operation("archive", ArchiveTicket, p.REPLAY),
)
PUTS = _by_name(
    Operation("enqueue", EnqueuePut, p.SEND),
    Operation("stage", StagePut, p.STAGE, p.stage_put_needs),
    Operation("settle", SettlePut, p.RECEIVE, p.settle_put_needs),
)


def spark_batch(request: Any) -> SparkBatch | None:
    query, number = request.query, request.query_batch
    if (query is None) != (number is None):
        raise errors.InvalidRequest("fields 'query' and 'queryBatch' must both be there, or none of them")
    return None if query is None else SparkBatch(query, number)


def permitted_request(
    state: BrokerState, caller: Caller, data: bytes, operations: Mapping[str, Operation]
) -> tuple[Any, p.Check]:
    """Return the request, and a check that its stream is still permitted. Raises PenstockError."""
    request: Any = parse_op(data, {name: operation.request for name, operation in operations.items()})
    operation = operations[request.op]
    request = namespaces.resolve(state, caller, operation, request)
    return request, p.authorize(state, caller, operation, request)
