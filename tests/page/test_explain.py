"""U12: a queue's page explains why its messages wait, and lists the properties of its consumers."""

from __future__ import annotations

from penstock.broker_core.client.amqp import connect
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from .filling import declare, send
from .pages import PASSWORD, Page


def test_why_messages_wait(page: Page, client: Client, broker: Broker) -> None:
    declare(client, "stuck")
    with connect(broker.amqp_url, "root", PASSWORD) as connection:
        send(connection, "stuck", b"x", b"y")
        connection.receiver("stuck", credit=0)
        connection.receiver("stuck", credit=5, selector="region = 'eu <b>'")
        page.open("queues/stuck")
        page.shows("2 waiting, 0 held, 0 delayed", "main")
        page.shows("no credit: its client asks for no more messages", "main .consumers")
        page.shows("its selector matches none of 2 messages", "main")
        page.shows("region = 'eu <b>'", "main td.selector")
        page.shows("Settled/s", "main")
        (row,) = [entry for entry in client.call("connection.list")["connections"] if entry["protocol"] == "amqp"]
        page.open(f"connections/{row['id']}")
        page.shows("region = 'eu <b>'", "main tr.detail")
    page.open("queues/stuck")
    page.shows("The queue has no consumer.", "main")


def test_only_administrators_see_the_consumers_of_others(page: Page, client: Client) -> None:
    declare(client, "stuck")
    page.log_in("look")
    page.open("queues/stuck")
    page.shows("Consumers and producers", "main")
    assert "Why messages wait" not in page.text("main")
