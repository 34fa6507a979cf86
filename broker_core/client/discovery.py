"""From the AMQP address of a broker to its Flight endpoint, which its open frame names.

The AMQP library takes as long to import as the rest, so it is imported when needed.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import errors, executor_modules
from .credentials import Credentials

SCHEMES = ("amqp://", "amqps://")
FLIGHT_SCHEMES = ("grpc", "grpc+tls")


#: Of a broker's product and version.
MOST_NAME = 100
#: Linux's id of the running kernel, which containers on one host share.
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def this_host() -> str | None:
    """Return a digest of the kernel's boot id; None on a system without one.

    Two processes with the same one can compare the device and inode of a file.
    """
    try:
        with open(BOOT_ID, "rb") as file:
            boot_id = file.read(64).strip()
    except OSError:
        return None
    return hashlib.sha256(b"penstock " + boot_id).hexdigest() if boot_id else None


@dataclass(frozen=True)
class Endpoint:
    """A discovered Flight endpoint. If the broker has users, `token` logs its user in there for an hour."""

    url: str
    token: str | None = field(default=None, repr=False)


class NoPenstock(errors.InvalidRequest):
    """Another AMQP broker, where Penstock is needed."""


class LessSafe(errors.InvalidRequest):
    """A Penstock broker whose Flight endpoint is less safe than the URL asks for."""


@dataclass(frozen=True)
class Foreign:
    """Another broker, or a Penstock broker that hides its Flight endpoint. `product` and `version` may be empty."""

    product: str
    version: str

    def __str__(self) -> str:
        return f"{self.product} {self.version}".strip() or "of no known name"


def discover(url: str, credentials: Credentials, timeout_s: float) -> Endpoint:
    endpoint = look(url, credentials, timeout_s)
    if isinstance(endpoint, Foreign):
        raise NoPenstock(
            f"{url} is a plain AMQP 1.0 broker ({endpoint}), and this can be asked of a Penstock only: of any other broker Spark"
            " reads a stream (spark.readStream with the option spool) and writes; `penstock serve` starts a Penstock"
        )
    return endpoint


def look(url: str, credentials: Credentials, timeout_s: float) -> Endpoint | Foreign:
    """Log in and return the kind of broker. Raises LessSafe and the errors of `client.amqp.connect`."""
    client = executor_modules.module("client.amqp")
    with executor_modules.own_errors(), client.login(url, credentials, timeout_s=timeout_s) as connection:
        host, properties = connection.host, dict(connection.remote_properties)
    return endpoint_of(url, host, properties)


def endpoint_of(url: str, host: str, properties: Mapping[str, Any]) -> Endpoint | Foreign:
    scheme, port, token = (properties.get(f"flight-{name}") for name in ("scheme", "port", "token"))
    if scheme is None and port is None:
        return Foreign(*(str(properties.get(name) or "")[:MOST_NAME] for name in ("product", "version")))
    if scheme not in FLIGHT_SCHEMES or not isinstance(port, int) or not 0 < port < 65536:
        raise errors.PeerError(f"{url} names a Flight endpoint that cannot be: {scheme!r}, port {port!r}")
    if scheme == "grpc" and url.startswith("amqps://") and not is_loopback(host):
        raise LessSafe(
            f"{url} asks for TLS, but the broker's Flight endpoint has no TLS, so messages would travel in the open: serve with"
            " flight_tls = true, or use amqp:// to accept that"
        )
    bracketed = f"[{host}]" if ":" in host else host
    return Endpoint(f"{scheme}://{bracketed}:{port}", None if token is None else str(token))


def is_loopback(host: str) -> bool:
    """Return whether a name or address is this machine's own. A name that only resolves to it is not."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False
