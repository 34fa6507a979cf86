"""Peeks: messages that are not settled, also locked, deferred and scheduled ones.

A peek may pass over millions of messages, such as those of other sessions. So after many blocks it continues in the next commit.
"""

from __future__ import annotations

from ...engine.columns.rowset import RowSet
from ...reading.slices import BlockSlice
from ...service.turn import Turn
from .. import queue_reads
from ..connections.peer import Peer
from ..links.outgoing_link import messages_of
from . import vendor
from .annotations import dressed, with_state
from .requests import NO_CONTENT, OK, Made, NodeResponse

MAX_PEEKED, PEEKED_BYTES = 1000, 1 << 20  # of one response; a single message may be larger


class EntityPeek:
    """One peek of a queue, from a sequence number on. `session_id`: None for messages of any session."""

    def __init__(self, peer: Peer, queue: str, first: int, messages: int, session_id: str | None) -> None:
        self._peer, self._queue, self._session_id = peer, queue, session_id
        self._first, self._messages, self._bytes = first, min(messages, MAX_PEEKED), PEEKED_BYTES  # of the rest
        self._slices: list[BlockSlice] = []
        self._delayed = self._deferred = RowSet()

    def __call__(self, turn: Turn) -> Made:
        """Look at a part of the queue. Raises NotFound."""
        part = queue_reads.unsettled_from(turn, self._queue, self._first, self._messages, self._bytes, self._session_id)
        self._slices += turn.slices(self._queue, part.rows)
        self._delayed, self._deferred = self._delayed.plus(part.delayed), self._deferred.plus(part.deferred)
        if part.next is not None:
            self._first, self._messages, self._bytes = part.next, self._messages - part.rows.count, self._bytes - part.bytes
            return None
        if not self._slices:
            return NodeResponse(NO_CONTENT, "no message is waiting from that sequence number on")
        return self._response

    def _response(self) -> NodeResponse:
        peeked = [{"message": message} for block_slice in self._slices for message in self._read(block_slice)]
        return NodeResponse(OK, "OK", {"messages": peeked})

    def _read(self, block_slice: BlockSlice) -> list[bytes]:
        """Damaged messages are left out."""
        messages = list[bytes]()
        for time, tags, encoded in messages_of(self._peer.context.broker, block_slice, lambda indexes, error: None):
            for tag, message in zip(tags, encoded if isinstance(encoded, list) else (), strict=False):
                number = int.from_bytes(tag, "big")
                messages.append(with_state(dressed(message, number, time // 1000, None), self._state_of(number)))
        return messages

    def _state_of(self, number: int) -> int:
        if number in self._deferred:
            return vendor.DEFERRED_STATE
        return vendor.SCHEDULED_STATE if number in self._delayed else vendor.ACTIVE_STATE
