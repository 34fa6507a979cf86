"""Full queues have a badge; refused and dropped messages are shown by reason."""

from __future__ import annotations

from penstock.broker_core.client.amqp import Connection
from penstock.broker_core.client.flight import Client

from .filling import declare, send
from .pages import Page


def test_full_queues_and_losses_are_shown(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "fills.full", "fills.nearly", "fills.half", maxMessages=10, overflow="ring")
    for queue, count in (("fills.full", 10), ("fills.nearly", 9), ("fills.half", 5)):
        send(amqp, queue, *[b"m"] * count)
        client.call("queue.alter", queue=queue, options={"overflow": "reject"})
    client.call("exchange.declare", exchange="fills.dropping", options={"unroutable": "drop"})
    send(amqp, "fills.dropping", b"m", b"m", b"m")
    page.open("queues")
    page.shows("fills.full\nfull", "td.name")
    page.shows("fills.nearly\n90 % full", "td.name")
    assert "queue-full" not in page.text("td.name"), "the badge of the fill level is enough"
    assert "fills.half" in page.text("td.name").split("\n"), "half full needs no badge"
    declare(client, "fills.ring", maxMessages=1, overflow="ring")
    send(amqp, "fills.ring", b"m", b"m", b"m")
    page.open("queues/fills.ring")
    page.shows("ring: 2 messages", "dl.facts")
    page.open("exchanges")
    page.shows("dropped: unbound: 3 messages", "td")
