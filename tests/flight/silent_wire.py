"""A wire between client and broker that can go silent: both ends stay connected, and nothing passes any more."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any


class SilentWire:
    """`with SilentWire(broker.url) as wire: … Client(wire.url) … wire.cut()`. New connections are taken, and silent too."""

    def __init__(self, url: str) -> None:
        scheme, _, address = url.rpartition("//")
        host, _, port = address.rpartition(":")
        self._broker = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"{scheme}//127.0.0.1:{self._server.getsockname()[1]}"
        self._silent = threading.Event()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._silent.set()

    def close(self) -> None:
        for sock in (self._server, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def __enter__(self) -> SilentWire:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(self._broker)
                self._sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (data := source.recv(1 << 14)) and not self._silent.is_set():
                sink.sendall(data)
            if not self._silent.is_set():
                sink.shutdown(socket.SHUT_RDWR)
