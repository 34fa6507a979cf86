"""Annotations of a dead letter, made when it is read; the engine keeps a few numbers.

| annotation | type | elsewhere |
|---|---|---|
| `x-opt-death-reason` | string: a `Reason`, in lower case | `x-first-death-reason`, `DeadLetterReason` |
| `x-opt-death-queue` | string | `x-first-death-queue`, `_AMQ_ORIG_QUEUE`, `DeadLetterSource` |
| `x-opt-death-sequence` | ulong: its number in that queue | `_AMQ_ORIG_MESSAGE_ID` |
| `x-opt-death-time` | timestamp: its arrival in the current queue | `x-death`'s `time` |
| `x-opt-death-error` | string: the text of the consumer that rejected it | `DeadLetterErrorDescription` |

(`x-…`: RabbitMQ; `_AMQ…`: Artemis; the last: Service Bus.) A message can become a dead letter several times. Reason, time and
error are those of the last time, queue and sequence number those of the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..amqp.encoder import encode
from ..amqp.types import Timestamp, ULong
from ..engine.columns.blocks import Block
from ..engine.columns.rowset import as_array, row_count
from ..engine.columns.series import Ints, Rows
from ..engine.columns.states import Reason
from ..messages.annotations import DEATH_ERROR, DEATH_QUEUE, DEATH_REASON, DEATH_SEQUENCE, DEATH_TIME

_REASONS = {reason.value: reason.name.lower() for reason in Reason}


class QueueNames(NamedTuple):
    """Names that the numbers in a queue's columns stand for."""

    queue: str
    origins: Sequence[str]  # queues that its dead letters come from
    takers: Sequence[str]  # last holders of its messages


class DeadLetters(NamedTuple):
    """Reasons and origins of dead letters in a block: copies of its columns, parallel arrays."""

    queue: str
    origins: Sequence[str]  # names of queues
    reason: Ints  # a `Reason`; 0: the row is not a dead letter
    origin: Ints  # number in `origins`, from 1 on; 0: this queue
    came_from: Ints  # sequence number in the first queue, plus one
    sequence: npt.NDArray[np.int64]  # in this queue
    errors: Mapping[int, str]  # by index

    def maps(self, indexes: slice, times: npt.NDArray[np.int64]) -> dict[int, bytes]:
        """Return the annotations of the dead letters at `indexes`: index within `indexes` → an encoded map.

        `times` are the arrival times of these rows, microseconds since 1970.
        """
        maps = {}
        start = indexes.start
        for index in np.flatnonzero(self.reason[indexes]).tolist():
            row, origin = start + index, int(self.origin[start + index])
            annotations = {
                DEATH_REASON: _REASONS[int(self.reason[row])],
                DEATH_QUEUE: self.origins[origin - 1] if origin else self.queue,
                DEATH_SEQUENCE: ULong(int(self.came_from[row]) - 1 if origin else int(self.sequence[row])),
                DEATH_TIME: Timestamp(int(times[index]) // 1000),
            }
            if row in self.errors:
                annotations[DEATH_ERROR] = self.errors[row]
            maps[index] = encode(annotations)
        return maps


def dead_letters_of(block: Block, rows: Rows, names: QueueNames) -> DeadLetters | None:
    """Copy the columns of dead letters, if `rows` contain any. Called under the broker's lock."""
    reason = block.reason.get(rows)
    if isinstance(reason, int) or not reason.any():
        return None
    numbers, count = as_array(rows), row_count(rows)
    errors = errors_of(block, rows)
    origin, came_from = (np.array(np.broadcast_to(column.get(rows), count)) for column in (block.origin, block.came_from))
    return DeadLetters(names.queue, names.origins, reason.copy(), origin, came_from, numbers + block.base, errors)


def errors_of(block: Block, rows: Rows) -> dict[int, str]:
    if not block.errors:
        return {}
    numbers = as_array(rows)
    _, at, _ = np.intersect1d(numbers, np.array(list(block.errors), np.int64), assume_unique=True, return_indices=True)
    return {index: block.errors[int(numbers[index])] for index in at.tolist()}
