"""From the AMQP address of a broker to its Flight endpoint, by what the broker says about itself in AMQP's open.

The AMQP library is imported only here, and only when it is needed: it takes as long to import as all the rest.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import errors, shipped
from .credentials import Credentials

SCHEMES = ("amqp://", "amqps://")
FLIGHT_SCHEMES = ("grpc", "grpc+tls")


#: Characters of a broker's own name that are kept.
MOST_NAME = 100
#: What Linux calls the time since it was started; containers on one host share it, machines and their clones do not.
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def this_host() -> str | None:
    """A name of the running kernel, which only processes on it can know; None where a system has none.

    Two that have the same can compare device and inode of a file. The boot id itself is told to nobody: this is its digest.
    """
    try:
        with open(BOOT_ID, "rb") as file:
            found = file.read(64).strip()
    except OSError:
        return None
    return hashlib.sha256(b"penstock " + found).hexdigest() if found else None


@dataclass(frozen=True)
class Endpoint:
    """A Flight endpoint that was discovered; `token` lets its user in there for an hour, if the broker has users."""

    url: str
    token: str | None = field(default=None, repr=False)


class NoPenstock(errors.InvalidRequest):
    """An AMQP broker of another kind, where a Penstock is needed."""


class LessSafe(errors.InvalidRequest):
    """A Penstock whose Flight endpoint is less safe than the url asks for."""


@dataclass(frozen=True)
class Foreign:
    """A broker that is no Penstock, or hides that it is one: `product` and `version` as its open says them, perhaps empty."""

    product: str
    version: str

    def __str__(self) -> str:
        return f"{self.product} {self.version}".strip() or "of no known name"


def discover(url: str, credentials: Credentials, timeout_s: float) -> Endpoint:
    """Ask for the Flight endpoint, as `look` does. Raises NoPenstock for a broker that is none, too."""
    found = look(url, credentials, timeout_s)
    if isinstance(found, Foreign):
        raise NoPenstock(
            f"{url} is a plain AMQP 1.0 broker ({found}), and this can be asked of a Penstock only: of any other broker Spark"
            " reads a stream (spark.readStream with the option spool) and writes; `penstock serve` starts a Penstock"
        )
    return found


def look(url: str, credentials: Credentials, timeout_s: float) -> Endpoint | Foreign:
    """Log in at `amqp://` or `amqps://` and ask what stands there. Raises what `client.amqp.connect` raises, and
    LessSafe for a Flight endpoint that is less safe than the url asks for.
    """
    client = shipped.module("client.amqp")
    with (
        shipped.own_errors(),
        client.login(
            url,
            credentials.user,
            credentials.password,
            tls=credentials.tls_context() if url.startswith("amqps://") else None,
            external=credentials.cert is not None,
            timeout_s=timeout_s,
            key=credentials.shared,
        ) as connection,
    ):
        host, properties = connection.host, dict(connection.remote_properties)
    return endpoint_of(url, host, properties)


def endpoint_of(url: str, host: str, properties: Mapping[str, Any]) -> Endpoint | Foreign:
    """Read the Flight endpoint out of the properties of the broker's open; without one the broker is no Penstock."""
    scheme, port, token = (properties.get(f"flight-{name}") for name in ("scheme", "port", "token"))
    if scheme is None and port is None:
        return Foreign(*(str(properties.get(name) or "")[:MOST_NAME] for name in ("product", "version")))
    if scheme not in FLIGHT_SCHEMES or not isinstance(port, int) or not 0 < port < 65536:
        raise errors.PeerError(f"{url} names a Flight endpoint that cannot be: {scheme!r}, port {port!r}")
    if scheme == "grpc" and url.startswith("amqps://") and not is_loopback(host):
        raise LessSafe(
            f"{url} asks for TLS, but the broker's Flight endpoint has none, so messages would travel in the open: serve with"
            " flight_tls = true, or say amqp:// if that is what you want"
        )
    bracketed = f"[{host}]" if ":" in host else host
    return Endpoint(f"{scheme}://{bracketed}:{port}", None if token is None else str(token))


def is_loopback(host: str) -> bool:
    """Say whether a name or address is this very machine's. A name that only resolves to it does not count."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False
