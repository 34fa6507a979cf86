"""The right that each request needs. docs/security.md has the table, which a test compares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from ..engine.model import exchange_options, options
from ..engine.model.stages import attempt_name
from ..engine.model.state import BrokerState, StageParts
from ..errors import InvalidRequest, NotAllowed, Unauthenticated
from ..security.audit import REFUSED
from ..security.rights import Right
from .callers import Caller
from .fields import Request


class Need(NamedTuple):
    """A right on the objects that a request names. Without `on`, every caller may make the request.

    `on`: `queue` (the fields `queue` and `exchange`), `lease` (its queue), `stages` (queues and exchanges of their messages),
    `staged` (the same, and queues of outcomes), `all` (every present and future queue), or `seen` (any right on the queue).
    """

    right: Right | None
    on: str | None
    verb: str  # in the refusal: "user may not …"


NeedsOf = Callable[[Need, Any, BrokerState, Caller], list[Need]]


class Operation(NamedTuple):
    """An action, a ticket or a put."""

    name: str
    request: type[Request]
    need: Need
    #: If a request needs more, less or other rights than `need`.
    needs: NeedsOf | None = None


ANYONE = Need(None, None, "")
BROWSE = Need(Right.BROWSE, "queue", "browse")
REPLAY = Need(Right.REPLAY, "queue", "replay")
RECEIVE = Need(Right.RECEIVE, "lease", "receive from")
STAGE = Need(Right.SEND, "stages", "send to")
SETTLE = Need(Right.SETTLE, "lease", "settle for others on")
SEND = Need(Right.SEND, "queue", "send to")
_OUTCOMES = Need(Right.RECEIVE, "outcomes", "receive from")
_OTHERS = Need(Right.ADMIN, "staged", "discard messages that another user has staged for")
_FROM = Need(Right.RECEIVE, "queue", "receive from")
_INTO = Need(Right.SEND, "target", "send to")
_ORIGINS = Need(Right.SEND, "origins", "send to")
# Messages arrive in queues and exchanges that options name, and in queues that are bound.
_OPTIONS = Need(Right.SEND, "options", "send to")
_BOUND = Need(Right.SEND, "bound", "send to")
#: The options of queues and exchanges that name another one.
NODE_OPTIONS = (
    *(name for name, option in options.OPTIONS.items() if option.allowed == options.QUEUE_NAME),
    *(name for name, allowed in exchange_options.OPTIONS.items() if allowed is None),
)

Check = Callable[[], None]


def admin(verb: str) -> Need:
    return Need(Right.ADMIN, "queue", verb)


def browse_needs(need: Need, request: Any, state: BrokerState, caller: Caller) -> list[Need]:
    needs = [REPLAY] if "archived" in request.states else []
    return [*needs, need] if not request.states or set(request.states) - {"archived"} else needs


def move_needs(need: Need, request: Any, state: BrokerState, caller: Caller) -> list[Need]:
    return [need, _FROM, _INTO]


def redrive_needs(need: Need, request: Any, state: BrokerState, caller: Caller) -> list[Need]:
    """The matches of a selector or of an error text reveal content, so they need a browse."""
    origins = [_ORIGINS] if _origins(state, request.queue) else []
    reveals = request.selector is not None or request.error is not None
    return [need, *origins, *([BROWSE] if reveals else [])]


def option_needs(need: Need, request: Any, state: BrokerState, caller: Caller) -> list[Need]:
    return [need, _OPTIONS] if _nodes_in_options(request) else [need]


def bind_needs(need: Need, request: Any, state: BrokerState, caller: Caller) -> list[Need]:
    return [need, _BOUND]


def stage_needs(need: Need, request: Any, state: BrokerState, caller: Caller) -> list[Need]:
    """Add a receive from the leases whose outcomes are staged. Stages with outcomes alone send nothing."""
    stages = _stages(state, request)
    if not any(stage.outcomes for stage in stages):
        return [need]
    return [need, _OUTCOMES] if any(stage.parts for stage in stages) else [_OUTCOMES]


def stage_put_needs(need: Need, request: Any, state: BrokerState, caller: Caller) -> list[Need]:
    """Add a receive from the leases whose outcomes the stage already has."""
    has_outcomes = any(stage.outcomes for stage in _stages(state, request))
    return [need, _OUTCOMES] if has_outcomes else [need]


def settle_put_needs(need: Need, request: Any, state: BrokerState, caller: Caller) -> list[Need]:
    has_messages = any(stage.parts for stage in _stages(state, request))
    return [*stage_put_needs(need, request, state, caller), *([STAGE] if has_messages else [])]


def discard_needs(need: Need, request: Any, state: BrokerState, caller: Caller) -> list[Need]:
    write = request.write
    if caller.enforced and write is not None and not write.startswith(caller.own("")):
        return [_OTHERS]
    return stage_needs(need, request, state, caller)


def authorize(state: BrokerState, caller: Caller, operation: Operation, request: Request) -> Check:
    """Return a check to repeat in a long call. Raises NotAllowed or Unauthenticated, which the audit log records.

    The answer does not distinguish a missing queue, lease or stage from one that the caller may not use.
    """
    need = operation.need
    needs = [need] if operation.needs is None else operation.needs(need, request, state, caller)
    resolved = [(need, *_objects(state, need, request)) for need in needs if need.on is not None]

    def check() -> None:
        for need, queues, label in resolved:
            if not _may(caller, need, queues):
                raise caller.refuse(f"{need.verb} {label}", need.right)

    def recorded(check: Check) -> None:
        try:
            check()
        except (NotAllowed, Unauthenticated) as error:
            caller.record(operation.name, request, REFUSED, error=str(error))
            raise

    def check_again() -> None:
        caller.renewed()
        check()

    recorded(check)
    return partial(recorded, check_again)


def _objects(state: BrokerState, need: Need, request: Any) -> tuple[list[str], str]:
    """Return the queues that a request is about, and their label in a refusal."""
    names = {kind: getattr(request, kind, None) for kind in ("exchange", "queue")}
    named = [name for name in names.values() if name is not None]
    if need.on == "lease":
        lease = state.leases.get(request.lease)
        return [*named, *([] if lease is None else [lease.queue])], f"the queue of lease {request.lease!r:.300}"
    if need.on == "all":
        return [], "every queue"
    if need.on in ("target", "bound"):
        queue = request.target if need.on == "target" else request.queue
        return [queue], f"queue {queue!r:.300}"
    if need.on == "options":
        nodes = _nodes_in_options(request)
        return nodes, " and ".join(f"{node!r:.300}" for node in nodes)
    if need.on == "origins":
        return _origins(state, request.queue), "the queues where its dead letters come from"
    if need.on == "outcomes":
        leases = {outcome.lease for stage in _stages(state, request) for outcome in list(stage.outcomes)}
        return sorted({state.leases[name].queue for name in leases if name in state.leases}), "the queues of these stages"
    if need.on == "staged":
        return queues_of(state, _stages(state, request)), "the queues of these stages"
    if need.on == "stages":
        # The right to send to an exchange includes every queue behind it.
        queues = {part.exchange or part.queue for stage in _stages(state, request) for part in list(stage.parts)}
        return [*named, *sorted(queues - set(named))], "the queues of these stages"
    return named, " and ".join(f"{kind} {name!r:.300}" for kind, name in names.items() if name is not None) or "any queue"


def _origins(state: BrokerState, name: str) -> list[str]:
    queue = state.queues.get(name)
    return [] if queue is None else [origin for origin in list(queue.origins) if origin in state.queues]


def _stages(state: BrokerState, request: Any) -> list[StageParts]:
    if hasattr(request, "stage"):
        names = [stage_of(request)]
    else:
        names = request.stages if request.write is None else state.stages_of(request.write)
    return [stage for stage in map(state.stages.get, names) if stage is not None]


def stage_of(request: Any) -> str:
    """Return the stage that a put fills: a named one, or that of an attempt. Raises InvalidRequest."""
    stage, write, attempt = request.stage, request.write, request.attempt
    if stage is not None and write is None and attempt is None:
        return str(stage)
    if stage is None and write is not None and attempt is not None:
        return attempt_name(write, attempt)
    raise InvalidRequest(f"{request.op}: field 'stage' must be there, or 'write' and 'attempt', and not both")


def queues_of(state: BrokerState, stages: Iterable[StageParts]) -> list[str]:
    """Return queues and exchanges of messages in stages, and queues of their outcomes."""
    queues: set[str] = set()
    for stage in stages:
        queues.update(part.exchange or part.queue for part in list(stage.parts))
        queues.update(state.leases[outcome.lease].queue for outcome in list(stage.outcomes) if outcome.lease in state.leases)
    return sorted(queues)


def _nodes_in_options(request: Any) -> list[str]:
    values = request.options or {}
    return [str(values[name]) for name in NODE_OPTIONS if values.get(name) is not None]


def _may(caller: Caller, need: Need, queues: list[str]) -> bool:
    if need.right is None:
        return all(caller.sees(queue) for queue in queues)
    if need.on == "all":
        return caller.may(need.right, None)
    if not queues:  # it does not exist, which is revealed to callers that might have had the right
        return caller.may_somewhere(need.right)
    return all(caller.may(need.right, queue) for queue in queues)


def visible(caller: Caller, rows: Iterable[Any]) -> list[Any]:
    return [row for row in rows if all(map(caller.sees, row.get("queues") or [row.get("queue") or row.get("exchange", "")]))]
