"""The default order of queues: the ones that need an operator come first, with the reason. Alarms lead to their objects."""

from __future__ import annotations

from typing import Any

from penstock.broker_core.client.amqp import Connection
from penstock.broker_core.client.flight import Client

from .filling import dead_letters, declare, send
from .pages import Page

_CALM = {"available": 9, "acquired": 0, "delayed": 0, "deadLetters": 0, "oldest": 1, "consumers": 1, "leases": 0, "paused": 0,
         "growth": 0, "deliveries": 5}  # fmt: skip
_NOW_US = 300_000_000


def _label(page: Page, **changed: Any) -> str:
    script = """
        const [queue, now, done] = arguments;
        import("/page/attention.js").then(({attention}) => done(attention(queue, now).label));
    """
    return str(page.browser.run_async(script, {"name": "q", **_CALM, **changed}, _NOW_US))


def test_what_needs_attention(page: Page) -> None:
    assert _label(page) == ""
    assert _label(page, deliveries=0) == "stuck"
    assert _label(page, deliveries=0, oldest=_NOW_US - 1_000_000) == ""  # not for long enough
    assert _label(page, deliveries=0, paused=1) == ""
    assert _label(page, deliveries=0, consumers=0) == "no consumer"
    assert _label(page, deliveries=None) == "stuck"  # the first reading: nothing is held
    assert _label(page, deliveries=None, acquired=3) == ""
    assert _label(page, growth=50) == "growing"
    assert _label(page, growth=50, available=100_000) == ""
    assert _label(page, deadLetters=9, deliveries=0, growth=50) == "dead letters"  # a dead-letter queue needs no consumer
    assert _label(page, deadLetters=2, deliveries=0) == "stuck"


def test_queues_with_dead_letters_come_before_the_others(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "zz attention busy")
    send(amqp, "zz attention busy", *[b"x"] * 100)
    dead = dead_letters(client, amqp, "zz attention", 3)
    page.ready()
    page.type("main input[type=search]", "zz attention")
    page.until(lambda: page.names() == [dead, "zz attention busy", "zz attention"])
    page.shows("dead letters", "td.name")
    page.js("document.querySelector('main select').focus()")
    page.browser.press("S")  # Size
    page.until(lambda: page.names()[0] == "zz attention busy")


def test_an_alarm_links_to_its_object_and_quotes_no_command(page: Page) -> None:
    page.ready()
    slow = "a consumer has settled nothing. `penstock connection list --slow` lists them"
    old = "lease 'x' has held batch 1: `penstock lease release x --settle` or `--return` ends the batch"
    old += ". Raise its limits: `penstock queue alter 'q 1' --option NAME=VALUE`"
    alarms = [
        {"name": "slow-consumer", "queue": f"q {number}", "since": 1, "text": text}
        for number, text in enumerate((slow, old, "third"))
    ]
    script = """
        const [alarms, done] = arguments;
        const strip = document.createElement("div");

        import("/page/alarms.js").then(({showAlarms}) => {
            showAlarms(strip, alarms);
            done([[...strip.querySelectorAll("a")].map((link) => link.getAttribute("href")), strip.textContent]);
            showAlarms(strip, []);
        });
    """
    links, text = page.browser.run_async(script, alarms)
    assert links == ["#/queues/q%200", "#/connections", "#/queues/q%201", "#/leases", "#/queues/q%201"]
    assert "`" not in text
    assert "1 more alarm" in text
