"""Outgoing transfers of a session, cut to the peer's frame size and delayed by its window (2.5.6, 2.6.14)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from . import serial, states
from .frames import HEADER_SIZE
from .performatives import Transfer

if TYPE_CHECKING:
    from .links import Link
    from .senders import Sender
    from .sessions import Session


class Outbox:
    """Transfers that wait for the peer's incoming window. True while there are any."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pending: deque[tuple[Sender, Transfer, bytes | memoryview]] = deque()

    def __bool__(self) -> bool:
        return bool(self._pending)

    def put(self, link: Sender, transfer: Transfer, payload: bytes) -> None:
        """Send as much of a transfer as the window takes. The rest waits."""
        self._session.count_outgoing()
        self._pending.append((link, transfer, payload))
        self.pump()

    def pump(self) -> Sender | None:
        """Send as much as the window takes now. Return the link whose delivery it completes, or None."""
        session = self._session
        completed = None
        while self._pending and session.remote_incoming_window > 0:
            link, transfer, payload = self._pending.popleft()
            space = session.connection.remote_max_frame_size - HEADER_SIZE - len(transfer.encode())
            if len(payload) > space:
                rest = Transfer(handle=transfer.handle, more=transfer.more)
                transfer.more = True
                space = session.connection.remote_max_frame_size - HEADER_SIZE - len(transfer.encode())
                self._pending.appendleft((link, rest, memoryview(payload)[space:]))  # not copied with each frame
                payload = payload[:space]
                whole = False
            else:
                whole = not transfer.more
            session.send(transfer, bytes(payload))
            self._count(1)
            if whole:
                link.completed()
                completed = link
        return completed

    def put_ready(self, pieces: list[bytes], count: int) -> None:
        """Send `count` encoded transfers, in any pieces, which the window takes."""
        states.advance(states.SESSION, self._session.state, "s:frame")
        self._session.count_outgoing()
        self._session.connection.send_raw(pieces)
        self._count(count)

    def _count(self, count: int) -> None:
        session = self._session
        session.next_outgoing_id = serial.add(session.next_outgoing_id, count)
        session.remote_incoming_window -= count

    def abort(self, link: Sender) -> bool:
        is_waiting = False
        for index, (owner, transfer, _) in enumerate(self._pending):
            if owner is link:
                transfer.more, transfer.aborted, is_waiting = False, True, True
                self._pending[index] = (owner, transfer, b"")
        return is_waiting

    def drop(self, link: Link) -> None:
        if self._pending:
            self._pending = deque(entry for entry in self._pending if entry[0] is not link)

    def clear(self) -> None:
        self._pending.clear()
