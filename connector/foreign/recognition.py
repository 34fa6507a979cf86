"""Recognition: keys of messages, by which they are known when the broker sends them again."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from ...broker_core.messages import conversion
from .batches import numbers_of


def keys_of(message: pa.Array, queues: Any, names: Sequence[str]) -> Any:
    """Compute the keys of messages; `queues` contains the index of each message's queue in `names`.

    A copy in another queue is another message: an exchange has sent it to both.
    """
    import numpy as np

    salts = [int.from_bytes(blake2b(queue.encode(), digest_size=8).digest(), "big") for queue in names]
    found = conversion.keys(message)
    return found._replace(one=found.one ^ np.array(salts, np.uint64)[queues])


def copies(keys: Any) -> Any:
    """Say of each message that has an id whether one before it, among these, has the same key."""
    import numpy as np

    found = np.zeros(len(keys.one), np.bool_)
    rows = np.flatnonzero(keys.known)
    one, other = keys.one[rows], keys.other[rows]
    order = np.argsort(one)
    if (one[order[1:]] == one[order[:-1]]).any():
        order = np.lexsort((other, one))  # stable: of copies, the first stays in front
        again = (one[order[1:]] == one[order[:-1]]) & (other[order[1:]] == other[order[:-1]])
        found[rows[order[1:][again]]] = True
    return found


def keys_in(reader: Any) -> tuple[Any, Any]:
    """Compute the keys of those messages of a batch's file that have an id."""
    import numpy as np

    one, other = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        queue = batch.column("queue")
        found = keys_of(batch.column("message"), numbers_of(queue.indices, np.int8), queue.dictionary.to_pylist())
        one.append(found.one[found.known])
        other.append(found.other[found.known])
    return np.concatenate(one), np.concatenate(other)
