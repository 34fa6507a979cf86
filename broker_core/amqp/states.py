"""All states and transitions (2.4.6, 2.5.5, 2.6). Only these tables decide when a frame may be sent or received.

Each table maps (state, action) to the next state. An action begins with `s:` (we send) or `r:` (we receive). A missing entry is a
LocalProtocolError for our frame, and a RemoteProtocolError for the peer's.

The tables follow the specification's diagrams. They add three kinds of states:

- `*_UNANSWERED`: a peer may pipeline, so its close, end or detach may precede our own open, begin or attach.
- Closing, ending and detaching with an error (`s:error`), since later input is then treated differently.
- `VIOLATED*`: the peer has made an error (`r:error`) and the answer is still to be sent. The peer's later input is discarded. Our
  own begin or attach, and answers to earlier frames, leave before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from .errors import Condition, LocalProtocolError, RemoteProtocolError, Scope


class _State(Enum):
    __hash__ = object.__hash__  # Enum's own runs in Python, and every frame uses the tables


class ConnectionState(_State):
    """Section 2.4.6."""

    START = "start"
    HDR_RCVD = "header received"
    HDR_SENT = "header sent"
    HDR_EXCH = "headers exchanged"
    OPEN_PIPE = "open pipelined"
    OC_PIPE = "open and close pipelined"
    OPEN_RCVD = "open received"
    OPEN_SENT = "open sent"
    CLOSE_PIPE = "close pipelined"
    OPENED = "opened"
    CLOSE_RCVD_UNANSWERED = "open and close received"
    CLOSE_RCVD = "close received"
    CLOSE_SENT = "close sent"
    VIOLATED_UNANSWERED = "violated before our open"
    VIOLATED = "violated"
    DISCARDING = "discarding"
    END = "end"


class SessionState(_State):
    """Section 2.5.5."""

    UNMAPPED = "unmapped"
    BEGIN_SENT = "begin sent"
    BEGIN_RCVD = "begin received"
    MAPPED = "mapped"
    END_RCVD_UNANSWERED = "begin and end received"
    END_SENT = "end sent"
    END_RCVD = "end received"
    VIOLATED_UNANSWERED = "violated before our begin"
    VIOLATED = "violated"
    DISCARDING = "discarding"


class LinkState(_State):
    """Sections 2.6.3 to 2.6.6. ERRORED: only we have detached, with an error."""

    DETACHED = "detached"
    ATTACH_SENT = "attach sent"
    ATTACH_RCVD = "attach received"
    ATTACHED = "attached"
    DETACH_PIPE = "attach and detach sent"
    DETACH_RCVD_UNANSWERED = "attach and detach received"
    DETACH_SENT = "detach sent"
    DETACH_RCVD = "detach received"
    VIOLATED_UNANSWERED = "violated before our attach"
    VIOLATED = "violated"
    ERRORED = "detached with an error"


_Some = TypeVar("_Some", ConnectionState, SessionState, LinkState)
_Table = Mapping[_Some, Mapping[str, _Some]]

_C, _S, _L = ConnectionState, SessionState, LinkState


def _with_frames(table: dict[_Some, dict[str, _Some]], *, sends: tuple[_Some, ...], receives: tuple[_Some, ...]) -> _Table[_Some]:
    """Add the frames that do not change a state."""
    for action, states in (("s:frame", sends), ("r:frame", receives)):
        for state in states:
            table[state][action] = state
    return table


CONNECTION = _with_frames(
    {
        _C.START: {"s:header": _C.HDR_SENT, "r:header": _C.HDR_RCVD},
        _C.HDR_RCVD: {"s:header": _C.HDR_EXCH},
        _C.HDR_SENT: {"r:header": _C.HDR_EXCH, "s:open": _C.OPEN_PIPE},
        _C.HDR_EXCH: {"s:open": _C.OPEN_SENT, "r:open": _C.OPEN_RCVD, "r:error": _C.VIOLATED_UNANSWERED},
        _C.OPEN_PIPE: {"r:header": _C.OPEN_SENT, "s:close": _C.OC_PIPE, "s:error": _C.DISCARDING},
        _C.OC_PIPE: {"r:header": _C.CLOSE_PIPE},
        _C.OPEN_RCVD: {"s:open": _C.OPENED, "r:close": _C.CLOSE_RCVD_UNANSWERED, "r:error": _C.VIOLATED_UNANSWERED},
        _C.OPEN_SENT: {"r:open": _C.OPENED, "s:close": _C.CLOSE_PIPE, "s:error": _C.DISCARDING, "r:error": _C.VIOLATED},
        _C.CLOSE_PIPE: {"r:open": _C.CLOSE_SENT},
        _C.OPENED: {"s:close": _C.CLOSE_SENT, "r:close": _C.CLOSE_RCVD, "s:error": _C.DISCARDING, "r:error": _C.VIOLATED},
        _C.CLOSE_RCVD_UNANSWERED: {"s:open": _C.CLOSE_RCVD},
        _C.CLOSE_RCVD: {"s:close": _C.END, "s:error": _C.END},
        _C.CLOSE_SENT: {"r:close": _C.END, "s:error": _C.DISCARDING, "r:error": _C.DISCARDING},
        _C.VIOLATED_UNANSWERED: {"s:open": _C.VIOLATED, "r:open": _C.VIOLATED_UNANSWERED, "r:close": _C.CLOSE_RCVD_UNANSWERED},
        _C.VIOLATED: {"r:open": _C.VIOLATED, "r:close": _C.CLOSE_RCVD, "s:close": _C.CLOSE_SENT, "s:error": _C.DISCARDING},
        _C.DISCARDING: {"r:header": _C.DISCARDING, "r:open": _C.DISCARDING, "r:close": _C.END},
        _C.END: {},
    },
    sends=(_C.OPEN_PIPE, _C.OPEN_SENT, _C.OPENED, _C.CLOSE_RCVD, _C.VIOLATED),
    receives=(_C.OPEN_RCVD, _C.OPENED, _C.CLOSE_SENT, _C.VIOLATED_UNANSWERED, _C.VIOLATED, _C.DISCARDING),
)

SESSION = _with_frames(
    {
        _S.UNMAPPED: {"s:begin": _S.BEGIN_SENT, "r:begin": _S.BEGIN_RCVD},
        _S.BEGIN_SENT: {"r:begin": _S.MAPPED},
        _S.BEGIN_RCVD: {"s:begin": _S.MAPPED, "r:end": _S.END_RCVD_UNANSWERED, "r:error": _S.VIOLATED_UNANSWERED},
        _S.MAPPED: {"s:end": _S.END_SENT, "r:end": _S.END_RCVD, "s:error": _S.DISCARDING, "r:error": _S.VIOLATED},
        _S.END_RCVD_UNANSWERED: {"s:begin": _S.END_RCVD},
        _S.END_SENT: {"r:end": _S.UNMAPPED, "r:error": _S.DISCARDING},
        _S.END_RCVD: {"s:end": _S.UNMAPPED, "s:error": _S.UNMAPPED},
        _S.VIOLATED_UNANSWERED: {"s:begin": _S.VIOLATED, "r:end": _S.END_RCVD_UNANSWERED},
        _S.VIOLATED: {"r:end": _S.END_RCVD, "s:end": _S.END_SENT, "s:error": _S.DISCARDING},
        _S.DISCARDING: {"r:end": _S.UNMAPPED},
    },
    sends=(_S.BEGIN_SENT, _S.MAPPED, _S.END_RCVD, _S.VIOLATED),
    receives=(_S.BEGIN_RCVD, _S.MAPPED, _S.END_SENT, _S.VIOLATED_UNANSWERED, _S.VIOLATED, _S.DISCARDING),
)

LINK = _with_frames(
    {
        _L.DETACHED: {"s:attach": _L.ATTACH_SENT, "r:attach": _L.ATTACH_RCVD},
        _L.ATTACH_SENT: {"r:attach": _L.ATTACHED, "s:detach": _L.DETACH_PIPE},
        _L.ATTACH_RCVD: {"s:attach": _L.ATTACHED, "r:detach": _L.DETACH_RCVD_UNANSWERED, "r:error": _L.VIOLATED_UNANSWERED},
        _L.ATTACHED: {"s:detach": _L.DETACH_SENT, "r:detach": _L.DETACH_RCVD, "s:error": _L.ERRORED, "r:error": _L.VIOLATED},
        _L.DETACH_PIPE: {"r:attach": _L.DETACH_SENT},
        _L.DETACH_RCVD_UNANSWERED: {"s:attach": _L.DETACH_RCVD},
        _L.DETACH_SENT: {"r:detach": _L.DETACHED, "r:error": _L.ERRORED},
        _L.DETACH_RCVD: {"s:detach": _L.DETACHED, "s:error": _L.DETACHED},
        _L.VIOLATED_UNANSWERED: {"s:attach": _L.VIOLATED, "r:detach": _L.DETACH_RCVD_UNANSWERED},
        _L.VIOLATED: {"r:detach": _L.DETACH_RCVD, "s:detach": _L.DETACH_SENT, "s:error": _L.ERRORED},
        _L.ERRORED: {"r:detach": _L.DETACHED},
    },
    sends=(_L.ATTACH_SENT, _L.ATTACHED, _L.VIOLATED),
    receives=(_L.ATTACH_RCVD, _L.ATTACHED, _L.DETACH_SENT, _L.VIOLATED_UNANSWERED, _L.VIOLATED),
)

# Missing entries whose error is not amqp:illegal-state for the connection.
_CONDITIONS: dict[tuple[ConnectionState | SessionState | LinkState, str], tuple[str, Scope]] = {
    (_L.ERRORED, "r:frame"): (Condition.ERRANT_LINK, Scope.SESSION),  # 2.6.5
    **{
        (state, action): (Condition.UNATTACHED_HANDLE, Scope.SESSION)
        for state in (_L.DETACHED, _L.DETACH_RCVD, _L.DETACH_RCVD_UNANSWERED)
        for action in ("r:frame", "r:detach")
    },
}


def advance(table: _Table[_Some], state: _Some, action: str) -> _Some:
    following = table[state].get(action)
    if following is not None:
        return following
    kind, frame = type(state).__name__.removesuffix("State").lower(), action[2:]
    if action[0] == "s":
        raise LocalProtocolError(f"cannot send {frame}: the {kind} is in the state '{state.value}'")
    condition, scope = _CONDITIONS.get((state, action), (Condition.ILLEGAL_STATE, Scope.CONNECTION))
    raise RemoteProtocolError(condition, f"{frame} received while the {kind} is in the state '{state.value}'", scope)
