"""The transport of one connection: its socket, the layers above it, and back pressure.

A peer that does not read is not read from, and no messages are acquired for it. So `WRITE_BUFFER` limits its memory.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from ...amqp import Connection
from ..layers import Layer

WRITE_BUFFER = 1 << 20  # bytes that wait for a socket before its peer counts as stalled
CLOSE_TIMEOUT_S = 5.0  # for a peer to answer our close, and for written octets to leave

# Reasons not to read from a socket.
FULL = "it does not read our frames"
LOGIN = "its password is being checked"
JOURNAL = "the journal has no room"

_numbers = itertools.count(1)


class Transport:
    """One socket. `connection`: its protocol machine, once its layers are ready. `now`: the plane's clock, seconds."""

    connection: Connection | None = None

    def __init__(self, layer: Layer, now: Callable[[], float]) -> None:
        self.address = "?"
        self.number = next(_numbers)  # unique in one life of the broker
        self.since = now()
        self.stalled_since: float | None = None  # since when its socket takes no more
        self.checked: dict[str, str | None] = {}  # names that were looked up for the login, with their identities
        self._now = now
        self._layer = layer
        self._transport: asyncio.Transport | None = None
        self._paused: set[str] = set()
        self._deadline: float | None = None  # of the login, of our close
        self._stuck_until: float | None = None  # of a socket that takes no more

    @property
    def stalled(self) -> bool:
        return FULL in self._paused

    def send(self) -> None:
        """Write the output of the protocol machine; close if it has finished."""
        connection = self.connection
        assert connection is not None
        data = connection.data_to_send()
        if data:
            self._layer.send(data)
            self._flush()
        if connection.finished:
            self.close()

    def _flush(self) -> None:
        data = self._layer.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        """Close when all written octets have left, or after `CLOSE_TIMEOUT_S`."""
        if self._transport is None or self._transport.is_closing():
            return
        self._layer.close()
        self._flush()
        self.expect_close()
        self._transport.close()

    def expect_close(self) -> None:
        """Give the peer `CLOSE_TIMEOUT_S` to answer our close."""
        self._deadline = self._now() + CLOSE_TIMEOUT_S

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def pause(self, reason: str) -> None:
        """Stop reading, until all reasons are withdrawn."""
        if not self._paused and self._transport is not None:
            self._transport.pause_reading()
        self._paused.add(reason)

    def resume(self, reason: str) -> None:
        self._paused.discard(reason)
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
