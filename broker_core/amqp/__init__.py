"""A sans-I/O AMQP 1.0 library in the manner of h11: octets in, events out. It needs only the standard library.

    from penstock.broker_core.amqp import Connection, ConnectionSettings, Role

Two ends in memory:

    >>> client, server = (Connection(role, ConnectionSettings(container_id=role.value)) for role in (Role.CLIENT, Role.SERVER))
    >>> def turn():
    ...     at_server = server.receive_data(client.data_to_send())
    ...     return at_server, client.receive_data(server.data_to_send())

    >>> turn(), client.open(), server.open()
    (([], []), None, None)
    >>> turn()[0]  # doctest: +ELLIPSIS
    [Opened(open=Open(container_id='client', ...))]

A link and a message:

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

The modules, bottom up:

types, encoder, decoder                      the type system (part 1)
composites, performatives                    all composite types
messages, transactions                       messages, also of a control link
frames, fastpath                             frames one by one, and buffers
scram, sasl                                  logins
states                                       state tables
links, senders, receivers, resume            links
deliveries, outbox, intake, disposing        input and output of a session
sessions, handshake, idle, connection        connections
events, errors, serial, settings             shared by all

docs/protocols/amqp.md lists the implemented sections of the specification.
"""

from .connection import Connection
from .errors import Condition, DecodeError, EncodeError, FieldError, LocalProtocolError, ProtocolError, RemoteProtocolError
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
from .settings import ConnectionSettings, Role

__all__ = [
    "Accepted",
    "Condition",
    "Connection",
    "ConnectionSettings",
    "Coordinator",
    "Declare",
    "Declared",
    "DecodeError",
    "Discharge",
    "EncodeError",
    "FieldError",
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
    "Sender",
    "Session",
    "Source",
    "Target",
    "TransactionalState",
    "decode_message",
]
