"""Recognition of messages that the broker sends again, by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from ...broker_core.messages import conversion
from .batches import numbers_of


def keys_of(message: pa.Array, queues: Any, names: Sequence[str]) -> Any:
    """`queues`: indexes in `names`. A copy in another queue is another message, which an exchange has sent to both."""
    import numpy as np

    salts = [int.from_bytes(blake2b(queue.encode(), digest_size=8).digest(), "big") for queue in names]
    keys = conversion.foreign_messages().keys(message)
    return keys._replace(high=keys.high ^ np.array(salts, np.uint64)[queues])


def copies(keys: Any) -> Any:
    """Return for each message whether an earlier one has the same key. False without an id."""
    import numpy as np

    is_copy = np.zeros(len(keys.high), np.bool_)
    rows = np.flatnonzero(keys.known)
    left, right = keys.high[rows], keys.low[rows]
    order = np.argsort(left)
    if (left[order[1:]] == left[order[:-1]]).any():
        order = np.lexsort((right, left))  # stable: the first of several copies stays in front
        again = (left[order[1:]] == left[order[:-1]]) & (right[order[1:]] == right[order[:-1]])
        is_copy[rows[order[1:][again]]] = True
    return is_copy


def keys_in(reader: Any) -> tuple[Any, Any]:
    import numpy as np

    left, right = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        queue = batch.column("queue")
        keys = keys_of(batch.column("message"), numbers_of(queue.indices, np.int8), queue.dictionary.to_pylist())
        left.append(keys.high[keys.known])
        right.append(keys.low[keys.known])
    return np.concatenate(left), np.concatenate(right)
