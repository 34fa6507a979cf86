"""The node `ENTITY/$management` of a queue or of its dead-letter queue.

| operation | right | |
|---|---|---|
| renew-lock | receive | all locks are renewed, or the request fails |
| update-disposition | receive | complete, abandon, defer and dead-letter by lock token |
| receive-by-sequence-number | receive | all deferred messages are received, or the request fails; see `deferral` |
| peek-message | browse or receive | messages that are not settled, also locked, deferred and scheduled ones |
| schedule-message | send | all messages are scheduled, or the request fails |
| cancel-scheduled-message | send | all messages are cancelled, or the request fails |
| add-rule, remove-rule | receive, also on the topic | see `rules` |
| enumerate-rules | receive | |

The requests about sessions are in `sessions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from ... import errors
from ...amqp import Accepted, Condition, Modified, Rejected
from ...amqp.performatives import DeliveryState, Error
from ...amqp.types import Array, Timestamp
from ...engine import commands as c
from ...messages.encoding.arriving import ArrivedMessages, arrived
from ...security.rights import Right
from ...security.users import ANONYMOUS
from ...service.turn import Turn
from .. import queue_reads
from ..conditions import Refusal
from ..connections.peer import Peer
from ..links.dispositions import rows_of_numbers
from . import entities, request_fields, vendor
from .deferral import MAX_RECEIVED, DeferredLocks, LocksByQueue
from .entities import Entity
from .peeks import EntityPeek
from .receiving import LockHolder, Receivers, holder_of, lock_lost
from .requests import NOT_FOUND, OK, Made, NodeRequest, NodeResponse, Operation, RequestFailed, check_space
from .rules import SubscriptionRules
from .sending import MAX_BATCH, check_users, scheduled
from .sessions import SessionRequests, Sessions
from .sessions import lock_lost as session_lock_lost

MAX_TOKENS = 1000  # of one request


class Management:
    """The requests of one connection about one entity."""

    def __init__(self, peer: Peer, entity: Entity, receivers: Receivers, sessions: Sessions, deferred: LocksByQueue) -> None:
        self._peer, self._entity, self._receivers, self._deferred = peer, entity, receivers, deferred
        self._of_sessions = SessionRequests(peer, entity, sessions)
        self._rules = SubscriptionRules(peer, entity)
        #: Requests that need more work before the broker's lock is taken.
        self._prepared: dict[str, Callable[[dict[str, Any]], Operation]] = {
            vendor.PEEK: self._peek,
            vendor.SCHEDULE: self._schedule,
            vendor.ADD_RULE: self._add_rule,
        }
        self._of_links: dict[str, Callable[[Turn, NodeRequest, dict[str, Any]], Made]] = {  # a request may name a link
            **self._of_sessions.operations,
            vendor.RECEIVE_BY_NUMBER: self._receive_deferred,
        }
        self._operations: dict[str, Callable[[Turn, dict[str, Any]], Made]] = {
            vendor.RENEW_LOCK: self._renew,
            vendor.SETTLE: self._settle,
            vendor.CANCEL: self._cancel,
            vendor.REMOVE_RULE: self._remove_rule,
            vendor.ENUMERATE_RULES: self._enumerate_rules,
        }

    def __call__(self, request: NodeRequest) -> Operation:
        """Read a request. Raises Refusal, RequestFailed, PenstockError."""
        name, body = request.text("operation"), request.message.value
        prepare, operation = self._prepared.get(name), self._operations.get(name)
        of_link = self._of_links.get(name)
        if prepare is None and operation is None and of_link is None:
            raise Refusal(Condition.NOT_IMPLEMENTED, f"the operation {name!r:.80} is not implemented: see docs/service-bus.md")
        if not isinstance(body, dict):
            raise Refusal(Condition.INVALID_FIELD, "the body of a request is a map")
        if prepare is not None:
            return prepare(body)
        if operation is not None:
            return lambda turn: operation(turn, body)
        assert of_link is not None
        return lambda turn: of_link(turn, request, body)

    # --- locks

    def _locked(self, turn: Turn, body: dict[str, Any]) -> dict[LockHolder, list[bytes]]:
        """Return the lock tokens of a request by their links.

        JavaScript's SDK also names the session in a queue without sessions.
        """
        queue = entities.queue_of(self._peer, self._entity, Right.RECEIVE)
        session = body.get("session-id") if queue_reads.is_grouped(turn, queue) else None
        links: dict[LockHolder, list[bytes]] = {}
        for token in dict.fromkeys(_tokens_of(body)):
            link = self._receivers.get(holder_of(token.bytes_le))
            is_known = link is not None and link.queue == queue and link.peer.user == self._peer.user
            if link is None or not is_known or session not in (None, link.session_id):
                raise lock_lost() if session is None else session_lock_lost()
            link.locked(token.bytes_le)
            links.setdefault(link, []).append(token.bytes_le)
        return links

    def _renew(self, turn: Turn, body: dict[str, Any]) -> NodeResponse:
        until: dict[bytes, int] = {}
        for link, tags in self._locked(turn, body).items():
            until |= dict.fromkeys(tags, link.renew(turn, tags))
        times = tuple(Timestamp(until[token.bytes_le]) for token in _tokens_of(body))
        return NodeResponse(OK, "OK", {"expirations": Array("timestamp", times)})

    def _settle(self, turn: Turn, body: dict[str, Any]) -> NodeResponse:
        state = _state(body)
        for link, tags in self._locked(turn, body).items():
            for tag in tags:
                link.settle_by_token(turn, tag, state)
        return NodeResponse(OK, "OK")

    # --- messages

    def _receive_deferred(self, turn: Turn, request: NodeRequest, body: dict[str, Any]) -> Made:
        queue = entities.queue_of(self._peer, self._entity, Right.RECEIVE)
        numbers, mode = request_fields.sequence_numbers(body, MAX_RECEIVED), request_fields.number(body, "receiver-settle-mode")
        if mode > 1:
            raise Refusal(Condition.INVALID_FIELD, f"'receiver-settle-mode' is 0 (delete) or 1 (lock), not {mode}")
        rows = rows_of_numbers([number - 1 for number in numbers])
        locks = self._deferred.setdefault(queue, DeferredLocks(self._peer, queue, self._receivers))
        holder = self._of_sessions.deferred(turn, request, body, rows) or locks
        return holder.receive(turn, numbers, delete=mode == 0)

    def _peek(self, body: dict[str, Any]) -> Operation:
        queue = entities.queue_of(self._peer, self._entity, Right.BROWSE, Right.RECEIVE)
        first, messages = request_fields.number(body, "from-sequence-number"), request_fields.number(body, "message-count")
        session_id = None if body.get("session-id") is None else request_fields.text(body, "session-id")
        return EntityPeek(self._peer, queue, first - 1, messages, session_id)

    def _schedule(self, body: dict[str, Any]) -> Operation:
        if self._peer.context.nodes.has_exchange("/".join(self._entity.path)):
            text = "a topic has no numbers to cancel by, since each subscription has its own copy: send with the scheduled time"
            raise Refusal(Condition.NOT_IMPLEMENTED, f"{text} as a property instead")
        queue = entities.queue_of(self._peer, self._entity, Right.SEND)
        payloads = [entry.get("message") for entry in request_fields.several(body, "messages", dict, MAX_BATCH)]
        if not all(isinstance(payload, bytes) for payload in payloads):
            raise Refusal(Condition.INVALID_FIELD, "'messages' is a list of maps with a binary 'message'")
        check_users(self._peer, payloads)
        read = arrived([scheduled(payload) for payload in payloads], self._peer.context.wall_ms())
        if read.refused:
            number, error = read.refused[0]
            raise errors.InvalidRequest(f"message {number} is invalid, so none was scheduled: {error}")
        return partial(self._enqueue, queue, read, sum(map(len, payloads)))

    def _enqueue(self, queue: str, read: ArrivedMessages, size: int, turn: Turn) -> NodeResponse:
        check_space(self._peer, size)
        placed, failure, _ = turn.enqueue(queue, read, whole=True)
        if failure is not None:
            turn.execute(c.CountRefused(queue, failure, read.rows))
            raise failure
        stored = range(read.rows) if placed.stored is None else placed.stored
        numbers = dict(zip(stored, range(placed.next - len(stored) + 1, placed.next + 1), strict=True))
        answer = tuple(numbers.get(row, 0) for row in range(read.rows))  # 0: a duplicate, which was dropped
        return NodeResponse(OK, "OK", {"sequence-numbers": Array("long", answer)})

    def _cancel(self, turn: Turn, body: dict[str, Any]) -> NodeResponse:
        queue = entities.queue_of(self._peer, self._entity, Right.SEND)
        rows = rows_of_numbers([number - 1 for number in request_fields.sequence_numbers(body, MAX_BATCH)])
        user = None if self._peer.user == ANONYMOUS else self._peer.user
        try:
            turn.execute(c.CancelDelayed(queue, rows, user))
        except errors.IllegalTransition:
            text = f"a message of {queue!r:.80} is not scheduled: it is due or was delivered before, or it has ended"
            raise RequestFailed(NOT_FOUND, vendor.MESSAGE_NOT_FOUND, f"{text}; none was cancelled") from None
        return NodeResponse(OK, "OK")

    # --- rules of a subscription

    def _add_rule(self, body: dict[str, Any]) -> Operation:
        return self._rules.addition(request_fields.text(body, "rule-name"), body.get("rule-description"))

    def _remove_rule(self, turn: Turn, body: dict[str, Any]) -> Made:
        return self._rules.remove(turn, request_fields.text(body, "rule-name"))

    def _enumerate_rules(self, turn: Turn, body: dict[str, Any]) -> Made:
        return self._rules.enumerate(turn, request_fields.number(body, "skip"), request_fields.number(body, "top"))


def _tokens_of(body: dict[str, Any]) -> Sequence[UUID]:
    return request_fields.several(body, "lock-tokens", UUID, MAX_TOKENS)


def _state(body: dict[str, Any]) -> DeliveryState:
    status = body.get("disposition-status")
    if status == "completed":
        return Accepted()
    changed = body.get("properties-to-modify") or {}
    if not isinstance(changed, dict):
        raise Refusal(Condition.INVALID_FIELD, f"'properties-to-modify' is a map, not {changed!r:.80}")
    if status == "abandoned":
        return Modified(delivery_failed=True, message_annotations=changed or None)
    if status == "defered":
        return Modified(delivery_failed=True, undeliverable_here=True, message_annotations=changed or None)
    if status == "suspended":
        info = {
            **changed,
            vendor.REASON: body.get("deadletter-reason"),
            vendor.DESCRIPTION: body.get("deadletter-description"),
        }
        return Rejected(error=Error(condition="com.microsoft:dead-letter", info=info))
    raise Refusal(Condition.NOT_IMPLEMENTED, f"the disposition {status!r:.80} is not implemented: see docs/service-bus.md")
