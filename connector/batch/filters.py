"""Filters of a query as bounds of a batch read."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from ...broker_core.archive.read.bounds import Bounds
from ..options import OUTCOMES
from ..spark_versions import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TIMES = {"enqueuedTime": ("since", "until"), "settledTime": ("settled_since", "settled_until")}  # the ends are excluded


def narrowed(bounds: Bounds, filter_: Filter) -> Bounds:
    """A filter that bounds cannot express changes nothing."""
    column, value = ".".join(getattr(filter_, "attribute", ())), getattr(filter_, "value", None)
    if column == "sequenceNumber" and isinstance(value, int):
        return _between(bounds, "first", "last", filter_, value)
    if column in _TIMES and isinstance(value, datetime):
        # Naive times are in the session's zone, which is unknown here.
        if value.tzinfo is not None:
            return _between(bounds, *_TIMES[column], filter_, (value - _EPOCH) // timedelta(microseconds=1), excluded=1)
    elif column == "outcome" and isinstance(filter_, EqualTo) and value in OUTCOMES:
        return bounds._replace(outcome=bounds.outcome or value)
    return bounds


def _between(bounds: Bounds, lower: str, upper: str, filter_: Filter, value: int, excluded: int = 0) -> Bounds:
    fields: dict[str, Any] = bounds._asdict()
    if isinstance(filter_, (GreaterThan, GreaterThanOrEqual, EqualTo)):
        least = value + isinstance(filter_, GreaterThan)
        fields[lower] = least if fields[lower] is None else max(fields[lower], least)
    if isinstance(filter_, (LessThan, LessThanOrEqual, EqualTo)):
        most = value - isinstance(filter_, LessThan) + excluded
        fields[upper] = most if fields[upper] is None else min(fields[upper], most)
    return Bounds(**fields)
