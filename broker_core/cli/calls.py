"""The connection that the client commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from ..client.flight import Client
from . import login
from .main import UsageError

#: Seconds. A purge or delete of tens of millions of messages is one event, but its answer waits for the disk.
LONG_S = 600.0


_SCHEMES = ("amqp://", "amqps://", "grpc://", "grpc+tls://")


@contextmanager
def broker(given: argparse.Namespace) -> Iterator[Client]:
    """Connect to the broker of `--url`; close the connection afterwards. Raises UsageError for a url that cannot be."""
    if "," in given.url:
        raise UsageError(
            "--url names several brokers, which `penstock queue list`, `queue stat`, `lease list`, `archive`, `status` and `top`"
            " take: name one here"
        )
    check_url(given.url)
    with Client(given.url, login.credentials(given)) as client:
        yield client


def check_url(url: str) -> None:
    """Raise UsageError for a url that cannot be."""
    if not url.startswith(_SCHEMES) or "@" in url:
        raise UsageError(
            "--url must be amqp://HOST[:PORT], amqps://HOST[:PORT], grpc://HOST:PORT or grpc+tls://HOST:PORT, without a user"
            " (see --user)"
        )
