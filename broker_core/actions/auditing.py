"""Entries of the audit log about actions, and the action that reads them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from .. import errors, moments
from ..engine.model.state import BrokerState
from ..security.audit import DONE, FAILED, OUTCOMES, AuditFilter, time_text
from ..security.rights import Right
from .callers import Caller
from .declaration import ActionCall, Declaration, Reply, action
from .fields import About, Request
from .permissions import Need, admin
from .schemas import component, list_of, object_of

MAX_ENTRIES = 1_000  # in one answer

#: Fields of replies that count messages or bindings.
_COUNTS = ("purged", "discarded", "moved", "copied", "redriven", "unbound", "messages")
_TIME = "such as -2h or 2026-11-25, in UTC; null: any"


def carry_out(call: ActionCall, declaration: Declaration, request: Request) -> Reply:
    """Record the outcome of a permitted action."""
    record = partial(call.caller.record, declaration.operation.name, request)
    try:
        reply = declaration.handler(call, request)
    except errors.PenstockError as error:
        record(outcome=FAILED, error=str(error))
        raise
    except BaseException:
        record(outcome=FAILED, error="internal error: the log of the broker has the details")
        raise
    record(outcome=DONE, count=next((reply[name] for name in _COUNTS if name in reply), None))
    return reply


@dataclass(frozen=True, kw_only=True)
class _AuditList(Request):
    queue: Annotated[str | None, About("only actions on this queue; null: on anything")] = None
    user: Annotated[str | None, About("only actions of this user; null: any")] = None
    action: Annotated[str | None, About("only this action, such as queue.purge or purge; null: any")] = None
    outcome: Annotated[str | None, About(f"only this outcome: {', '.join(OUTCOMES)}; null: any")] = None
    since: Annotated[str | None, About(f"earliest time, {_TIME}")] = None
    until: Annotated[str | None, About(f"end of the times, excluded, {_TIME}")] = None
    count: Annotated[int, About(f"how many entries to return, at most {MAX_ENTRIES}", least=1)] = 100


_OF_ALL = Need(Right.ADMIN, "all", "read the audit log of")


def _needs(need: Need, request: _AuditList, state: BrokerState, caller: Caller) -> list[Need]:
    return [need] if request.queue is None else [admin("read the audit log of")]


@action("audit.list", _OF_ALL, object_of(entries=list_of(component("AuditEntry"))), needs=_needs, reads=True)
def _list(call: ActionCall, request: _AuditList) -> Reply:
    """Returns entries of the audit log, the newest first."""
    if request.outcome is not None and request.outcome not in OUTCOMES:
        raise errors.InvalidRequest(f"audit.list: field 'outcome' must be {', '.join(OUTCOMES)}, not {request.outcome!r:.80}")
    if request.count > MAX_ENTRIES:
        raise errors.InvalidRequest(f"audit.list: field 'count' must be 1 to {MAX_ENTRIES:,}, not {request.count}")
    since, until = moments.parse_bounds(request.since, request.until, call.browses.wall_time())
    bounds = {
        name: None if micros is None else time_text(micros // 1000) for name, micros in (("since", since), ("until", until))
    }
    wanted = AuditFilter(user=request.user, action=request.action, object=request.queue, outcome=request.outcome, **bounds)
    try:
        return {"entries": call.service.audit.entries(wanted, request.count)}
    except OSError as error:
        raise errors.StorageError(f"the audit log cannot be read: {error}") from error
