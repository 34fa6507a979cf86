"""Failed deliveries as the column `failures` shows them: a JSON list for each message, the earliest delivery first.

Each has the `time` and the `cause`, and if they are known the `holder` and the `error`. A redrive in the same queue has the cause
`redriven` and its user as the holder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from ..engine.columns.failures import REDRIVEN, FailedDelivery
from ..engine.columns.series import Ints
from ..engine.columns.states import Cause
from .slices import BlockSlice

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def failures_of(block_slice: BlockSlice, indexes: slice) -> pa.Array:
    """Return the texts of the rows at `indexes`; null: the row has not failed."""
    count, failed = indexes.stop - indexes.start, block_slice.failures
    start, stop = (0, 0) if failed is None else np.searchsorted(failed.indexes, (indexes.start, indexes.stop)).tolist()
    if failed is None or start == stop:
        return pa.nulls(count, pa.string())
    deliveries = [[column[start:stop] for column in columns] for columns in reversed(failed.deliveries)]
    groups, firsts = _groups(list(chain.from_iterable(deliveries)))
    texts: list[str | None] = [None]
    for row in zip(*(zip(*(column[firsts].tolist() for column in columns), strict=True) for columns in deliveries), strict=True):
        described = [_described(FailedDelivery(*values), block_slice, failed.errors) for values in row if values[0]]
        texts.append(json.dumps(described, ensure_ascii=False))
    places = np.zeros(count, np.int64)
    places[failed.indexes[start:stop] - indexes.start] = groups + 1
    return pa.array(texts, pa.string()).take(pa.array(places))


def _groups(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return the number of each row's group, and the first row of each group. Rows of a group are equal in all columns."""
    groups = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if (column != column[0]).any():  # messages of a batch fail together
            pairs = groups * (int(column.max()) + 1) + column.astype(np.int64)  # fits: rows of a block, times below 2**47
            groups = pa.array(pairs).dictionary_encode().indices.to_numpy().astype(np.int64)
    # Groups are numbered in the order of their first rows.
    return groups, np.flatnonzero(np.diff(np.maximum.accumulate(groups), prepend=-1))


def _described(delivery: FailedDelivery, block_slice: BlockSlice, errors: Sequence[str]) -> dict[str, Any]:
    moment = _EPOCH + timedelta(microseconds=(delivery.time - 1) * 1000 + block_slice.begun)
    cause = "redriven" if delivery.cause == REDRIVEN else Cause(delivery.cause - 1).name.lower().replace("_", " ")
    described = {"time": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"), "cause": cause}
    if delivery.taker:
        described["holder"] = block_slice.takers[delivery.taker - 1]
    return {**described, "error": errors[delivery.error - 1]} if delivery.error else described
