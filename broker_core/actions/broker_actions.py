"""Actions on the broker itself, its connections and users."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated, Any

from .. import __version__
from ..logs import one_line
from ..security.rights import Right
from ..service.status import status_of
from .declaration import ActionCall, Reply, action
from .fields import About, Request
from .permissions import ANYONE, Need, visible
from .schemas import BOOL, COPY, COUNT, MICROS, TEXT, component, list_of, map_of, nullable, object_of, properties

MAX_REASON = 200  # characters of the reason for the client
REASON = "closed by an operator"  # by default

log = logging.getLogger("penstock")


@dataclass(frozen=True, kw_only=True)
class _CloseConnection(Request):
    id: Annotated[str, About("id of the connection, from connection.list")]
    reason: Annotated[str | None, About("reason for the client; null: closed by an operator")] = None


@action("hello", ANYONE, object_of(version=COUNT, product=TEXT, broker=TEXT, flight=TEXT), reads=True)
def _hello(call: ActionCall, request: Request) -> Reply:
    """Returns the id of the broker and its version."""
    return {"version": 1, "product": f"penstock/{__version__}", "broker": call.service.broker_id, "flight": call.url}


@action("connection.list", ANYONE, object_of(connections=list_of(component("Connection"))), reads=True)
def _connections(call: ActionCall, request: Request) -> Reply:
    """Lists the caller's connections, or all of them with admin on all queues."""
    return {"connections": _visible_connections(call)}


@action("connection.close", ANYONE, object_of(id=TEXT, closed=BOOL), audited=True)
def _close_connection(call: ActionCall, request: _CloseConnection) -> Reply:
    """Closes a connection of a client. Its unsettled messages return to their queues."""
    reason = (request.reason or "")[:MAX_REASON]
    target = next((connection for connection in _visible_connections(call) if connection["id"] == request.id), None)
    closed = target is not None and call.service.connections.close(request.id, reason or REASON)
    if target is not None and closed:
        peers = target["id"], target["user"], target["peer"], call.caller.user, call.caller.peer
        why = f": {one_line(reason, MAX_REASON)}" if reason else ", without a reason"
        extra = {"peer": target["peer"], "user": target["user"]}
        log.info("connection %s of %s at %s was closed by %s at %s%s", *peers, why, extra=extra)
    return {"id": request.id, "closed": closed}


def _visible_connections(call: ActionCall) -> list[dict[str, Any]]:
    connections = call.service.connections.all()
    if call.caller.may(Right.ADMIN, None):
        return connections
    return [connection for connection in connections if connection["user"] == call.caller.user]


@action(
    "user.list",
    Need(Right.ADMIN, "all", "see the users of"),
    object_of(
        enforced=BOOL,
        users=list_of(object_of(user=TEXT, password=BOOL, certificates=list_of(TEXT), rights=map_of(list_of(TEXT)))),
    ),
    reads=True,
)
def _users(call: ActionCall, request: Request) -> Reply:
    """Lists users and their rights."""
    return {"enforced": call.access.enforced, "users": call.access.described()}


@action(
    "broker.status",
    ANYONE,
    object_of(
        ("directory",),
        broker=TEXT,
        **properties(COUNT, "end", "journalBytes", "freeBytes"),
        copy=nullable(COPY),
        alarms=list_of(component("Alarm")),
        version=TEXT,
        startedAt=MICROS,
        uptimeSeconds=COUNT,
        listeners=list_of(TEXT),
        users=COUNT,
        directory=TEXT,
    ),
    reads=True,
)
def _status(call: ActionCall, request: Request) -> Reply:
    """Reports version, uptime, log, disk, copy and alarms of the broker."""
    service, caller = call.service, call.caller
    status = status_of(service) | {"version": __version__, "users": call.access.user_count}
    if caller.may(Right.ADMIN, None):
        status["directory"] = str(service.settings.data)
    status["alarms"] = [alarm for alarm in status["alarms"] if alarm["queue"] is None or caller.sees(alarm["queue"])]
    return status


@action(
    "broker.journal",
    ANYONE,
    object_of(
        **properties(COUNT, "bytes", "heldBytes", "neededBytes", "mostBytes", "retentionMark", "snapshot"),
        oldest=nullable(component("Need")),
        queues=list_of(object_of(queue=TEXT, neededBytes=COUNT)),
        segments=list_of(object_of(begin=COUNT, end=COUNT, bytes=COUNT, neededBytes=COUNT, kept=nullable(TEXT))),
    ),
    reads=True,
)
def _journal(call: ActionCall, request: Request) -> Reply:
    """Reports the size of the journal, and the queues that need it."""
    report = call.service.cleaner.report()
    report["queues"] = visible(call.caller, report["queues"])
    oldest = report["oldest"]
    if oldest is not None and not visible(call.caller, [oldest]):
        report["oldest"] = {name: oldest[name] for name in ("position", "time") if name in oldest}
    return report
