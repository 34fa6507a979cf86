"""Queues, exchanges and bindings are declared, altered and deleted on the page, with counts before a deletion."""

from __future__ import annotations

from penstock.broker_core.client.amqp import Connection
from penstock.broker_core.client.flight import Client

from .filling import declare, send
from .pages import Page

EVIL = "<img src=x onerror=window.pwned=1>"


def test_a_queue_is_declared_altered_and_deleted(page: Page, client: Client, amqp: Connection) -> None:
    name = f"made {EVIL}"
    page.ready()
    page.click("Declare…", "main")
    page.type("dialog input[name=queue]", name)
    page.js("document.querySelector('dialog details').open = true")
    page.type("dialog [aria-label=maxMessages]", "5")
    page.shows("maxMessages: 0 → 5", "dialog .changes")
    page.click("Declare it", "dialog")
    page.until(lambda: page.text("h1") == name)
    assert client.call("queue.stat", queue=name)["options"]["maxMessages"] == 5
    send(amqp, name, b"x", b"y")
    page.click("Alter…", "main")
    page.until(lambda: page.js("document.querySelector('dialog button[type=submit]')?.disabled"), "nothing to alter yet")
    page.type("dialog [aria-label=maxMessages]", "")
    page.type("dialog [aria-label=maxAttempts]", "3")
    page.type("dialog [aria-label=retryDelay]", "-1")
    changes = ["maxAttempts: 20 → 3", "retryDelay: 0 → -1", "maxMessages: 5 → 0 (default)"]
    assert page.text("dialog .changes").split("\n") == changes
    page.click("Alter 3 options", "dialog")
    page.shows("retryDelay", "dialog [role=alert]")  # none of them is altered
    assert client.call("queue.stat", queue=name)["options"]["maxMessages"] == 5
    page.type("dialog [aria-label=retryDelay]", "100")
    page.click("Alter 3 options", "dialog")
    page.shows("maxAttempts, retryDelay, maxMessages of", "#notes")
    options = client.call("queue.stat", queue=name)["options"]
    assert (options["maxAttempts"], options["retryDelay"], options.get("maxMessages")) == (3, 100, None)
    page.click("Delete…", "main")
    page.shows("2 messages end with it: 2 ready", "dialog")
    page.click("Delete it with 2 messages", "dialog")
    page.shows("is deleted, with 2 messages", "#notes")
    page.ready()
    assert name not in [queue["queue"] for queue in client.call("queue.list")["queues"]]
    assert page.js("window.pwned") is None


def test_a_queue_that_is_shown_empty_is_not_deleted_with_messages(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "filled meanwhile")
    page.open("queues/filled%20meanwhile")
    page.click("Delete…", "main")
    page.shows("If one arrives meanwhile, the queue is kept", "dialog")
    send(amqp, "filled meanwhile", b"x")
    page.click("Delete it", "dialog")
    page.shows("is not empty: it has 1 messages", "dialog [role=alert]")


def test_exchanges_and_bindings(page: Page, client: Client) -> None:
    declare(client, "bound here")
    page.open("exchanges")
    page.click("Declare…", "main")
    page.type("dialog input[name=exchange]", "routes")
    page.js("document.querySelector('dialog select[name=type]').value = 'topic'")
    page.click("Declare it", "dialog")
    page.shows("routes", "main table")
    page.type("main input[type=search]", "routes")
    page.click("Bind…", "main table")
    page.type("dialog input[name=queue]", "bound here")
    page.type("dialog input[name=key]", "eu.#")
    page.type("dialog input[name=selector]", "JMSPriority > 4")
    page.click("Bind", "dialog")
    page.shows("eu.#, selector amqp.priority > 4", "main table")
    page.open("queues/bound%20here")
    page.shows("eu.#, selector amqp.priority > 4", "main")
    page.click("Unbind…", "main")
    page.click("Unbind", "dialog")
    page.shows("1 binding of bound here removed", "#notes")
    page.shows("No exchange sends messages to this queue", "main")
    page.open("exchanges")
    page.type("main input[type=search]", "routes")
    page.click("Delete…", "main table")
    page.click("Delete it with 0 bindings", "dialog")
    page.shows("Exchange routes is deleted", "#notes")
    assert "routes" not in [entry["exchange"] for entry in client.call("exchange.list")["exchanges"]]


def test_without_the_right_to_alter_exchanges_are_only_shown(page: Page, client: Client) -> None:
    client.call("exchange.declare", exchange="shown only")
    page.log_in("look")
    page.open("exchanges")
    page.shows("shown only", "main table")
    assert page.count("main button") == 0
