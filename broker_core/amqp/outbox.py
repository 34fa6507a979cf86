"""Transfers on their way out of a session: cut to the peer's frame size, held back by its window (2.5.6, 2.6.14)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from . import serial, states
from .errors import Condition, LocalProtocolError
from .frames import HEADER_SIZE
from .performatives import Transfer

if TYPE_CHECKING:
    from .links import Link
    from .senders import Sender
    from .sessions import Session


class Outbox:
    """What the peer's incoming window does not take yet; true while something waits."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pending: deque[tuple[Sender, Transfer, bytes]] = deque()

    def __bool__(self) -> bool:
        return bool(self._pending)

    def check_room(self, transfer: Transfer) -> None:
        """LocalProtocolError if not even the performative fits a frame."""
        if len(transfer.encode()) + HEADER_SIZE + 16 > self._session.max_frame_size:
            raise LocalProtocolError(f"{Condition.FRAME_SIZE_TOO_SMALL}: a transfer with so large a state fits no frame")

    def put(self, link: Sender, transfer: Transfer, payload: bytes) -> None:
        """Sends what the window takes of a transfer, in as many frames as it needs; the rest waits."""
        self._pending.append((link, transfer, payload))
        self.pump()

    def pump(self) -> None:
        """Sends what the window takes now."""
        session = self._session
        while self._pending and session.remote_incoming_window > 0:
            link, transfer, payload = self._pending.popleft()
            room = session.max_frame_size - HEADER_SIZE - len(transfer.encode())
            if len(payload) > room:
                rest = Transfer(handle=transfer.handle, more=transfer.more)
                transfer.more = True
                room = session.max_frame_size - HEADER_SIZE - len(transfer.encode())
                self._pending.appendleft((link, rest, payload[room:]))
                payload = payload[:room]
                whole = False
            else:
                whole = not transfer.more
            session.send(transfer, payload)
            self._count(1)
            if whole:
                link.completed()

    def put_ready(self, frames: list[bytes]) -> None:
        """Ready frames, one transfer each, that the window is known to take."""
        states.advance(states.SESSION, self._session.state, "s:frame")
        self._session.connection.send_raw(frames)
        self._count(len(frames))

    def _count(self, count: int) -> None:
        session = self._session
        session.next_outgoing_id = serial.add(session.next_outgoing_id, count)
        session.remote_incoming_window -= count

    def abort(self, link: Sender) -> bool:
        """Of what waits for a link, leave only that it is aborted. Whether anything waited."""
        found = False
        for place, (each, transfer, _) in enumerate(self._pending):
            if each is link:
                transfer.more, transfer.aborted, found = False, True, True
                self._pending[place] = (each, transfer, b"")
        return found

    def drop(self, link: Link) -> None:
        """The link is gone."""
        if self._pending:
            self._pending = deque(entry for entry in self._pending if entry[0] is not link)

    def clear(self) -> None:
        """The session is gone."""
        self._pending.clear()
