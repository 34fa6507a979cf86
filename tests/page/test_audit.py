"""U11: the page shows the audit log, and a queue's page its latest actions."""

from __future__ import annotations

import pytest

from penstock.broker_core.client.amqp import connect
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.flight import Client
from penstock.broker_core.errors import NotAllowed, Unauthenticated
from penstock.broker_core.server.child import Broker

from .filling import declare
from .pages import PASSWORD, Page

EVIL = "<img src=x onerror=window.pwned=1>"


def test_the_audit_log(page: Page, client: Client) -> None:
    declare(client, "letters")
    declare(client, "<b>cards")
    page.open("queues/letters")
    page.click("Pause", "main")
    page.open("audit")
    page.shows("queue.pause", "main")
    page.type("main input[placeholder=Queue]", "letters")
    page.click("Show", "main")
    page.until(lambda: "cards" not in page.text("main td"), "only the entries of the queue")
    first = page.text("main tbody tr:first-child td").split("\n")
    assert first[1:5] == ["root", "queue.pause", "letters", ""] or first[1:4] == ["root", "queue.pause", "letters"]
    assert "page" in first
    page.type("main input[placeholder^=Since]", "soon")
    page.click("Show", "main")
    page.until(lambda: "is not a time" in page.text("main [role=alert]"), "an error")
    page.open("queues/letters")
    page.shows("Latest actions", "main")
    page.shows("queue.declare", "main")
    page.click("Resume", "main")
    page.shows("queue.resume", "main")


def test_the_audit_log_is_for_administrators(page: Page, client: Client) -> None:
    declare(client, "letters")
    page.log_in("look")
    page.open("audit")
    page.shows("you need the right admin on everything", "main")
    page.open("queues/letters")
    page.shows("Consumers and producers", "main")
    assert "Latest actions" not in page.text("main")


def test_names_that_strangers_claim_are_text(page: Page, client: Client, broker: Broker) -> None:
    """XSS and line feeds in a user's name, a program's name and an address."""
    with pytest.raises(Unauthenticated):
        connect(broker.amqp_url, f"a\n{EVIL}", PASSWORD)
    with Client(broker.url, Credentials("look", PASSWORD), program=EVIL) as other, pytest.raises(NotAllowed):
        other.call("queue.purge", queue="letters")
    with connect(broker.amqp_url, "look", PASSWORD) as connection, pytest.raises(NotAllowed):
        connection.sender(f"letters\n{EVIL}")
    page.open("audit")
    page.shows("link.send", "main")
    cells = page.text("main td")
    assert cells.count(EVIL) >= 3
    assert page.js("window.pwned") is None
    assert page.count("main img, main script") == 0
    recorded = client.call("audit.list", outcome="refused", count=3)["entries"]
    assert [(entry["user"], entry["door"], entry["object"]) for entry in recorded] == [
        ("look", "amqp", f"letters\n{EVIL}"),
        ("look", EVIL, "letters"),
        (f"a\n{EVIL}", "amqp", ""),
    ]


def test_looking_at_every_view_is_no_refused_attempt(page: Page, client: Client) -> None:
    declare(client, "letters")
    before = client.call("audit.list", user="look", outcome="refused")["entries"]
    page.log_in("look")
    views = ("queues", "queues/letters", "exchanges", "connections", "leases", "storage", "trace", "users", "audit")
    for view in views:
        page.open(view)
        page.until(lambda: page.text("main").strip())
        page.browser.run_async("const [done] = arguments; setTimeout(done, 300)")  # its first requests
    assert client.call("audit.list", user="look", outcome="refused")["entries"] == before
