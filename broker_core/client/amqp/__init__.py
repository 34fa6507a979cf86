"""A small blocking AMQP 1.0 client on `broker_core.amqp`, without other dependencies.

    from penstock.broker_core.amqp import Message, decode_message
    from penstock.broker_core.client.amqp import connect

    with connect("amqp://127.0.0.1:5672") as connection:
        sender = connection.sender("orders")
        sender.send([Message(data=[b"hello"]).encode()])
        sender.flush()  # raises if a message was not accepted

        receiver = connection.receiver("orders", credit=100)
        deliveries = receiver.receive(timeout_s=1)
        print([decode_message(delivery.payload).data for delivery in deliveries])
        receiver.accept(deliveries)

It moves lists of messages, fast enough to generate the load of a benchmark.

dial, address                       `connect`, `login`, URLs
connection, transport               the loop between socket and protocol
links, sender                       links that send
receiving, receiver, blocks         links that receive: deliveries, or many messages without an object for each
claims                              tokens for each address
failures                            Penstock's errors for the peer's conditions
"""

from .connection import Connection
from .dial import connect, login
from .receiver import Receiver
from .sender import RefusedMessage, Sender

__all__ = ["Connection", "Receiver", "RefusedMessage", "Sender", "connect", "login"]
