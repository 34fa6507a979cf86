"""Flight connections of commands, and common parts."""

from __future__ import annotations

import argparse
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from .. import errors
from ..client import timeouts
from ..client.amqp import address
from ..client.credentials import Credentials
from ..client.flight import Client, check
from . import login, show
from .main import UsageError

#: A purge of tens of millions of messages is one event, whose answer waits for the disk.
LONG_S = 600.0

_SCHEMES = ("amqp://", "amqps://", "grpc://", "grpc+tls://")


@contextmanager
def broker(args: argparse.Namespace) -> Iterator[Client]:
    if "," in args.url:
        raise UsageError(
            "--url names several brokers, which only `penstock queue list`, `queue stat`, `lease list`, `archive`, `trace`,"
            " `status` and `top` accept: name one here"
        )
    check_url(args.url)
    with client(args.url, login.credentials(args)) as opened:
        yield opened


def ask(args: argparse.Namespace, action: str, /, **fields: Any) -> dict[str, Any]:
    with broker(args) as opened:
        return opened.call(action, **fields)


def ask_long(args: argparse.Namespace, text: str, action: str, **fields: Any) -> dict[str, Any]:
    """Call a long action. A terminal shows the text and the seconds."""
    with broker(args) as opened, show.waiting(text, quiet=args.json):
        return opened.call(action, timeout_s=LONG_S, **fields)


def declare(args: argparse.Namespace, kind: str) -> int:
    """Declare a queue or an exchange."""
    options = pairs(args.option)
    answer = ask(args, f"{kind}.declare", **{kind: args.name}, type=args.type, options=options)
    result = "is declared" if answer["created"] else "exists already, with the same type and options"
    return show.answer(args, answer, f"{kind} {args.name} {result}")


def pairs(texts: Iterable[str], flag: str = "--option") -> dict[str, str]:
    """Parse NAME=VALUE pairs with unique names. Values stay texts: the broker parses numbers, and a queue may be called 7."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{flag} cannot be {text!r}; it must be NAME=VALUE")
        if name in values:
            raise UsageError(f"{flag} names {name!r} twice; give it once")
        values[name] = value
    return values


def client(url: str, credentials: Credentials) -> Client:
    try:
        check(url, credentials)
    except errors.InvalidRequest as error:
        raise UsageError(str(error)) from error
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the command reports failed handshakes
    return _Interruptible(url, credentials, program="command line")


class _Interruptible(Client):
    """Client whose calls end at Ctrl-C: another thread waits in gRPC, where Python handles no signals."""

    def call(self, action: str, /, *, timeout_s: float | None = None, **fields: Any) -> dict[str, Any]:
        steps = timeouts.Steps(self.url, threading.TIMEOUT_MAX)  # the call itself has a limit
        try:
            return steps.take(lambda: super(_Interruptible, self).call(action, timeout_s=timeout_s, **fields))
        finally:
            steps.close()


def check_url(url: str) -> None:
    if not url.startswith(_SCHEMES) or "@" in url:
        raise UsageError(
            "--url must be amqp://HOST[:PORT], amqps://HOST[:PORT], grpc://HOST:PORT or grpc+tls://HOST:PORT, without a user"
            " (see --user)"
        )
    if url.startswith("grpc"):
        if not _has_host_and_port(url):
            raise UsageError(f"--url cannot be {url!r}; it must be grpc://HOST:PORT or grpc+tls://HOST:PORT")
        return
    check_amqp(url)


def check_amqp(url: str) -> None:
    try:
        address.parse(url)
    except errors.InvalidRequest as error:
        raise UsageError(f"--url: {error}") from error


def _has_host_and_port(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname and parts.port) and url.endswith(f":{parts.port}") and not any(map(str.isspace, url))
    except ValueError:
        return False
