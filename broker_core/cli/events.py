"""`penstock events` browses the queue `$events`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from ..client.flight import Client
from ..engine.model.names import EVENTS
from ..errors import QueueNotFound
from . import calls, show
from .main import Failed

POLL_S = 1.0
_STATES = ["available", "acquired"]


def run(args: argparse.Namespace) -> int:
    with calls.broker(args) as broker:
        try:
            first = broker.call("queue.stat", queue=EVENTS)["nextSequence"] - args.count
            first = _print_from(args, broker, max(0, first))
            while args.follow:
                time.sleep(POLL_S)
                first = _print_from(args, broker, first)
        except QueueNotFound:
            raise Failed(
                f"this broker writes no event messages: `penstock queue declare '{EVENTS}' --option maxMessages=10000 "
                "--option overflow=ring --option archive=false` turns them on"
            ) from None
    return 0


def _print_from(args: argparse.Namespace, broker: Client, first: int) -> int:
    """Return the sequence number after the last event."""
    for batch in broker.get(op="browse", queue=EVENTS, columns=["sequenceNumber", "body"], states=_STATES, first=first):
        for row in batch.to_pylist():
            first = row["sequenceNumber"] + 1
            _print(args, row["body"])
    sys.stdout.flush()
    return first


def _print(args: argparse.Namespace, body: bytes) -> None:
    try:
        event: dict[str, Any] = json.loads(body)
        line = " ".join(str(event[name]) for name in ("time", "event", "queue", "text") if event.get(name) is not None)
    except (ValueError, KeyError, TypeError, AttributeError):  # a message of another sender
        event, line = {"body": body}, show.preview(body) or ""
    if args.json:
        show.print_json(event)
    else:
        print(show.printable(line))
