"""U3: on the page, dead letters that a selector finds go back, shown or not; exchanges are there to read."""

from __future__ import annotations

from penstock.broker_core.client.amqp import Connection
from penstock.broker_core.client.flight import Client

from .filling import declare, send
from .pages import Page


def test_dead_letters_that_match_are_redriven_beyond_what_is_shown(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "tours.dead")
    declare(client, "tours", deadLetterQueue="tours.dead")
    for region in ("eu", "us"):
        send(amqp, "tours", *[b"x"] * 70, region=region)
    receiver = amqp.receiver("tours", credit=140)
    for got in iter(lambda: receiver.receive(140, timeout_s=10), []):
        receiver.reject(got)
        if client.call("queue.stat", queue="tours")["deadLettered"] == 140:
            break
    page.open("queues/tours.dead")
    page.shows("Its consumer rejected it", "main")
    page.lacks("Redrive all that match…", ".messages")
    page.type(".messages input", "region = 'eu'")
    page.click("Find", ".messages")
    page.shows("Redrive these 50…", ".messages")
    page.click("Redrive all that match…", ".messages")
    page.shows("There are 140 dead letters here", "dialog")
    assert page.js("document.querySelector('dialog input[name=selector]').value") == "region = 'eu'"
    page.click("Redrive them", "dialog")
    page.shows("70 messages redriven", "#notes")
    page.shows("No message matches", ".messages")
    assert client.call("queue.stat", queue="tours.dead")["available"] == 70


def test_a_name_that_may_be_meant_as_a_field_is_said_and_the_example_works(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "trips")
    send(amqp, "trips", b"x", region="eu")
    page.open("queues/trips")
    page.shows("Messages", "main")
    page.type(".messages input", "priority > 3 AND region = 'eu'")
    page.click("Find", ".messages")
    page.shows("No message matches", ".messages")
    page.shows("which no compared message has; for the message's priority write JMSPriority or amqp.priority", ".messages")
    example = page.js("document.querySelector('.messages input').placeholder").removeprefix("Selector: ")
    page.js("document.querySelector('.messages input').value = ''")
    page.type(".messages input", example.replace("> 4", "> 3"))
    page.click("Find", ".messages")
    page.lacks("Note:", ".messages")
    page.lacks("No message matches", ".messages")


def test_exchanges_are_listed_with_what_is_bound_to_them(page: Page, client: Client) -> None:
    declare(client, "news.all", "news.eu")
    client.call("exchange.declare", exchange="news", type="topic", options={"unroutable": "drop"})
    client.call("exchange.declare", exchange="quiet", type="fanout")
    for queue, key, selector in (("news.all", "#", None), ("news.eu", "eu.*", "priority > 4")):
        client.call("exchange.bind", exchange="news", queue=queue, key=key, selector=selector)
    page.open("exchanges")
    for text in ("news", "topic", "unroutable=drop", "eu.*", "selector priority > 4", "quiet", "no bindings"):
        page.shows(text, "main table")
    page.type("main input[type=search]", "eu.")
    page.lacks("quiet", "main table")
    assert page.text("main tbody tr").split()[:2] == ["news", "topic"]  # the remaining binding has its exchange
    assert page.count("main tbody tr") == 1
    page.click("news.eu", "main table")
    page.until(lambda: page.text("h1") == "news.eu")
