"""The progress of a running query as lines of text."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 0.25  # between two checks of a query


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def fail(text: str) -> int:
    print(f"error: {text}", file=sys.stderr, flush=True)
    return 1


def in_seconds(messages: int, seconds: float) -> str:
    return f"{messages:,} messages in {seconds:.1f} s ({messages / max(seconds, 0.001):,.0f}/s)"


def follow(query: StreamingQuery, report: Callable[[str], None] = say) -> int:
    """Report batches until the query ends; return the number of messages. Raises the query's error."""
    total = 0
    for progress in _batches(query):
        rows = progress["numInputRows"]
        total += rows
        if rows:
            seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
            report(f"batch {progress['batchId']}: {in_seconds(rows, seconds)}, {total:,} so far")
    query.awaitTermination()
    return total


def _batches(query: StreamingQuery) -> Iterator[dict[str, Any]]:
    """Yield each progress once. Spark keeps the last hundred, and repeats the last batch while it is idle."""
    seen: set[str] = set()
    while True:
        active = query.isActive  # read first, so that the last progress is not missed
        before, seen = seen, set()
        for entry in query.recentProgress:
            progress = json.loads(entry.json)
            if progress["timestamp"] not in before and progress["timestamp"] not in seen:
                yield progress
            seen.add(progress["timestamp"])
        if not active:
            return
        time.sleep(LOOK_S)
