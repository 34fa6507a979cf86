"""Listeners for AMQP.

- A password in clear text (PLAIN) requires TLS or a loopback address.
- Clients without a name (ANONYMOUS, or no SASL layer) are accepted on loopback. Elsewhere `allow_anonymous` or the listener's
  mechanisms must allow them.
- On a WebSocket, only its mechanisms allow them, because any page in a local browser can open one.
- With the dialect `service-bus`, clients log in without a name and present tokens. Those are credentials, so they require TLS,
  a loopback address, or a broker that is open to the network.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from .. import errors
from . import strict_json

#: The strongest first, because clients choose the first that they support.
MECHANISMS = ("EXTERNAL", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS")
AMQP, SERVICE_BUS = DIALECTS = ("amqp", "service-bus")
TOKEN_MECHANISMS = ("MSSBCBS", "ANONYMOUS")  # of clients that present tokens after the login


@dataclass(frozen=True)
class Listener:
    """An address for AMQP, or for HTTP. `Settings` completes `mechanisms`, `without_sasl` and `settles_first`."""

    host: str = "127.0.0.1"
    port: int = 0
    tls: bool = False
    websocket: bool = False
    mechanisms: tuple[str, ...] = ()  # offered SASL mechanisms; empty: the safe ones
    without_sasl: bool | None = None  # accept clients that skip SASL; None: if that is safe
    proxies: tuple[str, ...] = ()  # addresses and networks that send a header of the PROXY protocol
    dialect: str = AMQP
    settles_first: bool = False  # settle messages together with their outcome, even if a sender asks to settle them

    @property
    def scheme(self) -> str:
        return ("wss" if self.tls else "ws") if self.websocket else ("amqps" if self.tls else "amqp")

    @property
    def subprotocols(self) -> tuple[str, ...]:
        """The accepted subprotocols of a WebSocket."""
        return ("AMQPWSB10", "amqp") if self.dialect == SERVICE_BUS else ("amqp",)

    @property
    def loopback(self) -> bool:
        """True if only this machine can reach it. Names other than localhost can resolve to any address, and a proxy's clients
        may be anywhere."""
        if self.proxies:
            return False
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


ALLOWED = (
    "a list of tables, each with host, port, tls (true or false), websocket (true or false), mechanisms (a list of"
    f" {', '.join(MECHANISMS)}), without_sasl (true or false), proxies (a list of addresses), dialect ({' or '.join(DIALECTS)})"
    " and settles_first (true or false); on the command line as JSON"
)


def parse_host(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9A-Za-z._:\[\]-]+", value):
        raise ValueError
    return value


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def parse_number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not str(value).isascii():
        raise ValueError
    return int(value)


def parse_port(value: object) -> int:
    number = parse_number(value)
    if not 0 <= number <= 65535:
        raise ValueError
    return number


def parse(value: object) -> tuple[Listener, ...]:
    """Parse tables of TOML or JSON, or Listeners. Raises ValueError for any other value, and InvalidRequest for a wrong field."""
    return tuple(_listener(number, table) for number, table in enumerate(strict_json.tables(value)))


def to_json(listeners: Sequence[Listener]) -> str:
    return json.dumps([asdict(listener) for listener in listeners])


def _listener(number: int, table: object) -> Listener:
    if isinstance(table, Listener):
        table = asdict(table)
    if not isinstance(table, Mapping):
        raise ValueError
    allowed = [item.name for item in fields(Listener)]
    strict_json.check_keys(f"listeners[{number}]", table, allowed)
    if "port" not in table:
        raise _refused(number, "port", "is missing: name one, or 0 for a free one")
    return Listener(**{name: _field(number, name, value) for name, value in table.items()})


def _parse_mechanisms(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise ValueError
    if tuple(value) == TOKEN_MECHANISMS:  # of a listener that was completed before
        return TOKEN_MECHANISMS
    if not all(name in MECHANISMS for name in value):
        raise ValueError
    return tuple(name for name in MECHANISMS if name in value)


def _parse_proxies(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise ValueError
    return tuple(str(ipaddress.ip_network(name)) for name in value)


def _parse_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _parse_dialect(value: object) -> str:
    if value not in DIALECTS:
        raise ValueError
    return str(value)


_FIELDS: dict[str, tuple[Callable[[object], Any], str]] = {
    "host": (parse_host, "a host name or address to listen on"),
    "port": (parse_port, "a port number, or 0 for a free one"),
    "mechanisms": (_parse_mechanisms, f"a list of some of {', '.join(MECHANISMS)}; leave it out for the safe ones"),
    "proxies": (_parse_proxies, 'a list of addresses or networks, such as ["10.0.0.5", "10.1.0.0/16"]'),
    "dialect": (_parse_dialect, " or ".join(DIALECTS)),
}


def _field(number: int, name: str, value: object) -> Any:
    if value is None and name == "without_sasl":
        return None
    parse_field, allowed = _FIELDS.get(name, (_parse_flag, "true or false"))
    try:
        return parse_field(value)
    except ValueError:
        raise _refused(number, name, f"cannot be {value!r}; it must be {allowed}") from None


def safe_mechanisms(listener: Listener, client_ca: bool, anonymous: bool) -> tuple[str, ...]:
    """Return the SASL mechanisms of a listener that names none. `client_ca`: client certificates can be checked. `anonymous`: a
    network's clients without a name are accepted."""
    safe = {
        "EXTERNAL": listener.tls and client_ca,
        "SCRAM-SHA-256": True,
        "PLAIN": listener.tls or listener.loopback,
        "ANONYMOUS": _may_be_nameless(listener, anonymous),
    }
    return tuple(name for name in MECHANISMS if safe[name])


def _may_be_nameless(listener: Listener, anonymous: bool) -> bool:
    return (listener.loopback or anonymous) and not listener.websocket


def complete(
    listeners: Sequence[Listener], *, certificate: bool, client_ca: bool, anonymous: bool = False
) -> tuple[Listener, ...]:
    """Check listeners; set mechanisms and without_sasl."""
    completed: list[Listener] = []
    for number, listener in enumerate(listeners):
        _check(number, listener, certificate, client_ca)
        if listener.dialect == SERVICE_BUS:
            listener = _with_tokens(number, listener, anonymous)
        names = listener.mechanisms or safe_mechanisms(listener, client_ca, anonymous)
        without = listener.without_sasl
        if without is None and listener.dialect == AMQP:
            without = _may_be_nameless(listener, anonymous) and "ANONYMOUS" in names
        if without and "ANONYMOUS" not in names:
            raise _refused(
                number, "without_sasl", "lets clients in without a user name, so ANONYMOUS must be among its mechanisms"
            )
        if listener.port and (listener.host, listener.port) in [(earlier.host, earlier.port) for earlier in completed]:
            raise _refused(number, "port", f"{listener.host}:{listener.port} is the address of another listener")
        completed.append(replace(listener, mechanisms=names, without_sasl=bool(without)))
    return tuple(completed)


def _with_tokens(number: int, listener: Listener, anonymous: bool) -> Listener:
    """Complete a listener for Service Bus."""
    if listener.mechanisms not in ((), TOKEN_MECHANISMS):
        raise _refused(number, "mechanisms", f"cannot be set with dialect {SERVICE_BUS!r}: its clients present tokens instead")
    if not (listener.tls or listener.loopback or anonymous):
        text = f"{SERVICE_BUS!r} would show tokens to the network at {listener.host}: set tls, or listen on 127.0.0.1"
        raise _refused(number, "dialect", text)
    return replace(listener, mechanisms=TOKEN_MECHANISMS, settles_first=True)


def _check(number: int, listener: Listener, certificate: bool, client_ca: bool) -> None:
    if listener.tls and not certificate:
        raise _refused(number, "tls", "needs a certificate: set tls_cert_file and tls_key_file")
    if "PLAIN" in listener.mechanisms and not (listener.tls or listener.loopback):
        raise _refused(
            number,
            "mechanisms",
            f"PLAIN would show passwords to the network at {listener.host}: set tls, or "
            + ("leave proxies out" if listener.proxies else "listen on 127.0.0.1"),
        )
    if "EXTERNAL" in listener.mechanisms and not (listener.tls and client_ca):
        raise _refused(number, "mechanisms", "EXTERNAL is a login by a client's certificate: it needs tls and tls_client_ca_file")


def _refused(number: int, name: str, text: str) -> errors.InvalidRequest:
    return errors.InvalidRequest(f"listeners[{number}].{name} {text}")
