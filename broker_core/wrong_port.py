"""Recognition of the protocol at a port: AMQP, Flight (HTTP/2), HTTP, TLS.

A client of a wrong port gets a protocol error without the cause. Therefore it examines the port, and a plane logs the protocol
of an unexpected client.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import NamedTuple

AMQP, FLIGHT, HTTP, TLS = "AMQP", "HTTP/2", "HTTP/1.1", "TLS"
_HELLO = b"AMQP\x00\x01\x00\x00"  # each port of a broker answers in its protocol
_REQUEST = b"HEAD / HTTP/1.0\r\n\r\n"  # for a server that waits for more
_LOOK_S = 2.0


class _Port(NamedTuple):
    name: str
    plain: str  # begin of its address
    secure: str
    usual: int
    usual_secure: int


_PORTS = {
    AMQP: _Port("the AMQP port", "amqp://", "amqps://", 5672, 5671),
    FLIGHT: _Port("the Flight port", "grpc://", "grpc+tls://", 8815, 8815),
    HTTP: _Port("an HTTP port", "http://", "https://", 8816, 8816),
}


def spoken(octets: bytes) -> str | None:
    """Return the protocol that begins with these bytes; None if unknown."""
    if octets.startswith(b"AMQP"):
        return AMQP
    if re.match(rb"[\x15\x16]\x03[\x00-\x04]", octets):  # an alert or a handshake
        return TLS
    if re.match(rb"PRI \* HTTP/2|\x00..\x04\x00\x00\x00\x00\x00", octets, re.DOTALL):  # the preface, SETTINGS
        return FLIGHT
    return HTTP if re.match(rb"HTTP/1\.|[A-Z]{3,7} [/*]", octets) else None


def mismatch(port: str | None, wanted: str | None, *, secure: bool = False, urls: Sequence[str] = ()) -> str | None:
    """Return a hint for a client that uses `wanted` at a port of another protocol; None if both are equal or one is unknown.

    `secure`: over TLS. `urls`: the broker's, which a client does not know.
    """
    if port is None or wanted is None or port == wanted:
        return None
    if port == TLS:
        return f"this port speaks TLS; use {_PORTS[wanted].secure}"
    actual = _PORTS[port]
    name, scheme = actual.name, actual.secure if secure else actual.plain
    if wanted == TLS:
        return f"this is {name} without TLS; use {actual.plain}"
    right = _right_port(_PORTS[wanted], secure, urls)
    return f"this is {name}; use {right}" if port == HTTP else f"this is {name}; use {scheme} or {right}"


def _right_port(wanted: _Port, secure: bool, urls: Sequence[str]) -> str:
    known = [url for scheme in (wanted.plain, wanted.secure) for url in urls if url.startswith(scheme)]
    if known:
        return f"port {known[-1 if secure else 0].rpartition(':')[2]}"
    return f"{wanted.name.replace('an ', 'the ')} ({wanted.usual_secure if secure else wanted.usual} by default)"


def look(host: str, port: int) -> str | None:
    """Connect, and return the protocol; None if it is unknown."""
    octets = _answer(host, port, _HELLO) or _answer(host, port, _REQUEST)
    if not octets:  # TLS may close without an answer
        with suppress(OSError):
            ssl.get_server_certificate((host, port), timeout=_LOOK_S)
            return TLS
    return spoken(octets)


def _answer(host: str, port: int, request: bytes) -> bytes:
    with suppress(OSError), socket.create_connection((host, port), _LOOK_S) as connection:
        connection.sendall(request)
        return connection.recv(64)
    return b""


def expired(host: str, port: int) -> str | None:
    """Describe an expired certificate of a server; None if it is valid or unavailable."""
    with suppress(OSError, ValueError, IndexError):
        end = end_of(ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, port), timeout=_LOOK_S)))
        if end <= datetime.now(timezone.utc):
            return f"it ended on {end:%Y-%m-%d at %H:%M} UTC, and the broker needs a new one"
    return None


def end_of(certificate: bytes) -> datetime:
    """Return the end of a certificate in DER (RFC 5280, 4.1). Raises ValueError, IndexError."""
    fields = _values(_values(_values(certificate)[0][1])[0][1])  # of tbsCertificate
    validity = fields[4 if fields[0][0] == 0xA0 else 3][1]  # after an optional version
    kind, text = _values(validity)[1]
    return datetime.strptime(text.decode(), "%y%m%d%H%M%SZ" if kind == 0x17 else "%Y%m%d%H%M%SZ").replace(tzinfo=timezone.utc)


def _values(octets: bytes) -> list[tuple[int, bytes]]:
    values, at = [], 0
    while at < len(octets):
        kind, size, at = octets[at], octets[at + 1], at + 2
        if size & 0x80:
            long = size & 0x7F
            size, at = int.from_bytes(octets[at : at + long], "big"), at + long
        values.append((kind, octets[at : at + size]))
        at += size
    return values
