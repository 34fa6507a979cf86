"""A client in a process of its own, for the row service-bus: `vendor|plain FOLDER_OF_THE_SDK URL_OR_CONNECTION_STRING COUNT`.

It sends batches of 100 messages of 1 KiB, each confirmed before the next one. Then it receives and accepts each message.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

QUEUE = "bench"
BATCH = 100
BODY = os.urandom(1024)


def vendor(folder: str, connection: str, count: int) -> None:
    """Use the vendor's SDK."""
    sys.path.insert(0, folder + "/lib")
    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    with ServiceBusClient.from_connection_string(connection) as client:
        with client.get_queue_sender(QUEUE) as sender:
            for _ in range(count // BATCH):
                batch = sender.create_message_batch()
                for _ in range(BATCH):
                    batch.add_message(ServiceBusMessage(BODY))
                sender.send_messages(batch)
        with client.get_queue_receiver(QUEUE, prefetch_count=BATCH) as receiver:
            left = count
            while left:
                messages = receiver.receive_messages(BATCH, max_wait_time=30)
                assert messages, f"{left} messages did not come"
                for message in messages:
                    receiver.complete_message(message)
                left -= len(messages)


def plain(_: str, url: str, count: int) -> None:
    """Use our protocol library, in the same steps: the outcome of each message is confirmed before the next one."""
    from amqp_load import _exchange, _opened

    from penstock.broker_core import amqp
    from penstock.broker_core.amqp.performatives import RCV_SECOND

    host, _, port = url.removeprefix("amqp://").rpartition(":")
    wire = socket.create_connection((host, int(port)))
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    machine = _opened(wire, amqp.SaslClient(prefer=("ANONYMOUS",)), "plain")
    session = machine.begin()
    sender, receiver = session.sender("in"), session.receiver("out")
    sender.attach(source=amqp.Source(), target=amqp.Target(address=QUEUE))
    messages = [amqp.Message(data=[BODY]).encode()] * BATCH
    for first in range(0, count, BATCH):
        while sender.link_credit < BATCH:
            _exchange(wire, machine)
        sender.send_many([number.to_bytes(8, "big") for number in range(first, first + BATCH)], messages)
        while sender.unsettled:
            _exchange(wire, machine)
    receiver.attach(source=amqp.Source(address=QUEUE), target=amqp.Target(), rcv_settle_mode=RCV_SECOND)
    receiver.grant(BATCH)
    left, waiting = count, list[Any]()
    while left:
        while not waiting:
            waiting += _delivered(_exchange(wire, machine))
        delivery, confirmed = waiting.pop(0), False
        session.dispose([delivery], amqp.Accepted(), settled=False)
        while not confirmed:
            events = _exchange(wire, machine)
            waiting += _delivered(events)
            confirmed = any(isinstance(event, amqp.events.Disposed) for event in events)
        left -= 1
        if left and not left % BATCH:
            receiver.grant(BATCH)
    wire.close()


def _delivered(events: list[Any]) -> list[Any]:
    from penstock.broker_core.amqp.events import Delivered

    return [delivery for event in events if isinstance(event, Delivered) for delivery in event.deliveries]


if __name__ == "__main__":
    {"vendor": vendor, "plain": plain}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
