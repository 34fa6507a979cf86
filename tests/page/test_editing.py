"""Messages are sent, edited, moved, copied, discarded and redriven by group on the page."""

from __future__ import annotations

import json

from penstock.broker_core.client.amqp import Connection
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .filling import declare, send
from .pages import Page

EVIL = "<img src=x onerror=window.pwned=1>"


def _bodies(client: Client, queue: str, state: str = "available") -> list[str]:
    return [row["body"]["text"] for row in client.call("queue.messages", queue=queue, states=[state])["messages"]]


def _choose(page: Page, state: str) -> None:
    page.js("(() => { const select = document.querySelector('.messages select'); select.value = arguments[0];"
            " select.dispatchEvent(new Event('change')); })()", state)  # fmt: skip


def _redrawn(page: Page) -> None:
    """The list was read again after a change, which closes the messages that were shown in full."""
    page.until(lambda: page.count(".messages tr.detail:not([hidden])") == 0)


def test_a_message_is_sent_and_a_delayed_one_shows_when_it_is_due(page: Page, client: Client) -> None:
    declare(client, "notes")
    page.open("queues/notes")
    page.click("Send…", ".messages")
    page.type("dialog textarea[name=body]", EVIL)
    page.type("dialog textarea[name=properties]", '{"n": 5')
    page.click("Send it", "dialog")
    page.shows("must be a JSON object", "dialog [role=alert]")
    page.type("dialog textarea[name=properties]", json.dumps({"n": 5, EVIL: EVIL}))
    page.js("document.querySelector('dialog details').open = true")
    page.type("dialog input[name=subject]", EVIL)
    page.click("Send it", "dialog")
    page.shows("Message 0 is sent to notes", "#notes")
    page.shows(EVIL, ".messages td")
    assert len(client.call("queue.messages", queue="notes", selector="n > 4")["messages"]) == 1
    page.click("Send…", ".messages")
    page.type("dialog textarea[name=body]", "later")
    page.js("document.querySelector('dialog details').open = true")
    page.type("dialog input[name=delay]", "3600")
    page.click("Send it", "dialog")
    page.shows("Message 1 is sent to notes", "#notes")
    _choose(page, "delayed")
    page.shows("Due (UTC)", ".messages th")
    page.shows("later", ".messages td")
    assert page.js("window.pwned") is None


def test_a_message_is_edited_and_the_second_operator_reads_why_not(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "drafts")
    send(amqp, "drafts", b"old", region="eu")
    page.open("queues/drafts")
    page.click("Show", ".messages")
    page.click("Edit and resend…", ".messages")
    page.until(lambda: page.js("document.querySelector('dialog textarea')?.value") == "old")
    assert page.js("document.querySelector('dialog input[name=target]').value") == "drafts"
    page.type("dialog textarea[name=body]", "new")
    page.click("Resend it", "dialog")
    page.shows("Message 0 is replaced by message 1 of drafts", "#notes")
    assert _bodies(client, "drafts") == ["new"]
    (copy,) = client.call("queue.messages", queue="drafts")["messages"]
    assert (copy["properties"], copy["subject"]) == ({"region": "eu"}, "news")
    page.shows("new", ".messages td")
    _redrawn(page)
    page.click("Show", ".messages")
    page.click("Edit and resend…", ".messages")
    page.until(lambda: page.count("dialog textarea"))
    client.call("message.replace", queue="drafts", sequence=1, target="drafts", body="of the other operator")
    page.type("dialog textarea[name=body]", "mine")
    page.click("Resend it", "dialog")
    page.shows("message 1 of queue 'drafts' has ended already", "dialog [role=alert]")
    page.shows("nothing was changed", "dialog [role=alert]")
    assert _bodies(client, "drafts") == ["of the other operator"]


def test_a_dead_letter_that_stayed_is_edited_without_a_redrive(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "kept", maxAttempts=1)
    send(amqp, "kept", b"bad", b"good")
    receiver = amqp.receiver("kept", credit=2)
    bad, good = receiver.receive(2, timeout_s=10)
    receiver.modify([bad], failed=True)
    receiver.accept([good])
    receiver.close()
    page.until(lambda: client.call("queue.stat", queue="kept")["stayed"] == 1)
    page.open("queues/kept")
    page.shows("delivery_limit", "main")
    _choose(page, "archived")
    page.until(lambda: page.count(".messages tbody tr:not(.detail)") == 2)
    page.js("document.querySelectorAll('.messages tbody tr:not(.detail) button').forEach((open) => open.click())")
    assert page.text(".messages").count("Edit and resend…") == 1  # of the dead letter
    page.click("Edit and resend…", ".messages")
    page.type("dialog textarea[name=body]", "repaired")
    page.click("Resend it", "dialog")
    page.shows("Message 0 is replaced by message 2 of kept", "#notes")
    assert _bodies(client, "kept") == ["repaired"]


def test_a_message_is_copied_moved_and_discarded(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "from here", "to there")
    send(amqp, "from here", b"a", b"b", b"c")
    page.open("queues/from%20here")
    page.click("Show", ".messages")
    page.click("Copy…", ".messages")
    page.type("dialog input[name=target]", "to there")
    page.click("Copy it", "dialog")
    page.shows("1 message copied to to there", "#notes")
    _redrawn(page)
    page.click("Show", ".messages")
    page.click("Discard…", ".messages")
    page.type("dialog input[name=error]", "no use")
    page.click("Discard it", "dialog")
    page.shows("Message 0 of from here is discarded", "#notes")
    page.click("Move all…", ".messages")
    page.type("dialog input[name=target]", "to there")
    page.click("Move them", "dialog")
    page.shows("messages moved to to there", "#notes")
    assert _bodies(client, "to there") == ["a", "b", "c"]
    _choose(page, "archived")
    page.shows("no use", ".messages td")
    assert client.call("queue.stat", queue="from here")["available"] == 0


def test_dead_letters_are_redriven_by_error_text(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "mails.dead")
    declare(client, "mails", deadLetterQueue="mails.dead")
    send(amqp, "mails", b"1", b"2", b"3")
    receiver = amqp.receiver("mails", credit=3)
    for text in ("no address", f"bad {EVIL}", "no address"):
        receiver.reject(receiver.receive(1, timeout_s=10), text)
    until(lambda: client.call("queue.stat", queue="mails.dead")["available"] == 3, "the dead letters")
    page.open("queues/mails.dead")
    page.shows("no address", ".messages td")  # a column
    page.shows(f"bad {EVIL}", "main")
    page.browser.click(page.until(lambda: page.js("document.querySelector('[aria-label$=\"no address\"]')")))
    page.shows("There are 2 dead letters here", "dialog")
    page.click("Redrive them", "dialog")
    page.shows("2 messages redriven", "#notes")
    assert _bodies(client, "mails.dead") == ["2"]
    assert page.js("window.pwned") is None


def test_who_may_only_browse_is_offered_no_change_of_a_message(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "watched")
    send(amqp, "watched", b"x")
    page.log_in("look")
    page.open("queues/watched")
    page.click("Show", ".messages")
    page.shows("sequenceNumber", ".messages")
    visible = "[...document.querySelectorAll('.messages button')].filter((b) => b.checkVisibility()).map((b) => b.innerText)"
    assert set(page.js(visible)) == {"Find", "Hide"}
