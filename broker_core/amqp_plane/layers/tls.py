"""TLS on `ssl.SSLObject`.

asyncio's TLS reads into 256 KiB for each connection, and an idle connection may use at most 100 KiB. OpenSSL releases its own
empty buffers (Python sets SSL_MODE_RELEASE_BUFFERS).
"""

from __future__ import annotations

import ssl
from typing import Any

from .base import LayerError

#: Octets: a record's plain text, the most that OpenSSL reads or writes at a time.
_RECORD = 16 * 1024
#: Octets passed to it at a time. A MemoryBIO never shrinks, so this is the memory that each connection keeps for reading.
_PIECE = 4 * 1024


class TlsLayer:
    """The server's side of TLS. `context`: with the server's certificate, and the demand for one of clients."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in = ssl.MemoryBIO()
        self._bio_out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._bio_out, server_side=True)
        self._out: list[bytes] = []
        self.ready = False
        self.closed = False
        self._said_goodbye = False
        self._broken = False

    @property
    def peer_certificate(self) -> dict[str, Any] | None:
        return self._tls.getpeercert() or None if self.ready else None

    def receive(self, data: bytes) -> bytes:
        if self.closed or self._broken:
            return b""
        plain: list[bytes] = []
        try:
            for at in range(0, len(data), _PIECE):
                self._in.write(data[at : at + _PIECE])
                if not self._read(plain):
                    self.closed = True
                    break
        except ssl.SSLError as error:
            self._broken = True
            raise LayerError(f"TLS: {_reason(error)}", self._wanted(plain)) from error
        finally:
            self._drain()  # also an alert
        return self._wanted(plain)

    def _wanted(self, plain: list[bytes]) -> bytes:
        return b"" if self._said_goodbye else b"".join(plain)

    def _read(self, plain: list[bytes]) -> bool:
        """Read the available plain text. Returns whether more will come."""
        try:
            if not self.ready:
                self._tls.do_handshake()
                self.ready = True
            while True:
                piece = self._tls.read(_RECORD)
                if not piece:  # close_notify
                    return False
                plain.append(piece)
        except ssl.SSLWantReadError:
            return True
        except ssl.SSLZeroReturnError:  # close_notify, in answer to ours
            return False

    def send(self, data: bytes) -> None:
        if not self.ready:
            raise RuntimeError("the TLS handshake is not complete")
        if self._said_goodbye or self._broken:
            return
        view = memoryview(data)
        for at in range(0, len(data), _RECORD):
            self._tls.write(view[at : at + _RECORD])
            self._drain()

    def close(self) -> None:
        """Send close_notify, and do not wait for the peer's."""
        if self._said_goodbye:
            return
        self._said_goodbye = self.closed = True
        if not self.ready or self._broken:
            return
        try:
            self._tls.unwrap()
        except ssl.SSLWantReadError:
            self.closed = False  # the peer's close_notify has not come
        except ssl.SSLError:
            pass
        self._drain()

    def _drain(self) -> None:
        if self._bio_out.pending:
            self._out.append(self._bio_out.read())

    def data_to_send(self) -> bytes:
        out, self._out = b"".join(self._out), []
        return out


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    return (error.reason or str(error.args[-1])).replace("_", " ").lower()
