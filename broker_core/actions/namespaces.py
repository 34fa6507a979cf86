"""Names that users choose: each user has names of leases, stages and writes of its own, once there are users.

Else a name would tell that somebody else has it, and whoever takes it first would keep others out. The engine knows each
with its owner before a colon, which no user's name has: `alice:etl`. Without users there is no owner, and no colon.

A lease outlives its query, and the query's user may change meanwhile. So a name finds another user's lease, too, where the caller
has the right on that lease's queue, and the run is the lease's (a checkpoint has it) or not said (an operator's command). Stages
and writes are found by their owner alone; an operator discards them by the name that `stage.list` gives, and who sees that list
may name them (`permissions` then asks for more).
"""

from __future__ import annotations

from typing import Any

from .. import errors
from ..engine.model.state import BrokerState
from ..security.rights import Right
from .callers import SEPARATOR, Caller
from .permissions import NEEDS, queues_of

LISTED = 5  # leases that an error names


def resolve(state: BrokerState, caller: Caller, request: str, fields: dict[str, Any]) -> None:
    """Make the names in a request the engine's. InvalidRequest where a name could be one of several leases."""
    if not caller.enforced:
        _after_the_last_user(state, fields)
        return
    for field in ("stage", "write"):
        name = fields.get(field)
        if isinstance(name, str) and not (request == "stage.discard" and _listed(state, caller, name)):
            fields[field] = _own(caller, name)
    if isinstance(fields.get("stages"), list):
        fields["stages"] = [_own(caller, name) if isinstance(name, str) else name for name in fields["stages"]]
    right = NEEDS[request].right or Right.RECEIVE
    head = fields.get("head")
    if isinstance(head, dict) and isinstance(head.get("lease"), str):
        found = _lease(state, caller, right, {"lease": head["lease"], "run": fields.get("run")})
        fields["head"] = {**head, "lease": found}
    if isinstance(fields.get("lease"), str):
        fields["lease"] = _lease(state, caller, right, fields)


def _listed(state: BrokerState, caller: Caller, name: str) -> bool:
    """Say whether `stage.list` gives this name to the caller, for a write that is another's."""
    if state.stages_of(_own(caller, name)):
        return False
    stages = [known for known in map(state.stages.get, state.stages_of(name)) if known is not None]
    return bool(stages) and all(map(caller.sees, queues_of(state, stages)))


def _after_the_last_user(state: BrokerState, fields: dict[str, Any]) -> None:
    """There are no users (any more): a query finds the lease that it had under one, by its run."""
    run, head = fields.get("run"), fields.get("head")

    def found(name: str) -> str:
        if name in state.leases or run is None or fields.get("fresh"):
            return name
        leases = list(state.leases.values())
        return next((each.name for each in leases if each.name.partition(SEPARATOR)[2] == name and each.run == run), name)

    if isinstance(fields.get("lease"), str):
        fields["lease"] = found(fields["lease"])
    if isinstance(head, dict) and isinstance(head.get("lease"), str):
        fields["head"] = {**head, "lease": found(head["lease"])}


def named(caller: Caller, leases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `lease.list`, with the name by which this caller's requests find each."""
    prefix = _own(caller, "") if caller.enforced else ""
    return [{**row, "name": row["lease"].removeprefix(prefix)} for row in leases]


def _own(caller: Caller, name: str) -> str:
    return caller.own(name)


def _lease(state: BrokerState, caller: Caller, right: Right, fields: dict[str, Any]) -> str:
    """The engine's name of the lease that is meant; the caller's own where there is none."""
    name, run, queue = fields["lease"], fields.get("run"), fields.get("queue")
    mine = _own(caller, name)
    own = state.leases.get(mine)
    if fields.get("fresh") or (own is not None and run in (None, own.run)):
        return mine
    found = [
        other.name
        for other in list(state.leases.values())
        if name in (other.name, other.name.partition(SEPARATOR)[2])
        and run in (None, other.run)
        and queue in (None, other.queue)
        and caller.may(right, other.queue)
    ]
    if name in found:
        return str(name)
    if len(found) > 1:
        named = ", ".join(map(repr, sorted(found)[:LISTED]))
        raise errors.InvalidRequest(f"there are several leases {name!r:.300}: name one of {named}")
    return found[0] if found else mine
