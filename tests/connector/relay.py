"""A network between a client and a broker that loses answers: octets are passed on as they come, until a request is seen whose
answer is to be lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Relay:
    """Listens at `port` and passes everything on to `broker`.

    The next `lose` times that a client sends `request`, the broker gets it; when it answers, `lost` is called, and the connection
    ends without a word of the answer.
    """

    def __init__(self, broker: int, request: bytes, lose: int = 1, lost: Callable[[], None] = lambda: None) -> None:
        self._broker, self._request, self._lost = broker, request, lost
        self.left = lose
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(("127.0.0.1", self._broker))
        except OSError:
            client.close()
            return
        losing = threading.Event()
        back = threading.Thread(target=self._back, args=(broker, client, losing), daemon=True)
        back.start()
        with suppress(OSError):
            while data := client.recv(1 << 16):
                if self._request in data:
                    with self._lock:
                        if self.left:
                            self.left -= 1
                            losing.set()
                broker.sendall(data)
        _end(broker)
        back.join()
        _end(client)

    def _back(self, broker: socket.socket, client: socket.socket, losing: threading.Event) -> None:
        with suppress(OSError):
            while data := broker.recv(1 << 16):
                # The answer comes with acknowledgements of HTTP/2, which are shorter than any answer of a broker.
                if losing.is_set() and b"published" in data:
                    self._lost()
                    break
                client.sendall(data)
        _end(client)


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
