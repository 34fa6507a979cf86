"""From the AMQP address of a broker to its Flight endpoint, by what the broker says about itself in AMQP's open.

The AMQP library is imported only here, and only when it is needed: it takes as long to import as all the rest.
"""

from __future__ import annotations

import importlib
import ipaddress
import pkgutil
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

from broker_core import errors
from broker_core.credentials import Credentials

SCHEMES = ("amqp://", "amqps://")
FLIGHT_SCHEMES = ("grpc", "grpc+tls")

#: Where this code travels by value to processes that cannot import it: the sources of `broker_core.amqp_client` and what it
#: needs, by module name, compressed. See `connector.registration`.
SHIPPED: dict[str, bytes] | None = None
#: What `broker_core` is called in there: by its own name it would seem to be installed, to whoever pickles something next.
SHIPPED_NAME = "penstock_shipped"


@dataclass(frozen=True)
class Endpoint:
    """A Flight endpoint that was discovered; `token` lets its user in there for an hour, if the broker has users."""

    url: str
    token: str | None = field(default=None, repr=False)


def discover(url: str, credentials: Credentials, timeout_s: float) -> Endpoint:
    """Log in at `amqp://` or `amqps://` and ask. Raises what `broker_core.amqp_client.connect` raises, and InvalidRequest for a
    broker that has no Flight endpoint, or one that is less safe than the url asks for.
    """
    client = _amqp_client()
    try:
        with client.login(
            url,
            credentials.user,
            credentials.password,
            tls=credentials.tls_context() if url.startswith("amqps://") else None,
            external=credentials.cert is not None,
            timeout_s=timeout_s,
        ) as connection:
            host, properties = connection.host, dict(connection.remote_properties)
    except Exception as error:
        # What was shipped has error classes of its own.
        if isinstance(error, errors.PenstockError) or not hasattr(error, "to_json"):
            raise
        raise errors.from_json(error.to_json()) from error
    return endpoint_of(url, host, properties)


def endpoint_of(url: str, host: str, properties: Mapping[str, Any]) -> Endpoint:
    """What the properties of the broker's open say about Flight."""
    scheme, port, token = (properties.get(f"flight-{name}") for name in ("scheme", "port", "token"))
    if scheme is None and port is None:
        raise errors.InvalidRequest(
            f"{url} is a plain AMQP 1.0 broker ({properties.get('product', 'of no known name')}): this version reads and writes"
            " only Penstock's; `penstock serve` starts one"
        )
    if scheme not in FLIGHT_SCHEMES or not isinstance(port, int) or not 0 < port < 65536:
        raise errors.PeerError(f"{url} names a Flight endpoint that cannot be: {scheme!r}, port {port!r}")
    if scheme == "grpc" and url.startswith("amqps://") and not is_loopback(host):
        raise errors.InvalidRequest(
            f"{url} asks for TLS, but the broker's Flight endpoint has none, so messages would travel in the open: serve with"
            " flight_tls = true, or say amqp:// if that is what you want"
        )
    bracketed = f"[{host}]" if ":" in host else host
    return Endpoint(f"{scheme}://{bracketed}:{port}", None if token is None else str(token))


def is_loopback(host: str) -> bool:
    """Whether a name or address is this very machine's. A name that only resolves to it does not count."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return False


# --- Getting at the client -------------------------------------------------------------------------------------------------


def _amqp_client() -> Any:
    try:
        return importlib.import_module("broker_core.amqp_client")
    except ModuleNotFoundError:
        if SHIPPED is None:
            raise
    if SHIPPED_NAME not in sys.modules:
        sys.meta_path.append(_Shipped(SHIPPED))
    return importlib.import_module(SHIPPED_NAME + ".amqp_client")


class _Shipped(MetaPathFinder, InspectLoader):
    """Imports from sources in memory, after everything else has been asked. A package's name ends with a dot."""

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._sources = sources

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        return spec_from_loader(name, self) if self.is_package(name) or name in self._sources else None

    def is_package(self, name: str) -> bool:
        return name + "." in self._sources

    def get_source(self, name: str) -> str:
        return zlib.decompress(self._sources.get(name) or self._sources[name + "."]).decode()


#: What the AMQP client consists of and imports, besides the standard library.
_NEEDED = ("broker_core", "broker_core.errors", "broker_core.credentials", "broker_core.amqp", "broker_core.amqp_client")


def sources() -> dict[str, bytes]:
    """What `SHIPPED` is to be."""
    found = {}
    for name in _NEEDED:
        package = importlib.import_module(name)
        modules = () if name == "broker_core" else pkgutil.iter_modules(getattr(package, "__path__", ()), name + ".")
        for module in (package, *(importlib.import_module(entry.name) for entry in modules)):
            path, source = _source(module)
            found[path.replace("broker_core", SHIPPED_NAME)] = zlib.compress(
                source.replace("broker_core", SHIPPED_NAME).encode(), 9
            )
    return found


def _source(module: ModuleType) -> tuple[str, str]:
    spec = module.__spec__
    assert spec is not None
    loader: Any = spec.loader  # of a file, or of a zip
    source: str = loader.get_source(spec.name)
    return spec.name + ("." if spec.submodule_search_locations is not None else ""), source
