"""Each user's own names of leases, stages and writes, on a broker with users.

Otherwise a name would reveal that another user has it, and the first user to take a name would keep the others out. The engine's
name is the owner, a colon and the name: `alice:etl`. No user name contains a colon.

A lease outlives its query, whose user may change. So a name also finds another user's lease if the caller has the right on the
lease's queue. The request must then name the lease's run (from a checkpoint) or no run (an operator's command). Stages and writes
belong to their owner alone. An operator discards them by the name that `stage.list` returns, which needs another right.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from .. import errors
from ..engine.model.state import BrokerState
from ..security.rights import Right
from .callers import SEPARATOR, Caller
from .fields import Request
from .permissions import Operation, queues_of

R = TypeVar("R", bound=Request)

LISTED = 5  # leases that an error names


def resolve(state: BrokerState, caller: Caller, operation: Operation, request: R) -> R:
    """Replace the names in a request by the engine's. Raises InvalidRequest if a name could mean several leases."""
    changes: dict[str, Any] = {}
    lease, head = getattr(request, "lease", None), getattr(request, "head", None)
    run, queue = getattr(request, "run", None), getattr(request, "queue", None)
    is_fresh = getattr(request, "fresh", False)
    right = operation.need.right or Right.RECEIVE

    def find(name: str, queue: str | None, is_fresh: bool) -> str:
        if not caller.enforced:
            return _lease_of_run(state, name, run, is_fresh)
        return caller.own(name) if is_fresh else _lease(state, caller, right, name, run, queue)

    if isinstance(head, dict) and isinstance(head.get("lease"), str):
        # With users a fresh query also finds its head by the run.
        changes["head"] = {**head, "lease": find(head["lease"], None, is_fresh and not caller.enforced)}
    if lease is not None:
        changes["lease"] = find(lease, queue, is_fresh)
    if caller.enforced:
        for field in ("stage", "write"):
            name = getattr(request, field, None)
            if name is not None and not (operation.name == "stage.discard" and _is_listed(state, caller, name)):
                changes[field] = caller.own(name)
        if hasattr(request, "stages"):
            changes["stages"] = [caller.own(name) for name in request.stages]
    return replace(request, **changes)


def _is_listed(state: BrokerState, caller: Caller, name: str) -> bool:
    """True if `stage.list` returns this name to the caller, for another user's write."""
    if state.stages_of(caller.own(name)):
        return False
    stages = [stage for stage in map(state.stages.get, state.stages_of(name)) if stage is not None]
    return bool(stages) and all(map(caller.sees, queues_of(state, stages)))


def _lease_of_run(state: BrokerState, name: str, run: str | None, is_fresh: bool) -> str:
    """Without users, a query finds by its run the lease that it had under one."""
    if name in state.leases or run is None or is_fresh:
        return name
    leases = list(state.leases.values())
    return next((lease.name for lease in leases if lease.name.partition(SEPARATOR)[2] == name and lease.run == run), name)


def with_names(caller: Caller, leases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the caller's name of each lease."""
    prefix = caller.own("") if caller.enforced else ""
    return [{**row, "name": row["lease"].removeprefix(prefix)} for row in leases]


def _lease(state: BrokerState, caller: Caller, right: Right, name: str, run: str | None, queue: str | None) -> str:
    """Return the engine's name of the lease; the caller's own if there is no such lease."""
    own_name = caller.own(name)
    own = state.leases.get(own_name)
    if own is not None and run in (None, own.run):
        return own_name
    matches = [
        lease.name
        for lease in list(state.leases.values())
        if name in (lease.name, lease.name.partition(SEPARATOR)[2])
        and run in (None, lease.run)
        and queue in (None, lease.queue)
        and caller.may(right, lease.queue)
    ]
    if name in matches:
        return name
    if len(matches) > 1:
        names = ", ".join(map(repr, sorted(matches)[:LISTED]))
        raise errors.InvalidRequest(f"there are several leases {name!r:.300}: name one of {names}")
    return matches[0] if matches else own_name
