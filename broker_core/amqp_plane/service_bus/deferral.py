"""Deferred messages, received by sequence number at `$management`, and settled by lock token.

The locks belong to the connection, and end with it. Then the messages are deferred again. So all receivers of a client can settle
them, also after the receiver that got them is closed. A message of a session is received with the lock of the session: see
`sessions`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from ... import errors
from ...amqp import Condition, RemoteProtocolError
from ...amqp.performatives import DeliveryState
from ...engine import commands as c
from ...engine.columns.rowset import RowSet
from ...engine.columns.states import Cause
from ...engine.model.dispositions import DeliveryEnd
from ...reading.slices import BlockSlice
from ...security.users import ANONYMOUS
from ...service.turn import Turn
from .. import queue_reads
from ..conditions import Refusal
from ..connections.peer import Peer
from ..links.dispositions import ACCEPTED, NUMBER, RETURNED, disposition_of, rows_of_numbers, rows_of_tags
from ..links.outgoing_link import messages_of
from . import vendor
from .annotations import dressed, with_state
from .receiving import Receivers, as_changes, as_vendor, lock_end, lock_lost, lock_suffix, renewed
from .requests import NOT_FOUND, OK, NodeResponse, RequestFailed

MAX_RECEIVED, RECEIVED_BYTES = 1000, 1 << 20  # of one response; a single message may be larger


class DeferredMessages:
    """Deferred messages of one queue that a holder has received."""

    def __init__(self, peer: Peer, queue: str, holder: int, lock_end: Callable[[Turn], int]) -> None:
        """`lock_end`: returns the end of the locks of messages that are received now, milliseconds since 1970."""
        self.peer, self.queue, self.holder = peer, queue, holder
        self._lock_end = lock_end
        self._tokens: dict[int, bytes] = {}  # by sequence number
        self._acquisitions = secrets.randbits(24)  # as in `EntityReceiver`

    def __contains__(self, tag: bytes) -> bool:
        return self._tokens.get(int.from_bytes(tag[:NUMBER], "big")) == tag

    def rows(self) -> RowSet:
        """Return the messages, also some that have ended."""
        return rows_of_numbers(list(self._tokens))

    def receive(self, turn: Turn, numbers: Sequence[int], *, delete: bool) -> Callable[[], NodeResponse]:
        """Lock messages, or take them without a lock. Raises RequestFailed, Refusal, PenstockError."""
        wanted = list(dict.fromkeys(number - 1 for number in numbers))
        rows = rows_of_numbers(wanted)
        self._check_limit(turn, rows)
        missing, _ = turn.execute(c.AcquireDeferred(self.queue, self.holder, rows, RECEIVED_BYTES))
        if missing:
            text = f"message {missing.first + 1} of {self.queue!r:.80} is not deferred: it is locked, it has ended, or it waits"
            raise RequestFailed(NOT_FOUND, vendor.MESSAGE_NOT_FOUND, text)
        until = None
        if not delete:
            until = self._lock_end(turn)
            self._acquisitions += 1
            suffix = lock_suffix(self.holder, self._acquisitions)
            self._tokens |= {number: number.to_bytes(NUMBER, "big") + suffix for number in rows.sequences().tolist()}
        return partial(self._received, turn.slices(self.queue, rows), rows, wanted, until)

    def _check_limit(self, turn: Turn, rows: RowSet) -> None:
        most = self.peer.context.settings.amqp_max_unsettled
        if len(self._tokens) + rows.count > most:
            held = queue_reads.held(turn, self.queue, self.holder, self.rows())
            self._tokens = {number: self._tokens[number] for number in held.sequences().tolist()}
        if len(self._tokens) + rows.count > most:
            text = f"{most:,} locked messages of {self.queue!r:.80} are the limit (amqp_max_unsettled): settle some first"
            raise Refusal(Condition.RESOURCE_LIMIT_EXCEEDED, text)

    def _received(self, slices: list[BlockSlice], rows: RowSet, wanted: list[int], until: int | None) -> NodeResponse:
        """Read the messages. The next commit settles them, or returns them if one cannot be read."""
        tokens = {number: self._tokens.get(number) for number in wanted}
        try:
            messages = self._read(slices, until)
        except errors.PenstockError:
            self._tokens = {number: token for number, token in self._tokens.items() if tokens.get(number) != token}
            self.peer.loop.in_commit(partial(self._dispose, RETURNED, rows))
            raise
        if until is None:
            self.peer.loop.in_commit(partial(self._dispose, ACCEPTED, rows))
            return NodeResponse(OK, "OK", {"messages": [{"message": messages[number]} for number in wanted]})
        entries = [(messages[number], token) for number, token in tokens.items() if token is not None]
        locked = [{"message": message, "lock-token": UUID(bytes_le=token)} for message, token in entries]
        return NodeResponse(OK, "OK", {"messages": locked})

    def _read(self, slices: list[BlockSlice], until: int | None) -> dict[int, bytes]:
        """Raises PenstockError if a message cannot be read."""
        broker, messages = self.peer.context.broker, dict[int, bytes]()

        def damaged(block_slice: BlockSlice, indexes: slice, error: errors.DamagedJournal) -> None:
            sequences = block_slice.sequences(indexes)
            damage = errors.DamagedMessages.of(self.queue, int(sequences[0]), int(sequences[-1]), error)
            broker.damage.note(damage)
            raise damage

        for block_slice in slices:
            for time, tags, encoded in messages_of(broker, block_slice, partial(damaged, block_slice)):
                if isinstance(encoded, RemoteProtocolError):
                    raise errors.InvalidRequest(str(encoded))
                if isinstance(encoded, Exception):
                    raise encoded
                for tag, message in zip(tags, encoded, strict=True):
                    number = int.from_bytes(tag, "big")
                    messages[number] = with_state(dressed(message, number, time // 1000, until), vendor.DEFERRED_STATE)
        return messages

    def _dispose(self, end: DeliveryEnd, rows: RowSet, turn: Turn) -> None:
        turn.carry_out(c.command_of(end, self.queue, self.holder, rows))  # a refusal: the locks have ended

    # --- requests that name a lock token

    def locked(self, tag: bytes) -> None:
        if tag not in self:
            raise lock_lost()

    def settle_by_token(self, turn: Turn, tag: bytes, state: DeliveryState) -> None:
        self.locked(tag)
        end = as_vendor(disposition_of(as_changes(state), None, self.peer.context.wall_ms()), state)
        assert end is not None
        try:
            turn.execute(c.command_of(end, self.queue, self.holder, rows_of_tags([tag])))
        except (errors.IllegalTransition, errors.NotFound):
            raise lock_lost() from None
        del self._tokens[int.from_bytes(tag[:NUMBER], "big")]


class DeferredLocks(DeferredMessages):
    """The locks of one connection on deferred messages of one queue."""

    session_id = None

    def __init__(self, peer: Peer, queue: str, receivers: Receivers) -> None:
        super().__init__(peer, queue, 0, lambda turn: lock_end(peer, turn, queue))
        self._receivers = receivers

    def receive(self, turn: Turn, numbers: Sequence[int], *, delete: bool) -> Callable[[], NodeResponse]:
        self._begin(turn)
        return super().receive(turn, numbers, delete=delete)

    def _begin(self, turn: Turn) -> None:
        if queue_reads.is_open(turn, self.queue, self.holder):
            return
        self._tokens.clear()  # of a deleted queue of this name
        user = None if self.peer.user == ANONYMOUS else self.peer.user
        self._receivers.pop(self.holder, None)
        self.holder, _ = turn.execute(c.Subscribe(self.queue, user=user, container=self.peer.container, by_number=True))
        self._receivers[self.holder] = self

    def renew(self, turn: Turn, tags: list[bytes]) -> int:
        return renewed(self.peer, turn, self.queue, self.holder, tags)

    def end(self, turn: Turn, cause: Cause) -> None:
        self._tokens.clear()
        if self._receivers.pop(self.holder, None) is not None and queue_reads.is_open(turn, self.queue, self.holder):
            turn.execute(c.Unsubscribe(self.queue, self.holder, cause))


LocksByQueue = dict[str, DeferredLocks]  # of one connection
