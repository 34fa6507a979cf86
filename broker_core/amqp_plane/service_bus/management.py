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
from ...engine.columns.rowset import RowSet
from ...engine.columns.states import Cause
from ...messages.encoding.arriving import arrived
from ...reading.slices import BlockSlice
from ...security.rights import Right
from ...security.users import ANONYMOUS
from ...service.turn import Turn
from .. import queue_reads
from ..conditions import Refusal
from ..connections.peer import Peer
from ..links.dispositions import rows_of_numbers
from ..links.outgoing_link import messages_of
from ..transactions.registry import ConnectionTransactions
from . import entities, vendor
from .annotations import dressed, with_state
from .deferral import MAX_RECEIVED, DeferredLocks
from .entities import Entity
from .receiving import LockHolder, Receivers, holder_of, lock_lost
from .requests import BUSY, NO_CONTENT, NOT_FOUND, OK, NodeRequest, NodeResponse, RequestFailed, RequestLink
from .rules import SubscriptionRules
from .sending import MAX_BATCH, scheduled
from .sessions import SessionRequests, Sessions
from .sessions import lock_lost as session_lock_lost

MAX_NUMBER = (1 << 63) - 1
MAX_PEEKED, PEEKED_BYTES = 1000, 1 << 20  # of one response

Made = NodeResponse | Callable[[], NodeResponse]


class Management:
    """The requests of one connection about one entity."""

    def __init__(self, peer: Peer, entity: Entity, receivers: Receivers, sessions: Sessions) -> None:
        self._peer, self._entity, self._receivers = peer, entity, receivers
        self._deferred: dict[str, DeferredLocks] = {}  # by queue
        self._of_sessions = SessionRequests(peer, entity, sessions)
        self._rules = SubscriptionRules(peer, entity)
        self._of_links: dict[str, Callable[[Turn, NodeRequest, dict[str, Any]], Made]] = {  # a request may name a link
            **self._of_sessions.operations,
            vendor.RECEIVE_BY_NUMBER: self._receive_deferred,
        }
        self._operations: dict[str, Callable[[Turn, dict[str, Any]], Made]] = {
            vendor.RENEW_LOCK: self._renew,
            vendor.SETTLE: self._settle,
            vendor.PEEK: self._peek,
            vendor.SCHEDULE: self._schedule,
            vendor.CANCEL: self._cancel,
            vendor.ADD_RULE: self._add_rule,
            vendor.REMOVE_RULE: self._remove_rule,
            vendor.ENUMERATE_RULES: self._enumerate_rules,
        }

    def __call__(self, turn: Turn, request: NodeRequest) -> Made:
        """Answer a request. Raises Refusal, RequestFailed, PenstockError."""
        name, body = request.text("operation"), request.message.value
        operation, of_link = self._operations.get(name), self._of_links.get(name)
        if operation is None and of_link is None:
            raise Refusal(Condition.NOT_IMPLEMENTED, f"the operation {name!r:.80} is not implemented: see docs/service-bus.md")
        if not isinstance(body, dict):
            raise Refusal(Condition.INVALID_FIELD, "the body of a request is a map")
        if of_link is not None:
            return of_link(turn, request, body)
        assert operation is not None
        return operation(turn, body)

    def end(self, turn: Turn, cause: Cause) -> None:
        for locks in self._deferred.values():
            locks.end(turn, cause)

    # --- locks

    def _locked(self, turn: Turn, body: dict[str, Any]) -> dict[LockHolder, list[bytes]]:
        """Return the lock tokens of a request by their links.

        JavaScript's SDK also names the session of a message in a queue without sessions.
        """
        queue = entities.queue_of(self._peer, self._entity, Right.RECEIVE)
        session = body.get("session-id") if queue_reads.is_grouped(turn, queue) else None
        links: dict[LockHolder, list[bytes]] = {}
        for token in _several(body, "lock-tokens", UUID):
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
        times = tuple(Timestamp(until[token.bytes_le]) for token in _several(body, "lock-tokens", UUID))
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
        numbers, mode = _sequence_numbers(body), _number(body, "receiver-settle-mode")
        if len(numbers) > MAX_RECEIVED or mode > 1:
            text = f"'sequence-numbers' are at most {MAX_RECEIVED:,}, and 'receiver-settle-mode' is 0 (delete) or 1 (lock)"
            raise Refusal(Condition.INVALID_FIELD, text)
        rows = rows_of_numbers([number - 1 for number in numbers])
        locks = self._deferred.setdefault(queue, DeferredLocks(self._peer, queue, self._receivers))
        holder = self._of_sessions.deferred(turn, request, body, rows) or locks
        return holder.receive(turn, numbers, delete=mode == 0)

    def _peek(self, turn: Turn, body: dict[str, Any]) -> Made:
        name, _ = entities.node_of(self._entity.path)
        right = Right.BROWSE if self._peer.may(Right.BROWSE, name) else Right.RECEIVE
        queue = entities.queue_of(self._peer, self._entity, right)
        first, count = _number(body, "from-sequence-number"), _number(body, "message-count")
        group = body.get("session-id")
        if group is not None and not isinstance(group, str):
            raise Refusal(Condition.INVALID_FIELD, f"'session-id' is a text, not {group!r:.80}")
        rows, delayed, deferred = queue_reads.unsettled_from(turn, queue, first - 1, min(count, MAX_PEEKED), group)
        if not rows:
            return NodeResponse(NO_CONTENT, "no message is waiting from that sequence number on")
        return partial(self._peeked, turn.slices(queue, rows), delayed, deferred)

    def _peeked(self, slices: Sequence[BlockSlice], delayed: RowSet, deferred: RowSet) -> NodeResponse:
        broker, peeked, size = self._peer.context.broker, list[dict[str, bytes]](), 0
        for block_slice in slices:
            for time, tags, encoded in messages_of(broker, block_slice, lambda indexes, error: None):
                for tag, message in zip(tags, encoded if isinstance(encoded, list) else (), strict=False):
                    if size >= PEEKED_BYTES:
                        break
                    number = int.from_bytes(tag, "big")
                    state = vendor.SCHEDULED_STATE if number in delayed else vendor.ACTIVE_STATE
                    state = vendor.DEFERRED_STATE if number in deferred else state
                    octets = with_state(dressed(message, number, time // 1000, None), state)
                    peeked.append({"message": octets})
                    size += len(octets)
        return NodeResponse(OK, "OK", {"messages": peeked})

    def _schedule(self, turn: Turn, body: dict[str, Any]) -> NodeResponse:
        if self._peer.context.nodes.has_exchange("/".join(self._entity.path)):
            text = "a topic has no numbers to cancel by, since each subscription has its own copy: send with the scheduled time"
            raise Refusal(Condition.NOT_IMPLEMENTED, f"{text} as a property instead")
        queue = entities.queue_of(self._peer, self._entity, Right.SEND)
        payloads = [entry.get("message") for entry in _several(body, "messages", dict)]
        if len(payloads) > MAX_BATCH or not all(isinstance(payload, bytes) for payload in payloads):
            raise Refusal(Condition.INVALID_FIELD, f"'messages' is a list of up to {MAX_BATCH:,} maps with a binary 'message'")
        encoded = [scheduled(payload) for payload in payloads if isinstance(payload, bytes)]
        read = arrived(encoded, self._peer.context.wall_ms())
        if read.refused:
            number, error = read.refused[0]
            raise errors.InvalidRequest(f"message {number} is invalid, so none was scheduled: {error}")
        if not self._peer.context.broker.has_space(sum(map(len, encoded))):
            raise RequestFailed(BUSY, vendor.SERVER_BUSY, "the journal waits for the disk, so nothing was scheduled: try again")
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
        rows = rows_of_numbers([number - 1 for number in _sequence_numbers(body)])
        user = None if self._peer.user == ANONYMOUS else self._peer.user
        try:
            turn.execute(c.CancelDelayed(queue, rows, user))
        except errors.IllegalTransition:
            text = f"a message of {queue!r:.80} is not scheduled: it is due or was delivered before, or it has ended"
            raise RequestFailed(NOT_FOUND, vendor.MESSAGE_NOT_FOUND, f"{text}; none was cancelled") from None
        return NodeResponse(OK, "OK")

    # --- rules of a subscription

    def _add_rule(self, turn: Turn, body: dict[str, Any]) -> NodeResponse:
        return self._rules.add(turn, _text(body, "rule-name"), body.get("rule-description"))

    def _remove_rule(self, turn: Turn, body: dict[str, Any]) -> NodeResponse:
        return self._rules.remove(turn, _text(body, "rule-name"))

    def _enumerate_rules(self, turn: Turn, body: dict[str, Any]) -> NodeResponse:
        return self._rules.enumerate(turn, _number(body, "skip"), _number(body, "top"))


class ManagementLink(RequestLink):
    """Link on which a client sends requests about an entity."""

    def __init__(
        self,
        peer: Peer,
        transactions: ConnectionTransactions,
        link: Any,
        entity: Entity,
        receivers: Receivers,
        sessions: Sessions,
    ) -> None:
        self._management = Management(peer, Entity(entity.path), receivers, sessions)
        super().__init__(peer, transactions, link, entity, self._management)

    def end(self, turn: Turn) -> None:
        super().end(turn)
        self._management.end(turn, self.end_cause)


def _several(body: dict[str, Any], name: str, kind: type) -> Sequence[Any]:
    """Return the values of an array or list. Raises Refusal."""
    value = body.get(name)
    items = value.items if isinstance(value, Array) else value
    if not isinstance(items, (list, tuple)) or not items or not all(isinstance(item, kind) for item in items):
        raise Refusal(Condition.INVALID_FIELD, f"{name!r} is a list of one value or more")
    if kind is int and not all(-MAX_NUMBER <= item <= MAX_NUMBER for item in items):
        raise Refusal(Condition.INVALID_FIELD, f"the numbers of {name!r} have 64 bits")
    return items


def _sequence_numbers(body: dict[str, Any]) -> Sequence[int]:
    """Raises Refusal."""
    numbers: Sequence[int] = _several(body, "sequence-numbers", int)
    if any(abs(number) >= 1 << 63 for number in numbers):
        raise Refusal(Condition.INVALID_FIELD, "a sequence number is below 2^63")
    return numbers


def _number(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise Refusal(Condition.INVALID_FIELD, f"{name!r} is a number of 0 or more, not {value!r:.80}")
    return value


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise Refusal(Condition.INVALID_FIELD, f"{name!r} is a text, not {value!r:.80}")
    return value


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
