"""The page in a real browser, seen through the screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .. import waiting
from .webdriver import Browser, WebDriverError

PASSWORD = "secret"
PATIENCE_S = 15.0
#: Allowed lines of the browser's log: it logs an expected refusal as a failed load.
EXPECTED = ("status of 401", "status of 403", "status of 404", "status of 400", "status of 409")


class Page:
    """The page in a browser. `url`: of the broker's HTTP plane."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.browser, self.url = browser, url
        self.size(1280, 860)
        browser.get(f"{url}/page/icon.svg")  # of the origin, and nothing runs there
        browser.delete_cookies()
        browser.log()

    def log_in(self, user: str) -> None:
        """Log in without the form, and open the page."""
        self.browser.get(f"{self.url}/api/v1/openapi.json")
        login = """
            const [user, password, done] = arguments;
            localStorage.clear();
            fetch("/api/v1/session", {method: "POST", headers: {"content-type": "application/json"},
                body: JSON.stringify({user, password})}).then((answer) => done(answer.status));
        """
        assert self.browser.run_async(login, user, PASSWORD) == 200
        self.open("queues")

    def open(self, view: str) -> None:
        self.browser.get("about:blank")
        self.browser.get(f"{self.url}/#/{view}")

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.browser.cdp("Emulation.setDeviceMetricsOverride", **metrics)

    def leave(self) -> None:
        self.browser.get("about:blank")

    def js(self, script: str, *arguments: Any) -> Any:
        return self.browser.run(f"return ({script})", *arguments)

    def until(self, condition: Callable[[], Any], description: str = "the page shows it") -> Any:
        """Wait for something true."""
        return waiting.until(condition, lambda: f"{description}; on the page: {self.text()}", limit_s=PATIENCE_S)

    def text(self, selector: str = "body") -> str:
        return str(self.js("[...document.querySelectorAll(arguments[0])].map((each) => each.innerText).join('\\n')", selector))

    def shows(self, text: str, selector: str = "body") -> None:
        self.until(lambda: text in self.text(selector), f"{text!r} in {selector}")

    def lacks(self, text: str, selector: str = "body") -> None:
        self.until(lambda: text not in self.text(selector), f"no {text!r} in {selector}")

    def count(self, selector: str) -> int:
        return int(self.js("document.querySelectorAll(arguments[0]).length", selector))

    def click(self, label: str, selector: str = "button, a") -> None:
        """Click the element with this text, like a mouse, below the selector."""
        find = """(() => {
            const of = (root) => [...root.querySelectorAll("button, a, summary")];
            const all = [...document.querySelectorAll(arguments[1])];

            return all.flatMap((each) => [each, ...of(each)]).find((each) => each.innerText?.trim() === arguments[0]
                && each.matches("button, a") && each.checkVisibility());
        })()"""

        def clicked() -> bool:
            element = self.js(find, label, selector)
            try:
                if element:
                    self.js("arguments[0].scrollIntoView({block: 'center'})", element)  # not under the bar
                    self.browser.click(element)
            except WebDriverError as error:
                if "stale" not in str(error):  # redrawn meanwhile
                    raise
                return False
            return bool(element)

        self.until(clicked, f"something to click: {label!r} in {selector}")

    def type(self, selector: str, text: str) -> None:
        self.browser.write(self.until(lambda: self.js("document.querySelector(arguments[0])", selector), selector), text)

    def names(self) -> list[str]:
        """Queues in the list, as far as they are drawn, from the top."""
        return list(self.js("[...document.querySelectorAll('table.queues td.name a')].map((each) => each.textContent)"))

    def ready(self) -> None:
        self.until(lambda: self.count("table.queues[data-ready]"), "the list of queues")

    def row(self, queue: str) -> dict[str, str]:
        """Numbers of a queue in the list, by heading."""
        find = """(() => {
            const cells = (row) => [...row.children].map((each) => each.innerText.trim());

            const row = [...document.querySelectorAll("table.queues tbody tr:not(.spacer)")]
                .find((each) => each.querySelector("a").textContent === arguments[0]);
            return [cells(document.querySelector("table.queues thead tr")), row ? cells(row) : null];
        })()"""
        headings, cells = self.js(find, queue)
        return dict(zip(headings, cells or [], strict=False))

    def call(self, action: str, fields: dict[str, Any]) -> int:
        """Ask the API from the page, with its session and its second secret: the status."""
        script = """
            const [action, fields, done] = arguments;

            fetch("/api/v1/session").then((answer) => answer.json()).then(({csrf}) => fetch(`/api/v1/${action}`, {method: "POST",
                headers: {"content-type": "application/json", "x-csrf-token": csrf}, body: fields}))
                .then((answer) => done(answer.status));
        """
        return int(self.browser.run_async(script, action, json.dumps(fields)))

    def problems(self) -> list[str]:
        """Errors in the browser's log: of scripts, and of the Content-Security-Policy."""
        entries = [entry["message"] for entry in self.browser.log() if entry["level"] in ("SEVERE", "WARNING")]
        return [entry for entry in entries if not any(expected in entry for expected in EXPECTED)]
