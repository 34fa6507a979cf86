"""How long a reader that finds nothing takes to say so. Timings are compared with one another, in one run."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql.streaming.datasource import ReadMaxRows

from connector.stream import StreamReader

INITIAL = {"v": 1, "batch": 0}
LIMIT = ReadMaxRows(2**63 - 1)


def idle_seconds(reader: StreamReader, limit: Any = LIMIT) -> float:
    """The shortest of five empty triggers."""
    reader.latestOffset(INITIAL, limit)  # connects
    return min(_seconds(reader, limit) for _ in range(5))


def _seconds(reader: StreamReader, limit: Any) -> float:
    begin = time.perf_counter()
    reader.latestOffset(INITIAL, limit)
    return time.perf_counter() - begin
