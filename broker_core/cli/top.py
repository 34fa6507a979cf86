"""`penstock top`"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..client.flight import Client
from . import broker_totals, show

_COLUMNS = {
    **show.columns("queue", "available", "acquired", "delayed"),
    "in": "in/s",
    "settled": "settled/s",
    "deadLettered": "dead/s",
    **show.columns("consumers", "bytes"),
}
_ROWS = 20  # without a terminal
_TOP_LEFT, _CLEAR_BELOW = "\x1b[H\x1b[2J", "\x1b[J"


def run(args: argparse.Namespace) -> int:
    with broker_totals.brokers(args) as brokers:
        before, at = _queues(brokers), time.monotonic()
        shown = 0
        with suppress(KeyboardInterrupt):
            while args.count is None or shown < args.count:
                time.sleep(args.interval)
                after, now = _queues(brokers), time.monotonic()
                rows = [_row(before.get(name, queue), queue, now - at) for name, queue in after.items()]
                _show(args, sorted(rows, key=lambda row: (row["in"] + row["settled"], row["available"]), reverse=True))
                before, at, shown = after, now, shown + 1
    return 0


def _queues(brokers: list[Client]) -> dict[str, dict[str, Any]]:
    return {queue["queue"]: queue for queue in broker_totals.queues(brokers)}


def _row(before: Mapping[str, Any], after: Mapping[str, Any], passed_s: float) -> dict[str, Any]:
    def rate(name: str) -> float:
        return float(max(0, after[name] - before[name])) / passed_s

    return {**after, "in": rate("enqueued"), "settled": rate("archived"), "deadLettered": rate("deadLettered")}


def _show(args: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if args.json:
        show.print_json([{name: row[name] for name in _COLUMNS} for row in rows])
    else:
        terminal = sys.stdout.isatty()
        room = shutil.get_terminal_size().lines - 4 if terminal else _ROWS  # heading, remarks and cursor
        print(_TOP_LEFT if terminal else "", end="")
        show.print_table(rows[: max(1, room)], _COLUMNS, empty="no queues yet")
        if len(rows) > room:
            print(f"… and {len(rows) - room:,} more")
        print(_CLEAR_BELOW if terminal else "", flush=True)
