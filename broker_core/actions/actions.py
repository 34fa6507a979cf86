"""Every action."""

from __future__ import annotations

import json

from .. import errors
from ..security.access import Access
from ..service.broker import BrokerService
from . import (
    archive_actions,
    auditing,
    broker_actions,
    exchange_actions,
    explain_actions,
    lease_actions,
    message_actions,
    move_actions,
    namespaces,
    queue_actions,
    stage_actions,
    user_actions,
)
from .archive_reads import ArchiveReads
from .browses import Browses
from .callers import Caller
from .declaration import ActionCall, Declaration
from .fields import parse
from .permissions import authorize

_MODULES = (
    *(broker_actions, queue_actions, explain_actions, move_actions, message_actions, exchange_actions),
    *(archive_actions, stage_actions, lease_actions, user_actions, auditing),
)
ACTIONS = {
    action.operation.name: action for module in _MODULES for action in vars(module).values() if isinstance(action, Declaration)
}


class Actions:
    """The actions of one broker. `url`: of its Flight plane."""

    def __init__(self, service: BrokerService, archive: ArchiveReads, access: Access) -> None:
        self.url = ""
        self._service = service
        self._parts = service, access, Browses(service, archive), archive

    def carry_out(self, caller: Caller, name: str, body: bytes) -> bytes:
        action = ACTIONS.get(name)
        if action is None:
            raise errors.InvalidRequest(f"unknown action {name!r:.80}; known are {', '.join(ACTIONS)}")
        request = parse(name, body, action.operation.request)
        request = namespaces.resolve(self._service.state, caller, action.operation, request)
        authorize(self._service.state, caller, action.operation, request)
        call = ActionCall(caller, *self._parts, self.url)
        reply = auditing.carry_out(call, action, request) if action.audited else action.handler(call, request)
        return json.dumps(reply).encode()
