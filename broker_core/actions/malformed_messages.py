"""Messages that no reader can decode. The query continues without them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from ..engine.columns.rowset import RowSet
from ..engine.commands import SetAside
from ..logs import counted, one_line
from ..service.broker import BrokerService

log = logging.getLogger("penstock")

NAMED = 10  # messages in one line of the log
REASON = 200  # characters of each reason


def set_aside(
    service: BrokerService, lease: str, batch: int, epoch: int, run: str | None, reasons: Mapping[str, list[int]]
) -> int:
    """Note the messages durably in the lease, and in the log. Return the number of new ones."""
    rows = {reason: RowSet.of_sequences(np.unique(np.array(named, np.int64))) for reason, named in reasons.items()}
    count = service.submit(SetAside(lease, batch, epoch, rows, run))
    if count:
        queue = service.state.leases[lease].queue
        malformed = [(sequence, reason) for reason, named in reasons.items() for sequence in named]
        named_ = "; ".join(f"{sequence}: {one_line(reason, REASON)}" for sequence, reason in sorted(malformed)[:NAMED])
        more = f"; and {len(malformed) - NAMED} more" if len(malformed) > NAMED else ""
        log.warning(
            "queue %r: %s of batch %d of lease %r set aside, because of invalid AMQP. They are not delivered. When the batch is"
            " settled, they become dead letters, or without a dead-letter queue are archived as rejected: %s%s",
            queue, counted(count, "message"), batch, lease, named_, more, extra={"queue": queue},
        )  # fmt: skip
    return count
