"""Chosen dead letters, back to the queues that they came from.

A redriven message has left the dead-letter queue, and its sequence number is not used again. So repeating a request redrives no
message twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from .connection import Client

#: Of one request, which stays below 1 MiB with the longest sequence numbers.
RANGES_A_REQUEST = 20_000
#: Seconds until the answer.
ANSWER_S = 600.0


class Ranges(NamedTuple):
    """Parallel arrays of first and last sequence numbers, both included."""

    firsts: pa.Int64Array
    lasts: pa.Int64Array


class RedriveTotals(NamedTuple):
    """As `RedriveResult` of `client.app`."""

    messages: int
    stayed: int


def redrive(client: Client, queue: str, ranges: Ranges, limit: int | None = None) -> Iterator[RedriveTotals]:
    """Redrive the dead letters with these sequence numbers, at most `limit`. Yield the sums after each request.

    Skips numbers that are not dead letters of the queue. Raises NotFound if the queue does not exist.
    """
    done = RedriveTotals(0, 0)
    for at in range(0, max(1, len(ranges.firsts)), RANGES_A_REQUEST):  # at least one request, so that a wrong name fails
        left = None if limit is None else limit - done.messages
        if left == 0:
            return
        pairs = zip(*(column[at : at + RANGES_A_REQUEST].to_pylist() for column in ranges), strict=True)
        flat = list(chain.from_iterable(pairs))
        answer = client.call("queue.redrive", queue=queue, ranges=flat, messages=left, timeout_s=ANSWER_S)
        done = RedriveTotals(done.messages + answer["redriven"], done.stayed + answer["stayed"])
        yield done


def ranges_of(sequences: pa.Int64Array) -> Ranges:
    if not len(sequences):
        return Ranges(sequences, sequences)
    ordered = sequences.take(pc.array_sort_indices(sequences))
    breaks = pc.indices_nonzero(pc.not_equal(pc.subtract(ordered[1:], ordered[:-1]), 1)).cast(pa.int64())
    return Ranges(
        pa.concat_arrays([ordered[:1], ordered.take(pc.add(breaks, 1))]), pa.concat_arrays([ordered.take(breaks), ordered[-1:]])
    )
