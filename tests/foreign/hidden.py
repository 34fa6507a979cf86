"""A Penstock that hides its name: a relay before it takes the Flight properties out of its open.

So it is a real broker of AMQP 1.0, on a real socket, and the connector treats it like any other."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Hidden:
    """Listens at `url` before a broker at `port`. `cut` ends all connections; `away` refuses new ones."""

    def __init__(self, port: int) -> None:
        self._broker = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"amqp://127.0.0.1:{self.port}"
        self.away = False
        self.accepted = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections without a word, as a network does."""
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open = []

    def retarget(self, port: int) -> None:
        """From now on, stand before a broker at this port."""
        self._broker = port

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    if self.away:
                        raise OSError
                    broker = socket.create_connection(("127.0.0.1", self._broker))
                except OSError:
                    client.close()
                    continue
                self.accepted += 1
                self._open += [client, broker]
                threading.Thread(target=_carry, args=(client, broker), daemon=True).start()


def _carry(client: socket.socket, broker: socket.socket) -> None:
    with client, broker:
        back = threading.Thread(target=_pass, args=(broker, client, True), daemon=True)
        back.start()
        _pass(client, broker, False)
        back.join()


def _pass(source: socket.socket, target: socket.socket, hide: bool) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            if hide and b"flight-" in data:
                data = data.replace(b"flight-", b"hidden-")
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
