"""The declaration of an action, from which parser, permission check, OpenAPI, Flight's ListActions and docs/http.md come."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, get_type_hints

from ..security.access import Access
from ..security.rights import Right
from ..selectors import Presence
from ..service.broker import BrokerService
from .archive_reads import ArchiveReads
from .browses import Browses
from .callers import Caller
from .fields import Request
from .permissions import Need, NeedsOf, Operation
from .schemas import Schema

Q = TypeVar("Q", bound=Request)
Reply = dict[str, Any]


def compared_hints(presence: Presence | None) -> list[str]:
    """Return the hints of a finished comparison; none without messages to compare."""
    return presence.hints() if presence is not None and presence.compared else []


def with_hints(answer: Reply, hints: Sequence[str]) -> Reply:
    """Add hints about names in a selector that may be meant as fields."""
    return {**answer, "hints": list(hints)} if hints else answer


class ActionCall(NamedTuple):
    """The caller, and the parts of the broker that handlers use."""

    caller: Caller
    service: BrokerService
    access: Access
    browses: Browses
    archive: ArchiveReads
    url: str  # of the broker's Flight plane


class Declaration(NamedTuple):
    """An action. `reads`: it changes nothing, so HTTP also offers it with GET."""

    operation: Operation
    summary: str
    reply: Schema
    reads: bool
    audited: bool
    handler: Callable[[ActionCall, Any], Reply]


def action(
    name: str, need: Need, reply: Schema, *, needs: NeedsOf | None = None, reads: bool = False, audited: bool | None = None
) -> Callable[[Callable[[ActionCall, Q], Reply]], Declaration]:
    """Declare the decorated handler: its docstring is the summary, its `request` the type of the request.

    Changes that need the right admin or settle are audited, unless `audited` is given.
    """
    is_audited = not reads and need.right in (Right.ADMIN, Right.SETTLE) if audited is None else audited

    def declare(handler: Callable[[ActionCall, Q], Reply]) -> Declaration:
        request = get_type_hints(handler)["request"]
        return Declaration(
            Operation(name, request, need, needs), inspect.getdoc(handler) or "", reply, reads, is_audited, handler
        )

    return declare
