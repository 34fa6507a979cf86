"""The connection that the client commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from broker_core.cli.main import UsageError
from broker_core.client import Client

#: Seconds. A purge or delete of tens of millions of messages is one event, but its answer waits for the disk.
LONG_S = 600.0


@contextmanager
def broker(given: argparse.Namespace) -> Iterator[Client]:
    if not given.url.startswith(("grpc://", "grpc+tls://")):
        raise UsageError(f"--url cannot be {given.url!r}; it must be grpc://HOST:PORT or grpc+tls://HOST:PORT")
    with Client(given.url) as client:
        yield client
