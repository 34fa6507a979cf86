"""A small blocking AMQP 1.0 client on `broker_core.amqp`: the standard library and nothing else.

    from penstock.broker_core.amqp import Message, decode_message
    from penstock.broker_core.client.amqp import connect

    with connect("amqp://127.0.0.1:5672") as connection:
        sender = connection.sender("orders")
        sender.send([Message(data=[b"hello"]).encode()])
        sender.flush()                                   # every outcome has come, and all were accepted
        receiver = connection.receiver("orders", credit=100)
        deliveries = receiver.receive(timeout_s=1)
        print([decode_message(delivery.payload).data for delivery in deliveries])
        receiver.accept(deliveries)

It moves lists of messages, not single ones, so that it can be the load generator of a benchmark. The modules:

address                   urls
dial                      `connect`, `login`
transport                 sockets and TLS
connection                the loop between socket and protocol
links, sender, receiver   links
receiving                 the common part of receivers
reports                   which deliveries the application has
blocks                    a receiver for many messages, without an object for each
claims                    tokens for each address, renewed before they end
failures                  Penstock's errors for the peer's
"""

from .connection import Connection
from .dial import connect, login
from .receiver import Receiver
from .sender import Refusal, Sender

__all__ = ["Connection", "Receiver", "Refusal", "Sender", "connect", "login"]
