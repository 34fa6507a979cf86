"""A browser by W3C's WebDriver protocol, as far as these tests go: JSON over HTTP to chromedriver."""

from __future__ import annotations

import base64
import http.client
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the name that the protocol gives a reference
_STARTS = 20  # of the driver, until it has a port
_ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1280,860")


def chromium_paths() -> tuple[str, str] | None:
    """Return the paths of chromedriver and of Chromium; None where one is missing."""
    driver, browser = shutil.which("chromedriver"), shutil.which("chromium")
    return None if driver is None or browser is None else (driver, browser)


class WebDriverError(Exception):
    """Refusal of the driver, and why."""


def _started(driver: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start the driver, and return it with its port.

    The driver takes a free port of IPv6, and ends if another process has the port of the same number of IPv4.
    """
    output = b""
    for _ in range(_STARTS):
        process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        for line in process.stdout:
            output += line
            if match := re.search(rb"started successfully on port (\d+)", line):
                return process, int(match[1])
        process.wait()
        process.stdout.close()
    raise WebDriverError(f"{driver} did not listen in {_STARTS} starts; it printed:\n{output.decode(errors='replace')}")


class Browser:
    """One browser. `driver`, `chromium`: paths of the programs."""

    def __init__(self, driver: str, chromium: str) -> None:
        self._process, port = _started(driver)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        options = {"binary": chromium, "args": list(_ARGUMENTS)}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}, "timeouts": {"script": 60_000}}
        self._session = ""
        self._session = self._ask("POST", "/session", capabilities={"alwaysMatch": wanted})["sessionId"]

    def quit(self) -> None:
        """End the browser, and its driver."""
        try:
            self._ask("DELETE", "")
        finally:
            self._connection.close()
            self._process.terminate()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()

    def _ask(self, method: str, path: str, **body: Any) -> Any:
        where = f"/session/{self._session}{path}" if self._session else path
        self._connection.request(
            method, where, json.dumps(body) if method == "POST" else None, {"content-type": "application/json"}
        )
        value = json.loads(self._connection.getresponse().read())["value"]
        if isinstance(value, dict) and "error" in value:
            raise WebDriverError(f"{value['error']}: {value['message']}")
        return value

    def get(self, url: str) -> None:
        """Load a page, until its `load` event."""
        self._ask("POST", "/url", url=url)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run the body of a function."""
        return self._ask("POST", "/execute/sync", script=script, args=list(arguments))

    def run_async(self, script: str, *arguments: Any) -> Any:
        """Run the body of a function, whose last argument is called with its result."""
        return self._ask("POST", "/execute/async", script=script, args=list(arguments))

    def click(self, element: dict[str, str]) -> None:
        """Click an element that a script has returned, where it is."""
        self._ask("POST", f"/element/{element[_ELEMENT]}/click")

    def write(self, element: dict[str, str], text: str) -> None:
        """Empty a field, and type a text into it."""
        self._ask("POST", f"/element/{element[_ELEMENT]}/clear")
        self._ask("POST", f"/element/{element[_ELEMENT]}/value", text=text)

    def press(self, *keys: str) -> None:
        """Press keys, one after another, wherever the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def delete_cookies(self) -> None:
        """Delete the cookies of the page's origin."""
        self._ask("DELETE", "/cookie")

    def cdp(self, command: str, **parameters: Any) -> Any:
        """Ask Chromium itself: see the DevTools protocol."""
        return self._ask("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def log(self) -> list[dict[str, Any]]:
        """Return the lines of the browser's log since the last call."""
        return list(self._ask("POST", "/se/log", type="browser"))

    def picture(self, path: Path) -> None:
        """Write the screen to a PNG file."""
        path.write_bytes(base64.b64decode(self._ask("GET", "/screenshot")))
