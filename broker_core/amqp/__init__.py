"""A sans-I/O AMQP 1.0 library: octets in, events out, in the manner of h11. It needs nothing but the standard library.

    from penstock.broker_core.amqp import Connection, Role, Settings

Two ends over a wire of memory; a real program moves the same octets through a socket:

    >>> client, server = (Connection(role, Settings(container_id=role.value)) for role in (Role.CLIENT, Role.SERVER))
    >>> def turn():
    ...     at_server = server.receive_data(client.data_to_send())
    ...     return at_server, client.receive_data(server.data_to_send())
    >>> turn(), client.open(), server.open()
    (([], []), None, None)
    >>> turn()[0]  # doctest: +ELLIPSIS
    [Opened(open=Open(container_id='client', ...))]
    >>> sender = client.begin().sender("orders")
    >>> sender.attach(source=Source(), target=Target(address="orders"))
    >>> begun, attached = turn()[0]
    >>> begun.session.begin()
    >>> attached.link.attach(source=attached.attach.source, target=attached.attach.target)
    >>> attached.link.grant(10)
    >>> _ = turn()
    >>> _ = sender.send(b"tag", Message(data=[b"hello"]).encode())
    >>> [delivered] = turn()[0]
    >>> decode_message(delivered.deliveries[0].payload).data
    [b'hello']
    >>> begun.session.dispose(delivered.deliveries, Accepted())
    >>> [disposed] = turn()[1]
    >>> disposed.state, disposed.settled
    (Accepted(), True)

The rooms, from the bottom up: `types` and `encoder`/`decoder` (part 1), `composites` and `performatives` (every composite
type, one table), `messages` (sections of a message), `transactions` (what a control link carries), `frames` and `fastpath`
(one at a time, a buffer at a time), `scram` and `sasl`, `states` (the tables), `links` with `senders` and `receivers`,
`sessions` with `handles`, `outbox`, `intake` (dispositions, runs, frames with an invalid field) and `disposing` (dispositions
out), `resume`, `handshake`, `idle`, `connection`, `events`; beside them `errors`, `serial` (numbers that wrap) and `settings`.
What is implemented, section by section, is in docs/protocols/amqp.md.
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
from .messages import Message, decode_message
from .performatives import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
)
from .receivers import Receiver
from .sasl import SaslClient, SaslServer
from .senders import Sender
from .sessions import Session
from .settings import Role, Settings

__all__ = [
    "Accepted",
    "Condition",
    "Connection",
    "Coordinator",
    "Declare",
    "Declared",
    "DecodeError",
    "Discharge",
    "EncodeError",
    "FieldError",
    "FramingError",
    "Link",
    "LocalProtocolError",
    "Message",
    "Modified",
    "ProtocolError",
    "Receiver",
    "Rejected",
    "Released",
    "RemoteProtocolError",
    "Role",
    "SaslClient",
    "SaslServer",
    "Scope",
    "Sender",
    "Session",
    "Settings",
    "Source",
    "Target",
    "TransactionalState",
    "decode_message",
]
