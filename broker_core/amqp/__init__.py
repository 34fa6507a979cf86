"""A sans-I/O AMQP 1.0 library: octets in, events out, in the manner of h11. It needs nothing but the standard library.

    from broker_core.amqp import Connection, Role, Settings

The rooms, from the bottom up: `types` and `encoder`/`decoder` (part 1), `composites` and `performatives` (every composite type,
one table), `messages` (sections of a message), `frames` and `fastpath` (one at a time, a buffer at a time), `scram` and `sasl`,
`states` (the tables), `links` with `senders` and `receivers`, `sessions` with `outbox` and `runs`, `resume`, `handshake`,
`idle`, `connection`, `events`. What is implemented, section by section, is in docs/spec-coverage.md.
"""

from .connection import Connection
from .errors import (
    Condition,
    DecodeError,
    EncodeError,
    FieldError,
    FramingError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    Scope,
)
from .links import Link
from .receivers import Receiver
from .sasl import SaslClient, SaslServer
from .senders import Sender
from .sessions import Session
from .settings import Role, Settings

__all__ = [
    "Condition",
    "Connection",
    "DecodeError",
    "EncodeError",
    "FieldError",
    "FramingError",
    "Link",
    "LocalProtocolError",
    "ProtocolError",
    "Receiver",
    "RemoteProtocolError",
    "Role",
    "SaslClient",
    "SaslServer",
    "Scope",
    "Sender",
    "Session",
    "Settings",
]
