"""The actions of who runs the broker: connections, users, the broker itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from .. import __version__
from ..engine.model.options import OPTIONS, Option
from ..logs import one_line
from ..security.access import Access
from ..security.rights import Right
from ..service.broker import BrokerService
from .callers import Caller

MAX_REASON = 200  # characters that the peer of a closed connection is told
REASON = "closed by an operator"  # what the peer is told if the operator gives no reason

log = logging.getLogger("penstock")


def operating_actions(service: BrokerService, access: Access | None) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
    """By name, as in `requests.ACTIONS`. Each gets the field `caller`, too."""

    def mine(caller: Caller) -> list[dict[str, Any]]:
        """All connections for who has `admin` on everything, else one's own."""
        found = service.connections.all()
        return found if caller.may_everywhere(Right.ADMIN) else [each for each in found if each["user"] == caller.user]

    def close(f: dict[str, Any]) -> dict[str, Any]:
        caller, reason = f["caller"], (f["reason"] or "")[:MAX_REASON]
        target = next((each for each in mine(caller) if each["id"] == f["id"]), None)
        closed = target is not None and service.connections.close(f["id"], reason or REASON)
        if target is not None and closed:
            _log_closed(target, caller, reason)
        return {"id": f["id"], "closed": closed}

    def users(f: dict[str, Any]) -> dict[str, Any]:
        return {"enforced": access is not None and access.enforced, "users": [] if access is None else access.described()}

    return {
        "queue.options": lambda f: {"options": {name: _described(option) for name, option in OPTIONS.items()}},
        "connection.list": lambda f: {"connections": mine(f["caller"])},
        "connection.close": close,
        "user.list": users,
    }


def _log_closed(connection: dict[str, Any], caller: Caller, reason: str) -> None:
    log.info(
        "connection %s of %s at %s was closed by %s at %s%s",
        connection["id"],
        connection["user"],
        connection["peer"],
        caller.user,
        caller.peer,
        f": {one_line(reason, MAX_REASON)}" if reason else ", without a reason",
        extra={"peer": connection["peer"], "user": connection["user"]},
    )


def about(service: BrokerService, access: Access | None, caller: Caller) -> dict[str, Any]:
    """Describe the broker itself, for `broker.status`. Where it keeps its data is for administrators."""
    found = {
        "version": __version__,
        "startedAt": service.started_ms * 1000,
        "uptimeSeconds": int((service.wall_ms() - service.started_ms) / 1000),
        "listeners": service.listeners,
        "users": 0 if access is None else access.count,
    }
    if caller.may_everywhere(Right.ADMIN):
        found["directory"] = str(service.settings.data)
    return found


def _described(option: Option) -> dict[str, Any]:
    allowed = option.allowed
    if isinstance(allowed, range):
        text = f"a whole number from {allowed.start} to {allowed.stop - 1}"
    else:
        text = allowed if isinstance(allowed, str) else ", ".join(allowed)
    return {**option._asdict(), "allowed": text}
