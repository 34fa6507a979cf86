"""Address of a broker."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from ...errors import InvalidRequest

DEFAULT_PORTS = {"amqp": 5672, "amqps": 5671}


class Address(NamedTuple):
    """`host` is written as a resolver takes it: an IPv6 address without brackets."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"amqp{'s' if self.tls else ''}://{host}:{self.port}"


def parse(url: str) -> Address:
    """Parse `amqp[s]://HOST[:PORT]`. Raises InvalidRequest, whose text never contains a password."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest("the url holds a user: urls end up in logs, so give user and password separately")
    extra = parts.path not in ("", "/") or parts.query or parts.fragment
    if parts.scheme not in DEFAULT_PORTS or not host or port == 0 or extra or any(c.isspace() for c in url):
        raise InvalidRequest(f"{url!r} is not an address of a broker; it must be amqp://HOST[:PORT] or amqps://HOST[:PORT]")
    return Address(host, port or DEFAULT_PORTS[parts.scheme], parts.scheme == "amqps")
