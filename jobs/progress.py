"""The progress of a running query as lines of text."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

#: Seconds between two checks of a query.
LOOK_S = 0.25


def say(text: str) -> None:
    """Print a line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def fail(text: str) -> int:
    """Print an error on stderr, and return exit code 1."""
    print(f"error: {text}", file=sys.stderr, flush=True)
    return 1


def in_seconds(messages: int, seconds: float) -> str:
    """Format a count, a duration and the rate of both."""
    return f"{messages:,} messages in {seconds:.1f} s ({messages / max(seconds, 0.001):,.0f}/s)"


def follow(query: StreamingQuery, report: Callable[[str], None] = say) -> int:
    """Report every batch until the query ends, and return the number of messages. Raises the error of the query."""
    total = 0
    for progress in _batches(query):
        rows = progress["numInputRows"]
        total += rows
        if rows:
            seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
            report(f"batch {progress['batchId']}: {in_seconds(rows, seconds)}, {total:,} so far")
    # Raises the query's error after the report of its last batches.
    query.awaitTermination()
    return total


def _batches(query: StreamingQuery) -> Iterator[dict[str, Any]]:
    """Yield each progress of the query once. Spark keeps the last hundred, and repeats the last batch while it is idle."""
    seen: set[str] = set()  # of the last check only, because a query may run for years
    while True:
        active = query.isActive  # read first, so that the last progress is not missed
        before, seen = seen, set()
        for entry in query.recentProgress:
            progress = json.loads(entry.json) if hasattr(entry, "json") else dict(entry)
            if progress["timestamp"] not in before and progress["timestamp"] not in seen:
                yield progress
            seen.add(progress["timestamp"])
        if not active:
            return
        time.sleep(LOOK_S)
