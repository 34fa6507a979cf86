"""`penstock audit`"""

from __future__ import annotations

import argparse
import json
from typing import Any

from . import calls, show

# A narrow terminal omits the last ones.
_LIST = {"time": "time (UTC)", **show.columns("user", "action", "object", "outcome", "error", "count", "door", "peer", "details")}


def run(args: argparse.Namespace) -> int:
    wanted = {"queue": args.queue, "user": args.by, "action": args.action, "outcome": args.outcome}
    wanted |= {"since": args.since, "until": args.until, "count": args.count}
    entries = calls.ask(args, "audit.list", **wanted)["entries"]
    return show.listed(args, entries, _LIST, empty="no such entries", rows=[_row(entry) for entry in reversed(entries)])


def _row(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a row. The newest entry is the last row, next to the prompt."""
    details = ", ".join(f"{name} {json.dumps(value)}" for name, value in entry["details"].items())
    return {**entry, "time": entry["time"].replace("T", " ")[:19], "details": details}
