"""Actions on leases, for Spark queries and for operators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from .. import errors
from ..engine import commands as c
from ..engine.columns.limits import SECOND
from ..selectors import parse_optional
from ..service.broker import BrokerService
from . import namespaces
from . import requests as r
from .declaration import ActionCall, Reply, action, with_hints
from .fields import About, Request, parse_fields
from .lease_advance import advance
from .malformed_messages import set_aside
from .permissions import ANYONE, RECEIVE, SETTLE, visible
from .schemas import BACKLOG, BOOL, COUNT, PARTS, TEXT, component, list_of, nullable, object_of, properties

MAX_WAIT_MS = 100  # of a long poll: one thread asks for all sources of a Spark query
MAX_LEASE_TIMEOUT_S = 10 * 365 * 86400

Finished = Annotated[int, About("last batch that the query has finished", least=0)]


@dataclass(frozen=True, kw_only=True)
class _Planner(Request):
    queue: r.QueueName
    lease: r.LeaseName
    run: Annotated[str, About("run of the query, from its checkpoint")]
    epoch: Annotated[int | None, About("epoch of the lease in the caller's possession; null: take over the lease")]
    fail_on_data_loss: Annotated[bool, About("whether lost messages are an error")] = True


@dataclass(frozen=True, kw_only=True)
class _Advance(_Planner):
    finished: Finished
    fresh: Annotated[bool, About("whether the query begins without a checkpoint")] = False
    waiting: Annotated[bool, About("whether this planner has asked before the lease existed")] = False

    messages: r.MessageLimit = None
    bytes: Annotated[int | None, About("maximum number of bytes; null: unlimited", least=1)] = None
    until: Annotated[int | None, About("sequence number that ends the batch, excluded; null: no end")] = None
    wait_ms: Annotated[int, About("milliseconds to wait at an empty queue, 100 at most", least=0)] = 0

    exclude: Annotated[bool, About("whether messages that this epoch returned unread are left out")] = False
    lease_timeout: Annotated[
        int | float | None, About("seconds after which an unused lease returns its messages; null: never")
    ] = None

    selector: r.Selector = None
    alone: Annotated[bool, About("whether one message larger than `bytes` is acquired alone")] = True

    measure: Annotated[bool, About("whether the reply has the size of the batch")] = False
    plan: Annotated[bool, About("whether the reply has the parts of the batch")] = False

    counts: Annotated[bool, About("whether the reply has the counts of the queue")] = False
    sign: r.BatchSign = None
    head: r.HeadLease = None
    min_partitions: r.MinPartitions = 1
    max_messages: r.MaxMessages = None


@dataclass(frozen=True, kw_only=True)
class _Plan(_Planner):
    after: Annotated[int, About("last batch before the parts", least=0)]
    batch: r.BatchNumber
    after_sign: r.BatchSign = None
    batch_sign: r.BatchSign = None
    head: r.HeadLease = None
    min_partitions: r.MinPartitions = 1
    max_messages: r.MaxMessages = None


@dataclass(frozen=True, kw_only=True)
class _Settle(_Planner):
    finished: Finished
    sign: r.BatchSign = None
    head: r.HeadLease = None


@dataclass(frozen=True, kw_only=True)
class HeadFields(Request):
    """The field `head`."""

    lease: str
    epoch: int


@dataclass(frozen=True, kw_only=True)
class _Renew(r.OfLease):
    run: r.OptionalRun = None
    epoch: r.Epoch


@dataclass(frozen=True, kw_only=True)
class _Release(r.OfLease):
    how: Annotated[str, About("settle, or return")]


@dataclass(frozen=True, kw_only=True)
class _SettleRow(r.OfLease):
    sequence: Annotated[int, About("sequence number of the message")]
    outcome: Annotated[str, About("accepted, rejected, released or modified")]
    error: r.Reason = None


@dataclass(frozen=True, kw_only=True)
class _SetAside(r.OfLease):
    run: r.OptionalRun = None
    epoch: r.Epoch
    batch: r.BatchNumber
    reasons: Annotated[dict[str, Any], About("sequence numbers of messages, by the reason")]


@action(
    "lease.advance",
    RECEIVE,
    object_of(
        ("sign", "unread", "messages", "bytes", "parts", "counts", "more", "hints"),
        epoch=nullable(COUNT),
        batch=COUNT,
        sign=TEXT,
        **properties(COUNT, "unread", "messages", "bytes"),
        parts=PARTS,
        counts=BACKLOG,
        more=BOOL,
        hints=list_of(TEXT),
    ),
)
def _advance(call: ActionCall, request: _Advance) -> Reply:
    """Settles the batches that a query has finished, and acquires its next batch."""
    service = call.service
    service.create_on_use(request.queue, call.caller.origin)
    selector = parse_optional(request.selector)
    seconds = request.lease_timeout
    if seconds is not None and not 0 < seconds <= MAX_LEASE_TIMEOUT_S:  # NaN fails too
        raise errors.InvalidRequest(f"field 'leaseTimeout' must be seconds above 0, at most {MAX_LEASE_TIMEOUT_S}, not {seconds}")
    timeout = None if seconds is None else int(seconds * SECOND)
    enter = replace(
        _enter(request, ((request.finished, request.sign),)),
        fresh=request.fresh,
        timeout=timeout,
        keep_timeout=False,
        selector=None if selector is None else selector.text,
        waiting=request.waiting,
    )
    finish = c.FinishBatches(request.lease, request.finished, True, request.exclude, request.fail_on_data_loss)
    wanted = c.AcquireBatch(
        queue=request.queue,
        lease=request.lease,
        run=request.run,
        finished=request.finished,
        messages=request.messages,
        max_bytes=request.bytes,
        until=request.until,
        exclude=request.exclude,
        timeout=timeout,
        fail_on_data_loss=request.fail_on_data_loss,
        selector=enter.selector,
        alone=request.alone,
    )
    wait_s = min(request.wait_ms, MAX_WAIT_MS) / 1000
    leased, is_unfinished = advance(service, enter, finish, wanted, wait_s, call.caller.is_gone)
    reply: Reply = {"epoch": leased.epoch, "batch": leased.batch, **({"more": True} if is_unfinished else {})}
    reply |= {"sign": leased.sign} if leased.sign is not None else {}
    reply |= {"unread": leased.unread} if leased.unread else {}
    if request.measure:
        reply["messages"], reply["bytes"] = service.submit(c.MeasureBatch(request.lease, leased.batch))
    if request.plan:
        # Ahead of `lease.plan`: Spark writes the batch's offset after this reply.
        plan = _plan_command(request, request.finished, leased.batch)
        reply["parts"] = [] if leased.batch == request.finished else service.submit(plan)[1]
    if request.counts:
        reply["counts"] = _backlog(service, request.queue)
    return reply if selector is None else with_hints(reply, service.matching.compared_hints(request.queue, selector))


@action("lease.plan", RECEIVE, object_of(epoch=COUNT, parts=PARTS))
def _plan(call: ActionCall, request: _Plan) -> Reply:
    """Divides batches of a lease into parts."""
    enter = _enter(request, ((request.after, request.after_sign), (request.batch, request.batch_sign)))
    plan = replace(_plan_command(request, request.after, request.batch), written=True)
    epoch, parts = call.service.submit(enter, plan)
    return {"epoch": epoch, "parts": parts}


@action("lease.settle", RECEIVE, object_of(epoch=nullable(COUNT), settled=COUNT, unread=COUNT))
def _settle(call: ActionCall, request: _Settle) -> Reply:
    """Settles the batches that a query has finished."""
    enter = _enter(request, ((request.finished, request.sign),))
    finish = c.FinishBatches(request.lease, request.finished, strict=False, fail_on_data_loss=request.fail_on_data_loss)
    epoch, settled, unread = call.service.submit(enter, finish)
    return {"epoch": epoch, "settled": settled, "unread": unread}


@action("lease.renew", RECEIVE, object_of(lease=TEXT))
def _renew(call: ActionCall, request: _Renew) -> Reply:
    """Keeps a lease from timing out."""
    call.service.submit(c.RenewLease(request.lease, request.epoch, request.run))
    return {"lease": request.lease}


@action("lease.list", ANYONE, object_of(leases=list_of(component("Lease"))), reads=True)
def _list(call: ActionCall, request: Request) -> Reply:
    """Lists the leases on queues that the caller may see."""
    leases = visible(call.caller, call.service.submit(c.ListLeases()))
    return {"leases": namespaces.with_names(call.caller, leases)}


@action("lease.release", SETTLE, object_of(messages=COUNT))
def _release(call: ActionCall, request: _Release) -> Reply:
    """Settles or returns the messages that a lease holds."""
    if request.how not in ("settle", "return"):
        raise errors.InvalidRequest("lease.release: field 'how' must be 'settle' or 'return'")
    return {"messages": call.service.submit(c.ReleaseLease(request.lease, request.how == "settle"))}


@action("lease.settleRow", SETTLE, object_of(sequence=COUNT))
def _settle_row(call: ActionCall, request: _SettleRow) -> Reply:
    """Settles one message that a lease holds."""
    user = call.caller.known_user
    call.service.submit(c.SettleRow(request.lease, request.sequence, request.outcome, request.error, user))
    return {"sequence": request.sequence}


@action("lease.setAside", RECEIVE, object_of(messages=COUNT))
def _set_aside(call: ActionCall, request: _SetAside) -> Reply:
    """Sets aside messages of a batch that no reader can decode."""
    for reason, sequences in request.reasons.items():
        if not isinstance(sequences, list) or not all(type(number) is int and 0 <= number < 2**62 for number in sequences):
            raise errors.InvalidRequest(f"lease.setAside: the messages of {reason!r:.80} must be a list of sequence numbers")
    return {"messages": set_aside(call.service, request.lease, request.batch, request.epoch, request.run, request.reasons)}


@action("lease.delete", SETTLE, object_of(lease=TEXT))
def _delete(call: ActionCall, request: r.OfLease) -> Reply:
    """Deletes a lease without messages."""
    call.service.submit(c.DeleteLease(request.lease))
    return {"lease": request.lease}


def _enter(request: _Advance | _Plan | _Settle, signs: tuple[tuple[int, str | None], ...]) -> c.EnterLease:
    """`signs`: batches, each with its sign in the checkpoint."""
    head = None if request.head is None else parse_fields("field 'head'", request.head, HeadFields)
    return c.EnterLease(
        queue=request.queue,
        lease=request.lease,
        run=request.run,
        epoch=request.epoch,
        keep_timeout=True,  # only `lease.advance` has the timeout and the selector
        signs=tuple((batch, sign) for batch, sign in signs if sign is not None),
        head=None if head is None else (head.lease, head.epoch),
    )


def _plan_command(request: _Advance | _Plan, after: int, batch: int) -> c.PlanBatches:
    return c.PlanBatches(request.lease, after, batch, request.min_partitions, request.max_messages, request.fail_on_data_loss)


def _backlog(service: BrokerService, queue: str) -> dict[str, int | float | None]:
    counts = service.counts.of_queue(queue)
    age_s = max(0, service.wall_ms() - counts["oldest"] // 1000) / 1000
    return {
        "available": counts["available"],
        "oldestSeconds": age_s if counts["oldest"] else None,
        "inFlight": counts["acquired"],
        **{name: counts[name] for name in ("redelivered", "deadLettered", "bytes")},
    }
