"""Several brokers at once: `penstock --url a,b queue list` adds up, and `status` shows one after another."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from ..client.flight import Client
from . import calls, login
from .main import UsageError


@contextmanager
def brokers(given: argparse.Namespace) -> Iterator[list[Client]]:
    """Connect to each broker of `--url`. Raises UsageError for a url that cannot be, or one broker under two names."""
    urls = [url.strip() for url in given.url.split(",")]
    for url in urls:
        calls.check_url(url)
    with ExitStack() as stack:
        credentials = login.credentials(given)
        clients = [stack.enter_context(Client(url, credentials)) for url in urls]
        if len(clients) > 1:
            _check(clients)
        yield clients


def _check(clients: list[Client]) -> None:
    names: dict[str, str] = {}
    for client in clients:
        broker = client.call("hello")["broker"]
        if broker in names:
            raise UsageError(f"--url names one broker twice: {names[broker]} and {client.url} are both broker {broker}")
        names[broker] = client.url


def added(lists: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Add up the queues of the same name; `brokers` says where they are, `lists` is by url.

    Numbers are added; of other values those that differ are told one after another.
    """
    found: dict[str, dict[str, Any]] = {}
    for url, queues in lists.items():
        for queue in queues:
            row = found.setdefault(queue["queue"], {"brokers": []})
            row["brokers"].append(url)
            for name, value in queue.items():
                row[name] = _both(row[name], value) if name in row else value
    return [found[name] for name in sorted(found)]


def _both(one: Any, other: Any) -> Any:
    if isinstance(one, bool) or isinstance(other, bool):
        return bool(one or other)
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return one + other
    if one == other or other is None or one is None:
        return one if one is not None else other
    return f"{one}, {other}" if isinstance(one, str) and isinstance(other, str) and other not in one.split(", ") else one
