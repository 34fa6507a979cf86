"""U11: the page shows the audit log, and a queue's page its latest actions."""

from __future__ import annotations

from penstock.broker_core.client.flight import Client

from .filling import declare
from .pages import Page


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
