"""Links on which a client receives the messages of one session, and the requests about sessions.

A session is a message group of a queue with the option `groups`. Its receiver locks the group in the engine. An attach that
asks for the next session is answered when one is free; until then the link looks for one as others look for messages.

Deferred messages of a session are received at `$management` by its connection, with the lock of the session.

| operation | right | |
|---|---|---|
| renew-session-lock | receive | of the receiver that holds the session |
| get-session-state, set-session-state | receive | of the receiver that holds the session |
| get-message-sessions | browse or receive | sessions with unsettled messages or a state |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ... import errors
from ...amqp import Condition, Rejected, Sender, Source
from ...amqp.performatives import Attach, DeliveryState, Error
from ...amqp.states import LinkState
from ...amqp.types import Array, Described, Int, Timestamp, Value
from ...engine import commands as c
from ...engine.columns.limits import MAX_GROUP_STATE
from ...engine.columns.obstacles import Obstacle
from ...engine.columns.rowset import RowSet
from ...engine.columns.states import Cause
from ...security.rights import Right
from ...service.turn import Turn
from .. import queue_reads
from ..conditions import Refusal
from ..connections.peer import Peer
from ..links.termini import SourceTerminus
from ..nodes.filters import Filters
from ..transactions.registry import ConnectionTransactions
from . import entities, request_fields, vendor
from .deferral import DeferredMessages
from .entities import Entity
from .receiving import EntityReceiver, Receivers
from .requests import GONE, NO_CONTENT, NOT_FOUND, OK, NodeRequest, NodeResponse, RequestFailed, check_space

WAIT_MS = 65_000  # for the next session, if the client sets no time limit: as the vendor's service
MAX_ID = 128  # characters of a session id in a request, as the vendor allows
MAX_LISTED = 1000  # sessions of one response
LISTS_ALL = 253_402_300_800_000  # milliseconds since 1970: an update time that SDKs send for all sessions

LOST = Error(condition=vendor.SESSION_LOCK_LOST, description="the lock of the session has ended: accept the session again")
NO_SESSION = Error(condition=vendor.TIMEOUT, description="no session with messages was free within the time limit")


def asks_for_session(theirs: Attach) -> bool:
    return isinstance(theirs.source, Source) and vendor.SESSION_FILTER in (theirs.source.filter or {})


def _session_of(theirs: Attach) -> str | None:
    """Return the session that an attach asks for; None: the next one. Raises Refusal."""
    assert isinstance(theirs.source, Source)
    value = (theirs.source.filter or {})[vendor.SESSION_FILTER]
    session = value.value if isinstance(value, Described) else value
    return None if session is None else _checked(session)


def _checked(session: object) -> str:
    if not isinstance(session, str) or not 0 < len(session) <= MAX_ID:
        raise Refusal(Condition.INVALID_FIELD, f"a session id is a text of 1 to {MAX_ID} characters, not {session!r:.80}")
    return session


class SessionSource(SourceTerminus):
    """Source: the messages of one session of a queue. `until`: the end of its lock, milliseconds since 1970."""

    session_id: str | None = None  # once it is locked
    until = 0

    def subscribe(self) -> c.Subscribe:
        return replace(super().subscribe(), one_group=True)

    def properties(self, theirs: Attach) -> dict[str, Value]:
        ticks = vendor.TICKS_OF_1970 + self.until * 10_000
        return {**super().properties(theirs), vendor.SESSION_LOCKED_UNTIL: ticks}

    def answer(self, asked: Source) -> Source:
        source = super().answer(asked)
        source.filter = {vendor.SESSION_FILTER: self.session_id}
        return source


#: By queue, the count of arrivals at the last search for a free session that found none. Links that wait ask the same question,
#: so one of them searches for all. For all connections of the plane.
Searches = dict[str, int]


class SessionReceiver(EntityReceiver):
    """Link from one session. `sessions` contains it while it is open or waits for a session."""

    terminus: SessionSource
    deferred: DeferredMessages  # of the session, as its client has received them
    _lost_state = Rejected(error=LOST)

    def __init__(
        self,
        peer: Peer,
        transactions: ConnectionTransactions,
        link: Sender,
        queue: str,
        theirs: Attach,
        receivers: Receivers,
        sessions: Sessions,
        searches: Searches,
        *,
        presettled: bool,
    ) -> None:
        terminus = SessionSource(peer, queue, queue, Filters())
        super().__init__(peer, transactions, link, terminus, receivers, presettled=presettled)
        self._sessions, self._searches = sessions, searches
        self._asked_for = _session_of(theirs)
        wait_ms = (theirs.properties or {}).get(vendor.WAITS_MS)
        self._deadline = peer.context.now() + (wait_ms if isinstance(wait_ms, int) else WAIT_MS) / 1000
        self._answer: Callable[[Turn], None] | None = None  # set while it waits for a session

    @property
    def session_id(self) -> str | None:
        return self.terminus.session_id

    # --- the lock

    def begin(self, turn: Turn) -> None:
        super().begin(turn)
        self.deferred = DeferredMessages(self.peer, self.queue, self.holder, self.locked_until)
        self._sessions[self] = None
        try:
            self._lock(turn)
        except errors.InUse as error:
            self.end(turn)
            raise Refusal(vendor.SESSION_CANNOT_BE_LOCKED, str(error)) from None

    def _lock(self, turn: Turn) -> None:
        self.terminus.session_id, _ = turn.execute(c.LockGroup(self.queue, self.holder, self._asked_for))
        self.terminus.until = super().locked_until(turn)

    def open(self, turn: Turn, answer: Callable[[Turn], None]) -> None:
        if self.session_id is not None:
            answer(turn)
            return
        self._answer = answer
        self.loop.has_capacity(self)

    def locked_until(self, turn: Turn) -> int:
        return self.terminus.until

    def renew_session(self, turn: Turn) -> int:
        """Renew the lock; return its end. Raises RequestFailed."""
        try:
            turn.execute(c.RenewGroupLock(self.queue, self.holder))
        except errors.Fenced:
            raise lock_lost() from None
        self.terminus.until = super().locked_until(turn)
        return self.terminus.until

    def renew(self, turn: Turn, tags: list[bytes]) -> int:
        return self.renew_session(turn)

    def locked(self, tag: bytes) -> None:
        if tag not in self.deferred:
            super().locked(tag)

    def settle_by_token(self, turn: Turn, tag: bytes, state: DeliveryState) -> None:
        if tag in self.deferred:
            self.deferred.settle_by_token(turn, tag, state)
        else:
            super().settle_by_token(turn, tag, state)

    def look(self, now: float) -> None:
        """Give up waiting, or detach the link whose lock has ended. `now`: the plane's clock, seconds."""
        if self._answer is not None and now >= self._deadline:
            self.peer.detach(self, NO_SESSION)
        elif self.session_id is not None and self.context.wall_ms() >= self.terminus.until:
            self.loop.in_commit(self._look_at_lock)

    def _look_at_lock(self, turn: Turn) -> None:
        if not self.ended and queue_reads.group_lock(turn, self.queue, self.holder) is None:
            self.loop.when_durable(turn.end, partial(self.peer.detach, self, LOST, Cause.LINK_CLOSED))

    def begun(self) -> RowSet:
        return super().begun().plus(self.deferred.rows())

    def end(self, turn: Turn) -> None:
        super().end(turn)
        self._sessions.pop(self, None)
        self._searches.pop(self.queue, None)
        if self._answer is not None and self.link.state is LinkState.DETACH_RCVD_UNANSWERED:
            self.loop.behind_all(turn, partial(self.peer.refuse, self.link, NO_SESSION))
        self._answer = None

    # --- waiting for a session

    def capacity(self) -> int:
        if self._answer is None:
            return super().capacity()
        return int(self.interest is not None and not self.ended)

    @property
    def obstacle(self) -> Obstacle | None:
        return super().obstacle if self._answer is None else None

    def take(self, turn: Turn, messages: int, max_bytes: int, behind: tuple[int, ...] = ()) -> tuple[RowSet, int]:
        if self._answer is None:
            return super().take(turn, messages, max_bytes, behind)
        arrivals = self.context.broker.arrivals.count
        if self._searches.get(self.queue) != arrivals:
            self._lock(turn)
            if self.session_id is not None:
                answer, self._answer = self._answer, None
                self.loop.behind_all(turn, self._rest)
                answer(turn)
            elif queue_reads.active_holder(turn, self.queue) is None:
                self._searches[self.queue] = arrivals
        return RowSet(), turn.end

    def _rest(self) -> None:
        """Begin to look for messages when the client has granted credit."""
        if self.interest is not None:
            self.interest.rests(self)


Sessions = dict[SessionReceiver, None]  # of one connection


def lock_lost() -> RequestFailed:
    return RequestFailed(GONE, vendor.SESSION_LOCK_LOST, str(LOST.description))


class SessionRequests:
    """The requests of one connection about the sessions of an entity."""

    def __init__(self, peer: Peer, entity: Entity, sessions: Sessions) -> None:
        self._peer, self._entity, self._sessions = peer, entity, sessions
        self.operations: dict[str, Callable[[Turn, NodeRequest, dict[str, Any]], NodeResponse]] = {
            vendor.RENEW_SESSION_LOCK: self._renew,
            vendor.GET_SESSION_STATE: self._get_state,
            vendor.SET_SESSION_STATE: self._set_state,
            vendor.LIST_SESSIONS: self._list,
        }

    def _receiver(self, turn: Turn, request: NodeRequest, body: dict[str, Any]) -> SessionReceiver:
        """Return the receiver that holds the session of a request. Raises Refusal, RequestFailed."""
        queue, session_id = entities.queue_of(self._peer, self._entity, Right.RECEIVE), _checked(body.get("session-id"))
        link_name = request.properties.get(vendor.ASSOCIATED_LINK)
        for link in self._sessions:
            is_named = link_name in (None, link.link.name)
            has_lock = queue_reads.group_lock(turn, queue, link.holder) is not None
            if (link.queue, link.session_id) == (queue, session_id) and is_named and has_lock:
                return link
        raise lock_lost()

    def deferred(self, turn: Turn, request: NodeRequest, body: dict[str, Any], rows: RowSet) -> DeferredMessages | None:
        """Return the receiver's holder of deferred messages; None if they belong to no session. Raises Refusal, RequestFailed."""
        if body.get("session-id") is None:
            queue = entities.queue_of(self._peer, self._entity, Right.RECEIVE)
            if others := queue_reads.deferred_of_group(turn, queue, rows, None):
                text = f"message {others.first + 1} of {queue!r:.80} is of a session: accept the session, and receive it there"
                raise RequestFailed(GONE, vendor.SESSION_LOCK_LOST, text)
            return None
        link = self._receiver(turn, request, body)
        if others := rows.minus(queue_reads.deferred_of_group(turn, link.queue, rows, link.session_id or "")):
            text = f"message {others.first + 1} of {link.queue!r:.80} is not a deferred one of session {link.session_id!r:.80}"
            raise RequestFailed(NOT_FOUND, vendor.MESSAGE_NOT_FOUND, text)
        return link.deferred

    def _renew(self, turn: Turn, request: NodeRequest, body: dict[str, Any]) -> NodeResponse:
        until = self._receiver(turn, request, body).renew_session(turn)
        return NodeResponse(OK, "OK", {"expiration": Timestamp(until)})

    def _get_state(self, turn: Turn, request: NodeRequest, body: dict[str, Any]) -> NodeResponse:
        link = self._receiver(turn, request, body)
        assert link.session_id is not None
        state = queue_reads.group_states(turn, link.queue).get(link.session_id)
        return NodeResponse(OK, "OK", {"session-state": None if state is None else state.octets})

    def _set_state(self, turn: Turn, request: NodeRequest, body: dict[str, Any]) -> NodeResponse:
        link, state = self._receiver(turn, request, body), body.get("session-state")
        if state is not None and not isinstance(state, bytes):
            raise Refusal(Condition.INVALID_FIELD, f"'session-state' is binary or null, not {state!r:.80}")
        if state is not None:
            check_space(self._peer, min(len(state), MAX_GROUP_STATE))
        turn.execute(c.SetGroupState(link.queue, link.holder, state))
        return NodeResponse(OK, "OK")

    def _list(self, turn: Turn, request: NodeRequest, body: dict[str, Any]) -> NodeResponse:
        queue = entities.queue_of(self._peer, self._entity, Right.BROWSE, Right.RECEIVE)
        skip, most = request_fields.number(body, "skip"), min(request_fields.number(body, "top"), MAX_LISTED)
        updated_ms = request_fields.signed(body, "last-updated-time")
        if updated_ms >= LISTS_ALL:
            sessions = queue_reads.group_names(turn, queue, skip, most)
        else:
            sessions = queue_reads.group_states(turn, queue).groups(updated_ms * 1000)[skip : skip + most]
        if not sessions:
            return NodeResponse(NO_CONTENT, "no session has messages or a state")
        return NodeResponse(OK, "OK", {"skip": Int(skip + len(sessions)), "sessions-ids": Array("string", tuple(sessions))})
