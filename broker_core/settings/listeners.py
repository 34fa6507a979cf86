"""Listeners for AMQP: each has its own address, TLS, WebSocket or not, and ways to log in.

What may be offered follows from who can listen in. A password in clear (PLAIN) needs TLS, or a loopback address; peers without
a name (ANONYMOUS, no SASL layer at all) are let in on loopback, and elsewhere only where `allow_anonymous` or that listener's
mechanisms say so. A WebSocket lets them in only where its mechanisms say so, also on loopback: every page that a browser of
this machine shows can open one.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from .. import errors
from . import strict_json

#: In the order in which they are offered: the strongest first, since clients take the first that they know.
MECHANISMS = ("EXTERNAL", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS")


@dataclass(frozen=True)
class Listener:
    """One address. `host` and `port` (0: a free one) as for any server; `tls`: with tls_cert_file and tls_key_file (amqps,
    port 5671 by custom); `websocket`: AMQP in binary WebSocket frames, by HTTP's upgrade.

    `mechanisms`: the SASL mechanisms offered; empty means those that are safe here (see `safe_mechanisms`). `without_sasl`:
    whether a peer that begins with AMQP's header instead of SASL's is let in, as nobody; None means where that is safe.
    `Settings` fills both in.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tls: bool = False
    websocket: bool = False
    mechanisms: tuple[str, ...] = ()
    without_sasl: bool | None = None

    @property
    def scheme(self) -> str:
        """Of its URL."""
        return ("wss" if self.tls else "ws") if self.websocket else ("amqps" if self.tls else "amqp")

    @property
    def loopback(self) -> bool:
        """True where only this machine can reach it. A name other than localhost may mean anything, so it does not count."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False


ALLOWED = (
    "a list of tables, each with host, port, tls (true or false), websocket (true or false), mechanisms (a list of"
    f" {', '.join(MECHANISMS)}) and without_sasl (true or false); on the command line as JSON"
)


def parse_host(value: object) -> str:
    """A host name or an address; ValueError for anything else."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9A-Za-z._:\[\]-]+", value):
        raise ValueError
    return value


def in_url(host: str) -> str:
    """Return a host as a URL has it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def parse_number(value: object) -> int:
    """A whole number, or a text of one in the digits 0 to 9; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, str)) or not str(value).isascii():
        raise ValueError
    return int(value)


def parse_port(value: object) -> int:
    """0 to 65535, as a number or a text; ValueError for anything else."""
    number = parse_number(value)
    if not 0 <= number <= 65535:
        raise ValueError
    return number


def parse(value: object) -> tuple[Listener, ...]:
    """From tables (as TOML or JSON have them), or Listeners. ValueError when it is no list of tables; InvalidRequest, with
    the listener and its field, when a field is wrong.
    """
    if isinstance(value, str):
        value = strict_json.loads(value)
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise ValueError
    return tuple(_one(number, table) for number, table in enumerate(value))


def to_json(listeners: Sequence[Listener]) -> str:
    """Render listeners as text of which `parse` makes the same listeners."""
    return json.dumps([asdict(listener) for listener in listeners])


def _one(number: int, table: object) -> Listener:
    if isinstance(table, Listener):
        table = asdict(table)
    if not isinstance(table, Mapping):
        raise ValueError
    allowed = [item.name for item in fields(Listener)]
    for name in table:
        if name not in allowed:
            raise errors.InvalidRequest(f"listeners[{number}]: {name} is not a key; allowed are {', '.join(allowed)}")
    if "port" not in table:
        raise _refused(number, "port", "is missing: name one, or 0 for a free one")
    return Listener(**{name: _field(number, name, value) for name, value in table.items()})


def _field(number: int, name: str, value: object) -> Any:
    try:
        if name == "host":
            return parse_host(value)
        if name == "port":
            return parse_port(value)
        if name == "mechanisms":
            return _parse_mechanisms(value)
        if isinstance(value, bool) or (value is None and name == "without_sasl"):
            return value
        raise ValueError
    except ValueError:
        what = {
            "host": "a host name or address to listen on",
            "port": "a port number, or 0 for a free one",
            "mechanisms": f"a list of some of {', '.join(MECHANISMS)}; leave it out for those that are safe there",
        }
        raise _refused(number, name, f"cannot be {value!r}; it must be {what.get(name, 'true or false')}") from None


def _parse_mechanisms(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(name in MECHANISMS for name in value):
        raise ValueError
    return tuple(name for name in MECHANISMS if name in value)


def safe_mechanisms(listener: Listener, client_ca: bool, anonymous: bool) -> tuple[str, ...]:
    """Return the SASL mechanisms that are offered where the listener names none.

    `client_ca`: client certificates can be checked. `anonymous`: peers without a name may come from a network."""
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
    """Checked against each other and against the certificates there are, with mechanisms and without_sasl filled in."""
    done: list[Listener] = []
    for number, listener in enumerate(listeners):
        _check(number, listener, certificate, client_ca)
        names = listener.mechanisms or safe_mechanisms(listener, client_ca, anonymous)
        without = listener.without_sasl
        if without is None:
            without = _may_be_nameless(listener, anonymous) and "ANONYMOUS" in names
        if without and "ANONYMOUS" not in names:
            raise _refused(
                number, "without_sasl", "lets clients in without a user name, so ANONYMOUS must be among its mechanisms"
            )
        if listener.port and any((other.host, other.port) == (listener.host, listener.port) for other in done):
            raise _refused(number, "port", f"{listener.host}:{listener.port} is another listener's already")
        done.append(replace(listener, mechanisms=names, without_sasl=without))
    return tuple(done)


def _check(number: int, listener: Listener, certificate: bool, client_ca: bool) -> None:
    if listener.tls and not certificate:
        raise _refused(number, "tls", "needs a certificate: set tls_cert_file and tls_key_file")
    if "PLAIN" in listener.mechanisms and not (listener.tls or listener.loopback):
        raise _refused(
            number, "mechanisms", f"PLAIN would show passwords to the network at {listener.host}: set tls, or listen on 127.0.0.1"
        )
    if "EXTERNAL" in listener.mechanisms and not (listener.tls and client_ca):
        raise _refused(number, "mechanisms", "EXTERNAL is a login by a client's certificate: it needs tls and tls_client_ca_file")


def _refused(number: int, name: str, text: str) -> errors.InvalidRequest:
    return errors.InvalidRequest(f"listeners[{number}].{name} {text}")
