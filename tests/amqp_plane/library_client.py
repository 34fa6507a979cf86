"""A client on our own protocol library, for generated histories."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Any

from penstock.broker_core.amqp import Connection, ConnectionSettings, Role, SaslClient

PATIENCE_S = 20.0  # for expected frames, on the slowest machine


class Client:
    """A client. `pump` moves bytes and passes every event to `on_event`; links are those of the library."""

    def __init__(
        self,
        address: tuple[str, int],
        container: str,
        sasl: SaslClient | None = None,
        *,
        receive_buffer: int | None = None,
        **settings: Any,
    ) -> None:
        self.connection = Connection(Role.CLIENT, ConnectionSettings(container_id=container, **settings), sasl)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.connect(address)
        self._socket.setblocking(False)
        self.gone = False
        self.reads = True
        self.on_event: Callable[[Any], None] = lambda event: None
        if sasl is not None:
            self.until(lambda: sasl.done, "the login")
        self.connection.open()
        self.until(lambda: self.connection.remote_open is not None, "the broker's open")

    def pump(self, wait_s: float = 0.0) -> bool:
        """Write the output and read the input. Returns whether there was any."""
        if self.gone:
            return False
        data = self.connection.data_to_send()
        while data:
            select.select([], [self._socket], [], PATIENCE_S)
            data = data[self._socket.send(data) :]
        if not self.reads or not select.select([self._socket], [], [], wait_s)[0]:
            return False
        try:
            data = self._socket.recv(1 << 18)
        except ConnectionError:
            data = b""
        if not data:
            self.gone = True
            received = self.connection.receive_eof()
        else:
            received = self.connection.receive_data(data)
        for event in received:
            self.on_event(event)
        return True

    def until(self, condition: Callable[[], bool], description: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            self.pump(0.0)
            if condition():
                return
            assert time.monotonic() < end, f"waited in vain: {description}"
            assert not self.gone, f"the connection has gone, waiting for {description}"
            self.pump(0.05)

    def drop(self, *, quietly: bool = False) -> None:
        self.gone = True
        self._socket.close()
