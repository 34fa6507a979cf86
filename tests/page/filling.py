"""Queues with something in them, for the page to show."""

from __future__ import annotations

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.client.amqp import Connection
from penstock.broker_core.client.flight import Client


def send(
    connection: Connection, queue: str, *bodies: bytes, subject: str = "news", group: str | None = None, **properties: str
) -> None:
    sender = connection.sender(queue)
    fields = {"properties": Properties(subject=subject, group_id=group), "application_properties": properties}
    sender.send([Message(data=[body], **fields).encode() for body in bodies])
    sender.flush()


def declare(client: Client, *queues: str, **options: object) -> None:
    for queue in queues:
        client.call("queue.declare", queue=queue, options=options)


def dead_letters(client: Client, connection: Connection, queue: str, count: int) -> str:
    """Make a queue whose messages were rejected; the name of the one where they went."""
    dead = f"{queue}.dead"
    declare(client, dead)
    declare(client, queue, deadLetterQueue=dead)
    send(connection, queue, *(b"letter %d" % number for number in range(count)))
    receiver = connection.receiver(queue, credit=count)
    got = receiver.receive(count, timeout_s=10)
    assert len(got) == count
    receiver.reject(got)
    return dead
