"""U10: a search field of the page shows where a message is, and its events."""

from __future__ import annotations

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.client.amqp import Connection
from penstock.broker_core.client.flight import Client

from .filling import declare
from .pages import Page


def test_the_history_of_a_message(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "parcels.dead")
    declare(client, "parcels", deadLetterQueue="parcels.dead")
    sender = amqp.sender("parcels")
    sender.send([Message(data=[b"x"], properties=Properties(message_id=f"p-{number}")).encode() for number in range(2)])
    sender.flush()
    receiver = amqp.receiver("parcels", credit=1)
    receiver.reject(receiver.receive(1, timeout_s=10), "no address")
    page.open("trace")
    page.type("main input[type=search]", "p-0")
    page.click("Trace", "main")
    page.shows("waits in parcels.dead (sequence number 0)", "main")
    page.shows("arrived in parcels (sequence number 0)", "main")
    page.shows("dead-lettered to parcels.dead (sequence number 0): rejected", "main")
    assert page.js("location.hash") == "#/trace/id%3Dp-0"
    page.open("trace/id%3Dp-9")
    page.shows("No message in the queues and in their archive", "main")
    page.open("trace/where%3DJMSPriority%20%3D")
    page.until(lambda: page.text("main [role=alert]").strip(), "an error")
    page.open("queues/parcels.dead")
    page.click("Show", ".messages")
    page.click("Trace this message", ".messages")
    page.shows("waits in parcels.dead (sequence number 0)", "main")
