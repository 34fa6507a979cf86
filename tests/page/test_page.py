"""U3: the page for operators in a real Chromium. Each test also finds that no script failed and nothing broke the policy."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core.client.amqp import Connection, connect
from penstock.broker_core.client.amqp.dial import login
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.flight import Client

from .filling import dead_letters, declare, send
from .pages import PASSWORD, Page
from .webdriver import Browser

FIRST_NUMBERS_MS = 1000  # the number, for 1,000 queues
EVIL = "<img src=x onerror=window.pwned=1>"
ENTER, ESCAPE, DOWN, UP = "\ue007", "\ue00c", "\ue015", "\ue013"


# --- logins and rights


def test_a_wrong_password_is_refused_and_the_right_one_opens_the_page(chromium: Browser, broker: Broker, client: Client) -> None:
    declare(client, "orders")
    page = Page(chromium, broker.http_url)
    page.open("queues")
    page.shows("Log in", "main")
    for password, answer in (("wrong", "refused"), (PASSWORD, "Queues")):
        page.type("input[name=user]", "root")
        page.type("input[name=password]", password)
        page.click("Log in", "main")
        if password == "wrong":
            page.until(lambda: page.text(".login [role=alert]").strip(), answer)
            assert page.count("table.queues") == 0
    page.ready()
    assert "orders" in page.names()
    assert page.js("document.cookie") == ""  # no script can read the session's
    assert page.problems() == []


def test_logging_out_ends_the_session_and_empties_the_page(page: Page) -> None:
    page.ready()
    page.click("Log out", "header")
    page.shows("Log in", "main")
    assert page.count("table") == 0
    page.open("connections")
    page.shows("Log in", "main")


def test_a_session_that_ends_elsewhere_asks_for_the_login_again(page: Page) -> None:
    page.ready()
    page.browser.delete_cookies()
    page.shows("Log in", "main")
    page.shows("Your login has ended", "#notes")


def test_who_may_only_look_is_offered_nothing_else_and_allowed_nothing_else(page: Page, client: Client) -> None:
    declare(client, "orders")
    page.log_in("look")
    page.ready()
    page.shows("read only", "header")
    page.open("queues/orders")
    page.shows("read only", "main")
    page.shows("Messages", "main")
    labels = set(page.text("main button").split("\n"))
    assert not {"Pause", "Alter…", "Bind…", "Redrive…", "Purge…", "Delete…", "Declare…"} & labels
    assert page.call("queue.purge", {"queue": "orders"}) == 403
    page.open("users")
    page.shows("To see the users you need the right admin", "main")


# --- nothing that others have written runs


def test_names_subjects_bodies_and_errors_are_text(page: Page, client: Client, broker: Broker) -> None:
    """XSS in every text of clients: names of queues, exchanges, leases, groups and containers, keys, selectors, subjects,
    bodies, properties, reasons and refusals."""
    queue = f"evil {EVIL}"
    dead = f"dead {EVIL}"
    declare(client, dead)
    declare(client, queue, deadLetterQueue=dead, groups="held")
    with login(broker.amqp_url, Credentials("root", PASSWORD), timeout_s=10, container_id=EVIL) as connection:
        send(connection, queue, b"leased", group=f"leased {EVIL}", kind=EVIL)
        fields = {"queue": queue, "lease": EVIL, "run": EVIL, "epoch": None, "finished": 0, "fresh": True}
        chosen = f"kind = '{EVIL}'"
        assert client.call("lease.advance", **fields, selector=chosen)["batch"] == 1
        send(connection, queue, EVIL.encode(), EVIL.encode(), subject=EVIL, group=EVIL, **{EVIL: EVIL})
        receiver = connection.receiver(queue, credit=2)
        (delivery, held) = receiver.receive(2, timeout_s=10)
        receiver.reject([delivery], f"reason {EVIL}")
        page.until(lambda: queue in page.names())
        page.open("queues/" + page.js("encodeURIComponent(arguments[0])", queue))
        page.shows(f"leased {EVIL}", "main")  # a group that the lease holds
        page.open("queues/" + page.js("encodeURIComponent(arguments[0])", dead))
        page.shows(dead, "h1")
        page.shows(EVIL, ".messages table")
        page.click("Show", ".messages")
        page.shows(EVIL, ".messages pre")
        page.shows(f"reason {EVIL}", ".messages")
        page.type(".messages input", EVIL)
        page.click("Find", ".messages")
        page.until(lambda: page.text(".messages [role=alert]").strip())
        client.call("exchange.declare", exchange=EVIL, type="topic")
        client.call("exchange.bind", exchange=EVIL, queue=queue, key=EVIL)
        for view, shown in (
            ("exchanges", EVIL),
            ("connections", EVIL),
            ("leases", chosen),
            ("storage", "Journal"),
            ("users", "root"),
            ("queues/" + page.js("encodeURIComponent(arguments[0])", f"no {EVIL}"), f"no {EVIL}"),
        ):
            page.open(view)
            page.shows(shown, "main")
        page.click("Connections", "nav")
        page.until(lambda: page.count("main td button"))
        page.js("document.querySelector('main td button').click()")
        assert page.js("window.pwned") is None
        assert page.count("img[src=x], main img, main script, main iframe") == 0
        receiver.accept([held])
    client.call("lease.release", lease=EVIL, how="settle")  # other tests also read leases
    client.call("lease.delete", lease=EVIL)


def test_the_page_needs_nothing_from_elsewhere_and_has_no_code_in_its_html(page: Page) -> None:
    page.ready()
    hosts = page.js("[...new Set(performance.getEntriesByType('resource').map((each) => new URL(each.name).origin))]")
    assert hosts == [page.url]
    assert page.js("[...document.scripts].every((each) => each.src && !each.textContent.trim())")


# --- the list


def test_queues_are_sorted_and_filtered(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, *(f"sort {letter}" for letter in "abc"))
    for queue, count in (("sort a", 3), ("sort b", 11), ("sort c", 7)):
        send(amqp, queue, *[b"x"] * count)
    page.ready()
    page.type("main input[type=search]", "SORT")
    page.until(lambda: page.names() == ["sort b", "sort c", "sort a"])  # none needs attention more than another
    page.click("Queue", "table.queues th")
    page.until(lambda: page.names() == ["sort a", "sort b", "sort c"])
    page.click("Ready", "table.queues th")
    page.until(lambda: page.names() == ["sort b", "sort c", "sort a"])
    assert page.js("document.querySelector('th[aria-sort]').innerText.trim()") == "Ready"
    page.click("Ready", "table.queues th")
    page.until(lambda: page.names() == ["sort a", "sort c", "sort b"])
    page.until(lambda: page.row("sort b")["Ready"] == "11")
    page.type("main input[type=search]", "nothing has this")
    page.shows("No queue name contains this text", "main")


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with 1,000 queues, and an alarm: its disk is to keep more free than it has."""
    with Broker(tmp_path_factory.mktemp("crowd") / "data", fsync="never", free_space_mark_bytes=1 << 60) as running:
        with Client(running.url) as client:
            for number in range(1000):
                client.call("queue.declare", queue=f"tenant-{number:04d}")
        yield running


def test_a_thousand_queues_have_their_first_numbers_within_a_second(chromium: Browser, crowd: Broker) -> None:
    """From the address to the numbers, in an empty browser; the best of three, since others run on this machine."""
    page = Page(chromium, crowd.http_url)
    took = []
    for _ in range(3):
        page.open("queues")
        script = """
            const done = arguments[0];
            const ready = () => document.querySelector("table.queues[data-ready]");
            const look = () => ready() ? done(performance.now()) : requestAnimationFrame(look);
            look();
        """
        took.append(chromium.run_async(script))
    assert min(took) < FIRST_NUMBERS_MS, took
    assert page.count("table.queues tbody tr:not(.spacer)") < 60  # the visible rows alone
    assert page.names()[0] == "tenant-0000"
    page.js("window.scrollTo(0, document.documentElement.scrollHeight)")
    page.until(lambda: page.names()[-1] == "tenant-0999")
    assert page.count("table.queues tbody tr:not(.spacer)") < 60
    page.type("main input[type=search]", "tenant-0512")
    page.until(lambda: page.names() == ["tenant-0512"])
    assert page.problems() == []


def test_the_first_screen_shows_queues(chromium: Browser, crowd: Broker) -> None:
    """Below an alarm. On a laptop twenty, on a phone ten."""
    page = Page(chromium, crowd.http_url)
    whole = "[...document.querySelectorAll('td.name')].filter((td) => td.getBoundingClientRect().bottom <= innerHeight).length"
    for width, height, least in ((1440, 900, 20), (390, 844, 10)):
        page.size(width, height)
        page.open("queues")
        page.ready()
        page.shows("disk-full", "#alarms")
        assert page.js(whole) >= least, (width, height)
    page.size(1280, 860)


def test_alarms_stand_above_every_view(chromium: Browser, crowd: Broker) -> None:
    page = Page(chromium, crowd.http_url)
    for view in ("queues", "storage"):
        page.open(view)
        page.shows("disk-full", "#alarms")
        page.shows("new messages are refused", "#alarms")
        page.until(lambda: re.search(r"for \d+ s", page.text("#alarms")), "since when")
    page.open("queues")
    page.click("disk-full", "#alarms")
    page.shows("Broker and disk", "main")  # an alarm leads to its object
    assert page.problems() == []


# --- actions


def test_dead_letters_are_shown_by_reason_and_redriven_one_and_all(page: Page, client: Client, amqp: Connection) -> None:
    dead = dead_letters(client, amqp, "bills", 5)
    page.open(f"queues/{dead}")
    page.shows("Its consumer rejected it", "main")
    page.click("Show", ".messages")
    page.shows("x-opt-death-reason", ".messages")
    page.click("Redrive this message…", ".messages")
    page.shows("Redrive message 0 of bills.dead?", "dialog")
    page.click("Redrive", "dialog")
    page.shows("1 message redriven", "#notes")
    assert client.call("queue.stat", queue=dead)["available"] == 4
    page.click("Redrive these 4…", ".messages")  # the shown matches of the selector
    page.shows("Redrive 4 messages of bills.dead?", "dialog")
    page.click("Cancel", "dialog")
    page.click("Redrive…", "main .buttons")
    page.shows("There are 4 dead letters here", "dialog")
    page.type("dialog input", "3")
    page.click("Redrive them", "dialog")
    page.shows("3 messages redriven", "#notes")
    stat = client.call("queue.stat", queue="bills")
    assert stat["available"] + stat["acquired"] == 4


def test_a_purge_says_how_many_and_does_that(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "old news")
    send(amqp, "old news", *[b"x"] * 1234)
    page.open("queues/old%20news")
    page.click("Purge…", "main")
    page.shows("This ends 1,234 messages", "dialog")
    page.click("Cancel", "dialog")
    page.until(lambda: page.count("dialog") == 0)
    assert client.call("queue.stat", queue="old news")["available"] == 1234
    page.click("Purge…", "main")
    page.click("Purge 1,234 messages", "dialog")
    page.shows("1,234 messages of old news purged", "#notes")
    assert client.call("queue.stat", queue="old news")["available"] == 0


def test_a_queue_is_paused_altered_and_its_messages_looked_at(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "works")
    send(amqp, "works", b'{"n": 1}', region="eu")
    send(amqp, "works", b"\xff\xfe", region="us")
    page.open("queues/works")
    page.click("Pause", "main")
    page.shows("paused", "main .badge.warn")
    assert client.call("queue.stat", queue="works")["paused"]
    page.click("Resume", "main")
    page.click("Pause", "main .buttons")
    page.click("Resume", "main .buttons")
    page.click("Alter…", "main")
    page.type("dialog [aria-label=maxAttempts]", "7")
    page.shows("This concerns 2 messages", "dialog")
    page.click("Alter 1 option", "dialog")
    page.shows("maxAttempts of works altered", "#notes")
    assert client.call("queue.stat", queue="works")["options"]["maxAttempts"] == 7
    page.type(".messages input", "region = 'us'")
    page.click("Find", ".messages")
    page.lacks('{"n": 1}', ".messages")
    page.shows(base64.b64encode(b"\xff\xfe").decode(), ".messages code")
    page.type('.messages [aria-label^="Arrived until"]', "-1h")
    page.click("Find", ".messages")
    page.shows("No message matches.", ".messages")
    page.type('.messages [aria-label^="Arrived until"]', "now")
    page.type('.messages [aria-label^="Arrived since"]', "yesterday Europe/Zurich")
    page.click("Find", ".messages")
    page.shows(base64.b64encode(b"\xff\xfe").decode(), ".messages code")
    page.shows("Arrived (UTC)", ".messages th.time")
    page.type('.messages [aria-label^="Arrived since"]', "tomorrow")
    page.click("Find", ".messages")
    page.shows("since: 'tomorrow' is not a time; it must be a time such as -2h", ".messages [role=alert]")
    page.type(".messages input", "region = ")
    page.click("Find", ".messages")
    page.until(lambda: page.text(".messages [role=alert]").strip(), "why the selector is wrong")


def test_a_connection_is_shown_and_closed(page: Page, client: Client, broker: Broker) -> None:
    declare(client, "deliveries", groups="held")
    with connect(broker.amqp_url, "root", PASSWORD) as connection:
        send(connection, "deliveries", b"x", b"y", group="of blue ones")
        receiver = connection.receiver("deliveries", credit=2)
        assert len(receiver.receive(2, timeout_s=10)) == 2
        (row,) = [entry for entry in client.call("connection.list")["connections"] if entry["protocol"] == "amqp"]
        page.open("queues/deliveries")
        page.shows("of blue ones", "main")
        page.open(f"connections/{row['id']}")
        page.shows("deliveries", "main tr.detail")
        page.type("main input[type=search]", row["peer"])
        page.until(lambda: page.count("main tbody tr:not(.detail)") >= 1)
        page.click("Close…", "main")
        page.shows("2 messages that it holds return", "dialog")
        page.type("dialog input", "maintenance")
        page.click("Close it", "dialog")
        page.shows("is closed", "#notes")
        page.until(lambda: client.call("queue.stat", queue="deliveries")["available"] == 2)


def test_a_lease_is_released_either_way(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "trips")
    for how, label in (("return", "2 messages returned"), ("settle", "2 messages settled")):
        send(amqp, "trips", b"x", b"y")
        client.call("lease.advance", queue="trips", lease=f"etl-{how}", run="r", epoch=None, finished=0, fresh=True, messages=2)
        page.open("leases")
        page.click("Release…", "main")
        page.shows("If it has, they are processed twice", "dialog")
        page.shows("If it has not, they are lost", "dialog")
        page.js("document.querySelector(`dialog input[value=${arguments[0]}]`).click()", how)
        page.click("Release 2 messages", "dialog")
        page.shows(label, "#notes")
    assert client.call("queue.stat", queue="trips")["available"] == 2
    page.open("queues/trips")
    page.shows("etl-settle", "main")


def test_of_many_groups_that_a_lease_holds_five_are_named(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "grouped", groups="held")
    for number in range(7):
        send(amqp, "grouped", b"x", group=f"of {number}")
    client.call("lease.advance", queue="grouped", lease="grouping", run="r", epoch=None, finished=0, fresh=True)
    page.open("queues/grouped")
    page.shows("of 0, of 1, of 2, of 3, of 4 and 2 more", "main")


def test_an_error_of_the_broker_stays_in_the_dialog(page: Page, client: Client) -> None:
    declare(client, "gone")
    page.open("queues/gone")
    page.click("Purge…", "main")
    page.shows("This ends 0 messages", "dialog")
    client.call("queue.delete", queue="gone")
    page.click("Purge 0 messages", "dialog")
    page.shows("gone", "dialog [role=alert]")
    page.browser.press(ESCAPE)
    page.until(lambda: page.count("dialog") == 0)


# --- keyboard, screens, hours


def test_everything_is_reached_by_keyboard(page: Page, client: Client) -> None:
    declare(client, *(f"keys {letter}" for letter in "abc"))
    page.ready()
    page.browser.press("/")
    page.browser.press(*"keys")
    page.until(lambda: page.names() == ["keys a", "keys b", "keys c"])
    page.js("document.querySelector('td.name a').focus()")
    page.browser.press(DOWN, DOWN, UP)
    assert page.js("document.activeElement.textContent") == "keys b"
    page.browser.press(ENTER)
    page.until(lambda: page.text("h1") == "keys b")
    page.js("document.activeElement.blur()")
    page.browser.press(ESCAPE)
    page.ready()
    views = ("exchanges", "connections", "leases", "storage", "users", "trace", "audit")
    for key, view in (*enumerate(views, 2), (1, "queues")):
        page.browser.press(str(key))
        page.until(lambda view=view: page.js("location.hash") == f"#/{view}")
    page.browser.press("?")
    page.shows("these keys", "dialog")
    page.browser.press(ESCAPE)
    page.until(lambda: page.count("dialog") == 0)
    unnamed = """[...document.querySelectorAll("button, a, input, select")].filter((each) =>
        !(each.innerText?.trim() || each.getAttribute("aria-label") || each.title || each.closest("label"))).length"""
    assert page.js(unnamed) == 0  # each has a name for screen readers


def contrast(page: Page, token: str, on: str) -> float:
    """Contrast of two colours, as WCAG reckons it."""

    def luminance(name: str) -> float:
        page.js("document.body.style.outlineColor = `var(${arguments[0]})`", name)  # of an outline that is not drawn
        parts = [int(part) / 255 for part in re.findall(r"\d+", page.js("getComputedStyle(document.body).outlineColor"))]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])

    high, low = sorted((luminance(token), luminance(on)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_light_and_dark_follow_the_system_until_one_is_chosen_and_can_be_read(page: Page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    seen = {}
    for scheme in ("light", "dark"):
        page.browser.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.ready()
        seen[scheme] = page.js(background)
        for token in ("--text", "--muted", "--accent", "--good", "--warn", "--bad"):
            assert contrast(page, token, "--surface") >= 4.5, (scheme, token)
        assert contrast(page, "--on-accent", "--accent") >= 4.5
    assert seen["light"] != seen["dark"]
    page.browser.click(page.js("document.querySelector('button[aria-label=\"Light or dark\"]')"))
    assert page.js(background) == seen["light"]
    page.open("queues")
    page.ready()
    assert page.js(background) == seen["light"]  # it is remembered
    page.js("localStorage.clear()")
    page.browser.cdp("Emulation.setEmulatedMedia", features=[])


def test_a_phone_shows_every_view_without_scrolling_sideways(page: Page, client: Client, amqp: Connection) -> None:
    declare(client, "a-queue-with-a-rather-long-name.that.has.no.break")
    send(amqp, "a-queue-with-a-rather-long-name.that.has.no.break", b"x" * 500)
    page.size(390, 844)
    views = (
        "exchanges",
        "connections",
        "leases",
        "storage",
        "users",
        "trace/id%3Dnone",
        "audit",
        "queues/a-queue-with-a-rather-long-name.that.has.no.break",
    )
    for view in ("queues", *views):
        page.open(view)
        page.until(lambda: page.count("main table, main .empty") > 0, view)
        wide = """[...document.querySelectorAll("body, body *")].filter((each) => !each.closest(".scroll, nav, svg, .skip, pre")
            && each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.outerHTML.slice(0, 90))"""
        assert page.js(wide) == [], view
    page.open("queues")
    page.ready()
    assert {"Queue", "Ready", "In", "Out"} <= set(page.text("table.queues th").split("\n"))
    assert page.js("document.querySelector('td.name').getBoundingClientRect().width") > 100
    page.size(1280, 860)


def test_an_hour_of_polling_leaks_nothing(page: Page) -> None:
    """A clock a thousand times as fast: the views poll as often as in an hour, and heap, nodes and listeners do not grow."""
    hurried = """
        const slow = window.setTimeout.bind(window), ask = window.fetch.bind(window);

        window.setTimeout = (call, ms, ...rest) => slow(call, ms / 1000, ...rest);
        window.fetched = 0;
        window.fetch = (...given) => (window.fetched++, ask(...given));
    """
    added = page.browser.cdp("Page.addScriptToEvaluateOnNewDocument", source=hurried)["identifier"]
    try:
        page.open("queues")
        page.ready()
        views = ("queues", "exchanges", "connections", "queues/orders", "leases", "storage")

        def polled(times: int) -> None:
            for view in views:
                before = page.js("window.fetched")
                page.js("(location.hash = `#/${arguments[0]}`, window.fetched)", view)
                page.until(lambda before=before: page.js("window.fetched") >= before + times, view)

        def held() -> tuple[float, int, int]:
            page.js("(location.hash = '#/queues')")
            page.ready()
            page.browser.cdp("HeapProfiler.collectGarbage")
            metrics = {metric["name"]: metric["value"] for metric in page.browser.cdp("Performance.getMetrics")["metrics"]}
            return metrics["JSHeapUsedSize"] / 1e6, int(metrics["Nodes"]), int(metrics["JSEventListeners"])

        page.browser.cdp("Performance.enable")
        polled(20)
        heap, nodes, listeners = held()
        polled(360)  # 1,800 requests: a view's every 2 seconds
        after = held()
        assert after[0] < heap + 1.0, (heap, after)  # MB
        assert after[1] < nodes * 1.2 + 200, (nodes, after)
        assert after[2] < listeners * 1.2 + 50, (listeners, after)
    finally:
        page.browser.cdp("Page.removeScriptToEvaluateOnNewDocument", identifier=added)


def test_the_files_have_no_html_of_strings_and_no_foreign_address(repository: Path) -> None:
    """The scripts contain no way to execute texts as code, so a change needs no review for it."""
    folder = repository / "broker_core" / "http_plane" / "page"
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|https?://(?!www\.w3\.org/)"
    )
    matches = {path.name: forbidden.findall(path.read_text()) for path in folder.iterdir()}
    assert {name: bad for name, bad in matches.items() if bad} == {}
    assert sum(name.endswith(".js") for name in matches) >= 10
