"""A delivery's tag is its message's sequence number, eight octets big-endian: an outcome names its message without a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...engine.columns.rowset import RowSet

if TYPE_CHECKING:
    from ...amqp.deliveries import Delivery


def rows_of(deliveries: list[Delivery]) -> RowSet:
    """Return the row set of the messages of deliveries that we sent."""
    return rows_of_tags([delivery.tag for delivery in deliveries])


def rows_of_tags(tags: list[bytes]) -> RowSet:
    """Return the row set of the messages with these tags, at least one, in any order."""
    if len(tags) == 1:
        return RowSet.single(int.from_bytes(tags[0], "big"))
    numbers = np.frombuffer(b"".join(tags), ">i8").astype(np.int64)
    numbers.sort()
    return RowSet.of_sequences(numbers)
