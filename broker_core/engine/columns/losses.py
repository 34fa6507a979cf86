"""Counts of messages that did not reach a queue, by reason, since the broker started."""

from __future__ import annotations

from collections import Counter

FULL, DISK_FULL, UNROUTABLE, NO_CONSUMER, OTHER = "full", "disk-full", "unroutable", "no-consumer", "other"
RING, DUPLICATE, UNBOUND = "ring", "duplicate", "unbound"

#: The sender still has refused messages. `OTHER`: the message is invalid, or another limit was reached.
QUEUE_REFUSED = (FULL, DISK_FULL, NO_CONSUMER, OTHER)
EXCHANGE_REFUSED = (UNROUTABLE, FULL, DISK_FULL, OTHER)
#: The sender counts dropped messages as sent. `RING`: they had waited longest in a full ring.
QUEUE_DROPPED = (RING, DUPLICATE)
EXCHANGE_DROPPED = (UNBOUND,)


class Losses(Counter[str]):
    """Counts by reason."""

    def among(self, reasons: tuple[str, ...]) -> dict[str, int]:
        """Counts of 0 are left out."""
        return {reason: self[reason] for reason in reasons if self[reason]}
