"""The row about the page: how long an operator looks at nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from harness import Bench, Line

from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.process import Broker

sys.path.append(str(Path(__file__).resolve().parents[1] / "page"))
from webdriver import Browser, chromium_paths

QUEUES = 1_000
FIRST_NUMBERS = """
    const done = arguments[0];
    const ready = () => document.querySelector("table.queues[data-ready]");
    const look = () => ready() ? done(performance.now()) : requestAnimationFrame(look);
    look();
"""


def opened(bench: Bench) -> Iterator[Line]:
    """From the address to the numbers of the first queues, in headless Chromium with an empty cache."""
    programs = chromium_paths()
    if programs is None:
        bench.say("page: Debian's chromium and chromium-driver are not installed")
        return
    with Broker(bench.folder(), fsync="never") as broker:
        with Client(broker.url) as client:
            for number in range(QUEUES):
                client.call("queue.declare", queue=f"queue {number}")
        browser = Browser(*programs)
        try:

            def first_numbers(_: int) -> float:
                browser.get("about:blank")
                browser.cdp("Network.clearBrowserCache")
                browser.get(broker.http_url)
                return float(browser.run_async(FIRST_NUMBERS)) / 1000

            first_numbers(0)
            (figures,) = bench.pairs("s", first_numbers)
        finally:
            browser.quit()
    yield Line("page", f"from the address to the first numbers, {QUEUES:,} queues", "", 1.0, None, False, "s", figures)
