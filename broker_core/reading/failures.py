"""Failed deliveries as the column `failures` shows them: a JSON list for each message, the earliest delivery first.

Each has the `time` and the `cause`, and if they are known the `holder` and the `error`. A redrive in the same queue has the cause
`redriven` and its user as the holder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import Any

import numpy as np

from ..engine.columns.failures import REDRIVEN, FailedDelivery
from ..engine.columns.states import Cause
from .slices import BlockSlice

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def failures_of(block_slice: BlockSlice, indexes: slice) -> Iterator[tuple[int, str]]:
    """Yield the texts of the rows at `indexes` that have failed, by their index in `indexes`."""
    failed = block_slice.failures
    if failed is None:
        return

    @cache  # messages of a batch fail together
    def text(*deliveries: tuple[int, ...]) -> str:
        described = [_described(FailedDelivery(*values), block_slice, failed.errors) for values in deliveries]
        return json.dumps(described, ensure_ascii=False)

    start, stop = np.searchsorted(failed.indexes, (indexes.start, indexes.stop)).tolist()
    rows = [list(zip(*(column[start:stop].tolist() for column in columns), strict=True)) for columns in failed.deliveries]
    places = (failed.indexes[start:stop] - indexes.start).tolist()
    for place, *deliveries in zip(places, *reversed(rows), strict=True):
        yield place, text(*(values for values in deliveries if values[0]))


def _described(delivery: FailedDelivery, block_slice: BlockSlice, errors: Sequence[str]) -> dict[str, Any]:
    moment = _EPOCH + timedelta(microseconds=(delivery.time - 1) * 1000 + block_slice.begun)
    cause = "redriven" if delivery.cause == REDRIVEN else Cause(delivery.cause - 1).name.lower().replace("_", " ")
    described = {"time": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"), "cause": cause}
    if delivery.taker:
        described["holder"] = block_slice.takers[delivery.taker - 1]
    return {**described, "error": errors[delivery.error - 1]} if delivery.error else described
