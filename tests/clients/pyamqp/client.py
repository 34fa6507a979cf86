"""pyamqp, the AMQP library inside azure-servicebus, without its SDK: `client.py HOST:PORT QUEUE SECONDS`.

It sends a message, receives it, accepts it, and prints its text. As a sender, it asks for the mode receiver-settles-second.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

from azure.servicebus._pyamqp import ReceiveClient, SendClient
from azure.servicebus._pyamqp.constants import TransportType
from azure.servicebus._pyamqp.message import Message
from azure.servicebus._pyamqp.sasl import SASLAnonymousCredential


def main(host: str, queue: str, seconds: str) -> None:
    auth = SimpleNamespace(auth_type="anonymous", sasl=SASLAnonymousCredential())
    options = {"auth": auth, "use_tls": False, "transport_type": TransportType.Amqp}
    with SendClient(host, queue, **options) as sender:
        sender.send_message(Message(data=[b"bare"]), timeout=float(seconds))
    with ReceiveClient(host, queue, link_credit=1, **options) as receiver:
        while receiver._received_messages.empty():
            receiver.do_work()
        frame, message = receiver._received_messages.get()
        receiver.settle_messages(frame[1], frame[2], "accepted")
        print(b"".join(message.data).decode())


main(*sys.argv[1:])
