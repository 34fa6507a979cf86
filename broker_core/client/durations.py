"""Times in a program's calls: seconds as a number, or a `timedelta`."""

from __future__ import annotations

from datetime import timedelta

from ..errors import InvalidRequest
from ..quantities import MAX_MILLISECONDS

Duration = float | timedelta


def seconds(name: str, duration: Duration) -> float:
    """Raises InvalidRequest for a value of another type."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, (int, float)):
        return duration
    raise InvalidRequest(f"{name} is seconds as a number, or a timedelta, not {duration!r:.80}")


def milliseconds(name: str, duration: Duration, end: int = MAX_MILLISECONDS) -> int:
    """Return whole milliseconds below `end`. Raises InvalidRequest."""
    value = seconds(name, duration)
    if not 0 <= value < end / 1000:
        raise InvalidRequest(f"{name} is seconds from 0 to {(end - 1) // 1000:,}, not {value}")
    return round(value * 1000)
