"""Shared access of Azure Service Bus: the connection string, and the tokens signed with its key.

    Endpoint=sb://NAME.servicebus.windows.net/;SharedAccessKeyName=NAME;SharedAccessKey=KEY;EntityPath=QUEUE

With `UseDevelopmentEmulator=true` the broker is Microsoft's emulator, which has no TLS. The key is in no repr and in no error's
text.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, field
from urllib.parse import quote_plus, urlsplit

from ..errors import InvalidRequest

#: Seconds until a token ends, as in Microsoft's own clients.
TOKEN_S = 3600
#: Limit in characters. Real connection strings have about 200.
MAX_CONNECTION_STRING = 4096

_FORM = "Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY, and perhaps ;EntityPath=QUEUE"


@dataclass(frozen=True)
class SharedAccess:
    """A named key of a namespace, `host`. Its tokens end after `token_s` seconds."""

    host: str
    name: str
    key: str = field(repr=False)
    token_s: int = TOKEN_S

    def audience(self, address: str) -> str:
        return f"sb://{self.host}/{address}"

    def token(self, address: str, expiry: int) -> str:
        """Sign a token for this address. `expiry`: its end, in seconds since 1970."""
        resource = quote_plus(self.audience(address), safe="")
        signature = hmac.digest(self.key.encode(), f"{resource}\n{expiry}".encode(), "sha256")
        signed = quote_plus(base64.b64encode(signature).decode(), safe="")
        return f"SharedAccessSignature sr={resource}&sig={signed}&se={expiry}&skn={quote_plus(self.name, safe='')}"


@dataclass(frozen=True)
class ConnectionString:
    """The broker's AMQP URL, the key, and the entity, if any."""

    url: str
    access: SharedAccess
    entity: str | None


def parse(text: str) -> ConnectionString:
    """Parse a connection string. Raises InvalidRequest, whose text repeats only names."""
    if len(text) > MAX_CONNECTION_STRING:
        raise InvalidRequest(f"a connection string of more than {MAX_CONNECTION_STRING} characters; it must be {_FORM}")
    parts: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, equals, value = part.partition("=")
        name = name.strip().lower()
        if not equals or name in parts:
            raise InvalidRequest(f"the connection string has a part without NAME=VALUE, or one twice; it must be {_FORM}")
        parts[name] = value.strip()
    for name in ("Endpoint", "SharedAccessKeyName", "SharedAccessKey"):
        if not parts.get(name.lower()):
            raise InvalidRequest(f"the connection string has no {name}; it must be {_FORM}")
    host, port = _host_and_port(parts["endpoint"])
    emulator = parts.get("usedevelopmentemulator", "").lower() == "true"
    bracketed = f"[{host}]" if ":" in host else host
    url = f"{'amqp' if emulator else 'amqps'}://{bracketed}" + (f":{port}" if port else "")
    access = SharedAccess(host, parts["sharedaccesskeyname"], parts["sharedaccesskey"])
    return ConnectionString(url, access, parts.get("entitypath") or None)


def _host_and_port(endpoint: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme != "sb" or not host or parts.username is not None or parts.path not in ("", "/"):
        raise InvalidRequest(f"the connection string's Endpoint must be sb://HOST/ or sb://HOST:PORT/; all of it: {_FORM}")
    return host, port
