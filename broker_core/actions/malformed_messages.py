"""Messages of a batch that its reader cannot decode: they are set aside when the batch is settled, and the query goes on."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from ..engine.columns.rowset import RowSet
from ..engine.commands import SetAside
from ..logs import counted, one_line
from ..service.broker import BrokerService

log = logging.getLogger("penstock")

NAMED = 10  # messages that one line of the log names
REASON = 200  # characters of each one's reason


def by_reason(malformed: Mapping[int, str]) -> dict[str, list[int]]:
    """Sequence numbers by why these messages cannot be decoded."""
    found: dict[str, list[int]] = {}
    for sequence, reason in malformed.items():
        found.setdefault(reason, []).append(sequence)
    return found


def set_aside(
    service: BrokerService, lease: str, batch: int, epoch: int, run: str | None, reasons: Mapping[str, list[int]]
) -> int:
    """Note it in the lease, durably, and in the log; how many messages were not noted before."""
    rows = {reason: RowSet.of_sequences(np.unique(np.array(named, np.int64))) for reason, named in reasons.items()}
    count = service.submit(SetAside(lease, batch, epoch, rows, run))
    if count:
        queue = service.state.leases[lease].queue
        said = [(sequence, reason) for reason, named in reasons.items() for sequence in named]
        named_ = "; ".join(f"{sequence}: {one_line(reason, REASON)}" for sequence, reason in sorted(said)[:NAMED])
        more = f"; and {len(said) - NAMED} more" if len(said) > NAMED else ""
        log.warning(
            "queue %r: %s of batch %d of lease %r set aside, as no valid AMQP: not delivered, and for the dead letters (without a"
            " dead-letter queue for the archive, as rejected) when the batch is settled: %s%s",
            queue, counted(count, "message"), batch, lease, named_, more, extra={"queue": queue},
        )  # fmt: skip
    return count
