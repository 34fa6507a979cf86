"""`penstock audit`"""

from __future__ import annotations

import argparse
import json
from typing import Any

from . import calls, show

_LIST = show.columns("time", "user", "door", "action", "object", "count", "outcome", "error", "peer", "details")


def run(args: argparse.Namespace) -> int:
    wanted = {"queue": args.queue, "user": args.by, "action": args.action, "outcome": args.outcome}
    wanted |= {"since": args.since, "until": args.until, "count": args.count}
    entries = calls.ask(args, "audit.list", **wanted)["entries"]
    return show.listed(args, entries, _LIST, empty="no such entries", rows=[_row(entry) for entry in reversed(entries)])


def _row(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a table: the newest entry is the last one, next to the prompt."""
    details = ", ".join(f"{name} {json.dumps(value)}" for name, value in entry["details"].items())
    return {**entry, "details": details}
