"""Rows about the page: the time until an operator sees numbers, and the longest pause while scrolling."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from harness import Bench, Line

from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

sys.path.append(str(Path(__file__).resolve().parents[1] / "page"))
from webdriver import Browser, chromium_paths

QUEUES = 5_000
SCROLL_S = 6.0  # from the top of the list to its end
FIRST_NUMBERS = """
    const done = arguments[0];
    const ready = () => document.querySelector("table.queues[data-ready]");
    const look = () => ready() ? done(performance.now()) : requestAnimationFrame(look);
    look();
"""
#: The longest time between two frames, in milliseconds.
LONGEST_PAUSE = """
    const [duration, done] = arguments;
    const height = document.documentElement.scrollHeight;
    let begin, before, longest = 0;
    const step = (now) => {
        begin ??= now;
        longest = Math.max(longest, now - (before ?? now));
        before = now;
        const part = (now - begin) / duration;
        window.scrollTo(0, part < 1 ? height * part : 0);
        part < 1 ? requestAnimationFrame(step) : done(longest);
    };
    requestAnimationFrame(step);
"""


def opened(bench: Bench) -> Iterator[Line]:
    """In headless Chromium, with an empty cache."""
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

            def longest_pause(_: int) -> float:
                return float(browser.run_async(LONGEST_PAUSE, SCROLL_S * 1000))

            first_numbers(0)
            (numbers,) = bench.pairs("s", first_numbers)
            longest_pause(0)
            (pauses,) = bench.pairs("ms", longest_pause)
        finally:
            browser.quit()
    yield Line("page", f"from the address to the first numbers, {QUEUES:,} queues", "", 1.0, None, False, "s", numbers)
    yield Line("page", f"longest pause while scrolling through {QUEUES:,} queues", "", 50.0, None, False, "ms", pauses)
