"""A running query, told in lines with units."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

#: Seconds between two looks at a query.
LOOK_S = 0.25


def say(text: str) -> None:
    """Print a line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def fail(text: str) -> int:
    """Print an error on stderr; return exit code 1."""
    print(f"error: {text}", file=sys.stderr, flush=True)
    return 1


def in_seconds(messages: int, seconds: float) -> str:
    """Format a count, a duration and the rate of both."""
    return f"{messages:,} messages in {seconds:.1f} s ({messages / max(seconds, 0.001):,.0f}/s)"


def follow(query: StreamingQuery, tell: Callable[[str], None] = say) -> int:
    """Tell of every batch until the query ends; return the number of messages. Raises what ended the query."""
    total = 0
    for progress in _batches(query):
        rows = progress["numInputRows"]
        total += rows
        if rows:
            seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
            tell(f"batch {progress['batchId']}: {in_seconds(rows, seconds)}, {total:,} so far")
    # Raises the query's error. What it still had to tell came first.
    query.awaitTermination()
    return total


def _batches(query: StreamingQuery) -> Iterator[dict[str, Any]]:
    """Each progress of the query once. Spark keeps the last hundred, and repeats the last batch's number while it idles."""
    seen: set[str] = set()  # in the last look alone: a query may run for years
    while True:
        active = query.isActive  # before the look: what comes with the end is not missed
        before, seen = seen, set()
        for entry in query.recentProgress:
            progress = json.loads(entry.json) if hasattr(entry, "json") else dict(entry)
            if progress["timestamp"] not in before and progress["timestamp"] not in seen:
                yield progress
            seen.add(progress["timestamp"])
        if not active:
            return
        time.sleep(LOOK_S)
