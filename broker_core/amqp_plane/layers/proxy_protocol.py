"""The PROXY protocol, version 2: a proxy sends the address of its client before the client's first octets.

Any client could send a header, so only the addresses in the listener's `proxies` are trusted. Their connections all begin with
one. Additional fields (TLVs) are skipped: a certificate that a proxy has checked cannot log in.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import cache

from .base import LayerError, PlainLayer

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
VERSION_1 = b"PROXY "
FIXED = 16  # octets: signature, version and command, family, length
MAX_HEADER = 4096  # octets: fields of TLS may have some hundreds, and a header is kept until it is complete
LOCAL, PROXY = 0x20, 0x21  # version 2 with a command
UNSPECIFIED, TCP_4, TCP_6 = 0x00, 0x11, 0x21
_ADDRESS_OCTETS = {TCP_4: 4, TCP_6: 16}
_FIELD = 3  # octets before the value of a field


class ProxyLayer(PlainLayer):
    """Removes the header. `source`: the address of the client, if the header contains one."""

    def __init__(self) -> None:
        super().__init__()
        self.ready = False
        self.source: str | None = None
        self._header = b""

    def receive(self, data: bytes) -> bytes:
        if self.ready or self.closed:
            return super().receive(data)
        self._header += data
        if not SIGNATURE.startswith(self._header[: len(SIGNATURE)]):
            if VERSION_1.startswith(self._header[: len(VERSION_1)]):
                raise LayerError("PROXY protocol: version 1 is not supported, let the proxy send version 2")
            raise LayerError("PROXY protocol: a connection from an address in `proxies` begins with a header of version 2")
        if len(self._header) < FIXED:
            return b""
        size = FIXED + int.from_bytes(self._header[14:FIXED], "big")
        if size > MAX_HEADER:
            raise LayerError(f"PROXY protocol: the header has {size} octets, and at most {MAX_HEADER} are allowed")
        command, family = self._header[12], self._header[13]
        if command not in (LOCAL, PROXY):
            raise LayerError(f"PROXY protocol: version and command 0x{command:02x} are not known")
        if len(self._header) < size:
            return b""
        header, rest = self._header[:size], self._header[size:]
        self.source = _source(family, header[FIXED:]) if command == PROXY else None
        self.ready, self._header = True, b""
        return rest


def _source(family: int, block: bytes) -> str | None:
    """Return the client's address. The block has the addresses of both ends, their ports, then fields."""
    if family == UNSPECIFIED:
        return None
    octets = _ADDRESS_OCTETS.get(family)
    if octets is None:
        raise LayerError(f"PROXY protocol: the family 0x{family:02x} is not TCP over IPv4 or IPv6")
    end = 2 * octets + 4
    if len(block) < end:
        raise LayerError(f"PROXY protocol: the addresses have {len(block)} octets instead of {end}")
    _check_fields(block[end:])
    address = ipaddress.ip_address(block[:octets])
    return written(str(address), int.from_bytes(block[2 * octets : 2 * octets + 2], "big"))


def _check_fields(fields: bytes) -> None:
    while fields:
        size = _FIELD + int.from_bytes(fields[1:_FIELD], "big")
        if len(fields) < _FIELD or len(fields) < size:
            raise LayerError("PROXY protocol: a field is longer than the header")
        fields = fields[size:]


def written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_proxy(host: str, proxies: tuple[str, ...]) -> bool:
    address = ipaddress.ip_address(host.partition("%")[0])
    return any(address in network for network in _networks(proxies))


@cache
def _networks(proxies: tuple[str, ...]) -> Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    return [ipaddress.ip_network(proxy) for proxy in proxies]


def unexpected(data: bytes) -> str | None:
    """Return a hint if a connection without a trusted header begins with one."""
    if data.startswith((SIGNATURE, VERSION_1)):
        return "it sends a PROXY header: to accept it, name its address in `proxies` of the listener"
    return None
