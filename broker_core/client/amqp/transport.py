"""A non-blocking TCP or TLS socket to a broker.

A blocking `sendall` could wait for a broker that waits for us to read. So a write sends as much as the socket takes, and waits
are for both directions.
"""

from __future__ import annotations

import ipaddress
import select
import socket
import ssl

from ... import wrong_port
from ...errors import PeerError, Unreachable, WrongPort
from .address import Address

#: Octets of one read. More gains nothing.
READ_OCTETS = 256 * 1024
#: Octets of plaintext in one call of OpenSSL, which encrypts all of them first.
_TLS_WRITE_OCTETS = 256 * 1024


class ClientSocket:
    """A connected socket. Raises PeerError with the broker's address if the network fails."""

    def __init__(self, sock: socket.socket, address: Address) -> None:
        self._socket = sock
        self._address = address
        self._unwritten: memoryview = memoryview(b"")
        self.has_read = False
        self._poll = select.poll()  # not select(): a program may have more than 1,024 files open
        self._poll.register(sock.fileno(), 0)

    @property
    def secure(self) -> bool:
        """True if a password may be sent in clear text: over TLS, or to this machine."""
        if isinstance(self._socket, ssl.SSLSocket):
            return True
        try:
            return ipaddress.ip_address(self._socket.getpeername()[0].partition("%")[0]).is_loopback
        except (OSError, ValueError):
            return False

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def congested(self) -> bool:
        return bool(self._unwritten)

    @property
    def pending(self) -> bool:
        """True if octets wait inside TLS, where a poll does not see them."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def write(self, data: bytes) -> None:
        """Write as much as the socket takes now. Not while `congested`."""
        assert not self._unwritten
        self._unwritten = memoryview(data)
        self._write_pending()

    def _write_pending(self) -> None:
        try:
            while self._unwritten:
                part = self._unwritten[:_TLS_WRITE_OCTETS] if isinstance(self._socket, ssl.SSLSocket) else self._unwritten
                self._unwritten = self._unwritten[self._socket.send(part) :]
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError as error:
            self._unwritten = memoryview(b"")
            raise self._gone(self._alert_before(error)) from error

    def _alert_before(self, error: OSError) -> OSError:
        if not self.has_read and isinstance(self._socket, ssl.SSLSocket):
            try:
                self._socket.recv(1)
            except OSError as alert:
                return alert if _about_our_certificate(alert) else error
        return error

    def read(self, timeout_s: float) -> bytes | None:
        """Return up to READ_OCTETS; None if none came in time, b"" at the end. Also writes."""
        if self.has_read:
            return self._read(timeout_s)
        try:
            data = self._read(timeout_s)
        except PeerError:
            self._check_port(b"")
            raise
        if data is not None:
            self.has_read = bool(data)
            self._check_port(data)
        return data

    def _check_port(self, first: bytes) -> None:
        protocol = wrong_port.spoken(first)
        if not first and not self._address.tls:
            protocol = wrong_port.look(self._address.host, self._address.port)
        wrong = wrong_port.mismatch(protocol, wrong_port.AMQP, secure=self._address.tls)
        if wrong is not None:
            raise WrongPort(f"{self._address}: {wrong}")

    def _read(self, timeout_s: float) -> bytes | None:
        data = self._read_now()
        if data is not None:
            return data
        self._poll.modify(self._socket.fileno(), select.POLLIN | (select.POLLOUT if self._unwritten else 0))
        ready = self._poll.poll(max(0.0, timeout_s) * 1000)
        event = ready[0][1] if ready else 0
        if event & select.POLLOUT:
            self._write_pending()
        return self._read_now() if event & ~select.POLLOUT else None

    def _read_now(self) -> bytes | None:
        chunks: list[bytes] = []
        size = 0
        try:
            while size < READ_OCTETS:
                data = self._socket.recv(READ_OCTETS - size)
                if not data and chunks:
                    break  # the next read returns the end
                chunks.append(data)
                size += len(data)
                if not data or not isinstance(self._socket, ssl.SSLSocket):  # TLS returns one record, 16 KiB, at a time
                    break
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            if not chunks:
                raise self._gone(error) from error
        return b"".join(chunks) if chunks else None

    def close(self) -> None:
        self._socket.close()

    def _gone(self, error: OSError) -> PeerError:
        if not self.has_read and _about_our_certificate(error):
            return PeerError(_refused(error, self._address))
        why = (error.reason if isinstance(error, ssl.SSLError) else error.strerror) or error
        return PeerError(f"the connection to {self._address} broke ({why}); the outcome of unconfirmed messages is unknown")


def dial(address: Address, tls: ssl.SSLContext | None, timeout_s: float) -> ClientSocket:
    """Connect, with a TLS handshake if `tls` is set."""
    try:
        sock = socket.create_connection((address.host, address.port), timeout_s)
    except OSError as error:
        raise Unreachable(
            f"no broker answers at {address} ({error.strerror or error}): start one with `penstock serve --data DIR`, or correct"
            " the url"
        ) from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            sock = tls.wrap_socket(sock, server_hostname=address.host)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        wrong = wrong_port.mismatch(wrong_port.look(address.host, address.port), wrong_port.TLS) if tls is not None else None
        if wrong is not None:
            raise WrongPort(f"{address}: {wrong}") from error
        raise PeerError(_why(error, address)) from error
    return ClientSocket(sock, address)


def _about_our_certificate(error: OSError) -> bool:
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    return "_ALERT_" in reason and ("CERTIFICATE" in reason or reason.endswith("UNKNOWN_CA"))


def _refused(error: OSError, address: Address) -> str:
    assert isinstance(error, ssl.SSLError)
    if error.reason.endswith("CERTIFICATE_REQUIRED"):
        return f"{address} wants a client certificate: give one, with its key"
    return (
        f"{address} refuses the client certificate ({error.reason}): it must be made out for clients, be valid now, and come from"
        " an authority that the broker trusts, in its tls_client_ca_file"
    )


def _why(error: OSError, address: Address) -> str:
    if _about_our_certificate(error):
        return _refused(error, address)
    if isinstance(error, ssl.SSLCertVerificationError):
        ended = wrong_port.expired(address.host, address.port)
        if ended is not None:
            return f"the certificate of {address} is not valid any more: {ended}"
        return (
            f"the certificate of {address} is not trusted: {error.verify_message}; give the CA that issued it as the CA file,"
            " or use the host name that it is made out to"
        )
    if isinstance(error, ssl.SSLError):
        return f"no TLS with {address}: {error.reason or error}; is it a port without TLS, or does it want a client certificate?"
    return f"the connection to {address} broke before it was up: {error.strerror or error}"
