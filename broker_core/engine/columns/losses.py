"""Messages that were sent to a queue or an exchange and are not in a queue, by reason, since the broker started."""

from __future__ import annotations

from collections import Counter

FULL, DISK_FULL, UNROUTABLE, NO_CONSUMER, OTHER = "full", "disk-full", "unroutable", "no-consumer", "other"
RING, DUPLICATE, UNBOUND = "ring", "duplicate", "unbound"

#: Reasons for refused messages, which the sender still has. `OTHER`: the message is invalid, or another limit was reached.
QUEUE_REFUSED = (FULL, DISK_FULL, NO_CONSUMER, OTHER)
EXCHANGE_REFUSED = (UNROUTABLE, FULL, DISK_FULL, OTHER)
#: Reasons for dropped messages, which the sender counts as sent. `RING`: they had waited longest in a full ring.
QUEUE_DROPPED = (RING, DUPLICATE)
EXCHANGE_DROPPED = (UNBOUND,)


class Losses(Counter[str]):
    """Counts by reason."""

    def among(self, reasons: tuple[str, ...]) -> dict[str, int]:
        """Return the counts of these reasons that are not 0."""
        return {reason: self[reason] for reason in reasons if self[reason]}
