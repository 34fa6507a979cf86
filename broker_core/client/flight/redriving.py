"""Dead letters that somebody chose, sent back to where they came from.

A request names sequence numbers of the dead-letter queue. What has gone back is no longer there, and no other message gets its
number: whoever is cut off asks again with the same numbers, or chooses anew, and nothing goes twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from .connection import Client

#: Of one request: with the longest sequence numbers it stays below the limit of 1 MiB.
RANGES_A_REQUEST = 20_000
#: Seconds for the answer to one request.
ANSWER_S = 600.0


class Ranges(NamedTuple):
    """Sequence numbers: parallel arrays of the first and the last of each range, both included."""

    firsts: pa.Int64Array
    lasts: pa.Int64Array


class Redriven(NamedTuple):
    """The sums over all requests so far."""

    messages: int  # so many are back
    stayed: int  # cannot go: their queue is gone or full, or has a newer value


def redrive(client: Client, queue: str, ranges: Ranges, limit: int | None = None) -> Iterator[Redriven]:
    """Send the dead letters of a queue that have these sequence numbers back, at most `limit`; yield the sums after each request.

    What is no dead letter there, or no longer, is passed over. Raises NotFound where there is no such queue.
    """
    done = Redriven(0, 0)
    for at in range(0, max(1, len(ranges.firsts)), RANGES_A_REQUEST):  # asked once at least: a wrong name is wrong anyway
        left = None if limit is None else limit - done.messages
        if left == 0:
            return
        pairs = zip(*(column[at : at + RANGES_A_REQUEST].to_pylist() for column in ranges), strict=True)
        flat = list(chain.from_iterable(pairs))
        answer = client.call("queue.redrive", queue=queue, ranges=flat, messages=left, timeout_s=ANSWER_S)
        done = Redriven(done.messages + answer["redriven"], done.stayed + answer["stayed"])
        yield done


def ranges_of(sequences: pa.Int64Array) -> Ranges:
    """The ranges of these sequence numbers, which come in any order, without repetitions."""
    if not len(sequences):
        return Ranges(sequences, sequences)
    ordered = sequences.take(pc.array_sort_indices(sequences))
    breaks = pc.indices_nonzero(pc.not_equal(pc.subtract(ordered[1:], ordered[:-1]), 1)).cast(pa.int64())
    return Ranges(
        pa.concat_arrays([ordered[:1], ordered.take(pc.add(breaks, 1))]), pa.concat_arrays([ordered.take(breaks), ordered[-1:]])
    )
