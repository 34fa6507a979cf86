"""Common parts of `penstock send` and `penstock receive`."""

from __future__ import annotations

import argparse
import signal
import time
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ..client.amqp import Connection
from ..client.amqp import login as log_in
from ..client.credentials import Credentials
from . import calls, login
from .main import UsageError

#: Between two checks for a signal, and two updates of the bar.
TURN_S = 0.25
TIMEOUT_S = 60.0


def check_url(args: argparse.Namespace) -> None:
    if "," in args.url:
        raise UsageError("--url names several brokers: messages go to one or come from one, so name it")
    if not args.url.startswith(("amqp://", "amqps://")):
        raise UsageError(
            f"--url cannot be {args.url!r}; messages go over AMQP, so it must be amqp://HOST[:PORT] or amqps://HOST[:PORT]"
            " (every command takes such a $PENSTOCK_URL)"
        )
    calls.check_amqp(args.url)


def credentials_of(args: argparse.Namespace) -> Credentials:
    credentials = login.credentials(args)
    if credentials.certificates and not args.url.startswith("amqps://"):
        raise UsageError(f"certificates have no meaning for {args.url}: use amqps://, or leave them out")
    return credentials


def connection(args: argparse.Namespace) -> Connection:
    check_url(args)
    return log_in(args.url, credentials_of(args), timeout_s=TIMEOUT_S)


class Stop:
    """The first Ctrl-C or SIGTERM only sets `asked`, so that pending work is finished. The next one ends the process."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        self._before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self.__exit__()

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class Meter:
    """A bar on stderr, if that is a terminal. `total`: octets or messages."""

    def __init__(self, text: str, total: int | None, *, quiet: bool) -> None:
        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[messages]:,} messages, {task.fields[rate]:,.0f}/s"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)
        self._task = self._bar.add_task(text, total=total, messages=0, rate=0.0)
        self._started = time.monotonic()
        self._shown = 0.0

    def show(self, messages: int, done: int) -> None:
        """`done` has the unit of `total`."""
        now = time.monotonic()
        if now - self._shown >= TURN_S:
            self._shown = now
            rate = messages / max(now - self._started, 1e-9)
            self._bar.update(self._task, completed=done, messages=messages, rate=rate)

    def __enter__(self) -> Meter:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
