"""Bytes of one socket: one thread reads, and others write, one at a time."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Sequence
from typing import Any

SEND_TIMEOUT_S = 120  # for a peer that reads nothing
_RECORD = 16 * 1024  # a TLS record's plain text
_CIPHER_BYTES = 64 * 1024  # read from the socket at a time
_MOST_BUFFERS = 256  # of one system call; the system allows 1,024

Octets = bytes | memoryview


def prepare(connection: socket.socket) -> None:
    """Set no delay; notice a silent peer within two minutes."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    # The socket blocks, and the kernel ends a stalled send: Python's timeouts need a system call before each send.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT_S, 0))


class PlainTransport:
    """Transport without TLS."""

    def __init__(self, connection: socket.socket) -> None:
        self.receive, self._socket = connection.recv_into, connection

    def send(self, pieces: Sequence[Octets]) -> None:
        """Raises OSError when the connection breaks, or the peer reads nothing for `SEND_TIMEOUT_S`."""
        _send(self._socket, pieces)


class TlsTransport:
    """TLS, server side. A lock guards OpenSSL's object, which allows one thread at a time; it is not held during waits for the
    socket. `_sending` keeps the order of sent bytes."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = connection
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._cipher = bytearray(_RECORD)

    def handshake(self) -> None:
        """Raises ssl.SSLError or OSError, also after the socket's timeout."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
                if not self._fill():
                    raise OSError("ended in the TLS handshake") from None
            except ssl.SSLError:
                self._flush()  # the alert
                raise
            else:
                self._flush()
                self._cipher = bytearray(_CIPHER_BYTES)
                return

    def receive(self, into: memoryview) -> int:
        while True:
            with self._lock:
                try:
                    return int(self._tls.read(len(into), into))
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLZeroReturnError:
                    return 0
                answers = self._out.pending  # to a key update
            if answers:
                self._flush()
            if not self._fill():
                return 0

    def send(self, pieces: Sequence[Octets]) -> None:
        with self._sending:
            for piece in pieces:
                view = memoryview(piece)
                for at in range(0, len(view), _RECORD * 4):
                    with self._lock:
                        for part in range(at, min(at + _RECORD * 4, len(view)), _RECORD):
                            self._tls.write(view[part : part + _RECORD])
                        data = self._out.read()
                    _send(self._socket, [data])

    def _fill(self) -> int:
        got = self._socket.recv_into(self._cipher)
        with self._lock:
            self._in.write(memoryview(self._cipher)[:got])
        return got

    def _flush(self) -> None:
        with self._sending:
            with self._lock:
                data = self._out.read()
            _send(self._socket, [data])


FlightTransport = PlainTransport | TlsTransport


def _send(connection: socket.socket, pieces: Sequence[Octets]) -> None:
    waiting: list[Any] = [piece for piece in pieces if len(piece)]
    at = 0
    while at < len(waiting):
        sent = connection.sendmsg(waiting[at : at + _MOST_BUFFERS])
        while at < len(waiting) and sent >= len(waiting[at]):
            sent -= len(waiting[at])
            at += 1
        if sent:
            waiting[at] = memoryview(waiting[at])[sent:]
