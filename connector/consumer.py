"""Consumers: from the offsets of Spark to the lease of one queue, or the leases of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from .lease import LONG_POLL_MS, Lease, TriggerLimits
from .offset import parse_one
from .options import Options
from .partition import LeasePartition
from .several import SeveralQueues


class Consumer(Protocol):
    """Planner's view of one queue or several, by offsets (`connector.offset`) in JSON.

    Every call is idempotent, and any can be the first after a restart.
    """

    def fix_tail(self) -> None:
        """Take nothing that comes from now on: an `availableNow` run begins."""

    def advance(self, start: Mapping[str, Any], *, wait: bool) -> dict[str, Any]:
        """Settle everything up to `start`; return the offset after the next batch, or `start` if there is nothing to take."""
        ...

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[LeasePartition]:
        """Plan the tasks between two offsets."""
        ...

    def settle(self, end: Mapping[str, Any]) -> None:
        """Settle everything up to `end`."""

    def counts(self) -> dict[str, Any]:
        """Return the counts of each queue, as they came with the last `advance`; nothing is asked."""
        ...

    def close(self) -> None:
        """Close the connection. Leases stay."""


def consumer_of(options: Options) -> Consumer:
    """Return the consumer for one queue or for several, as the option `queue` names them."""
    return OneQueue(options) if len(options["queue"]) == 1 else SeveralQueues(options)


class OneQueue:
    """Consumer of one queue: one lease, and one request for each trigger."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._lease = Lease(options, options["queue"][0], options.access.client())
        self._until: int | None = None  # the queue's tail when an `availableNow` run began

    def fix_tail(self) -> None:
        """Remember the queue's end: later messages are not taken."""
        self._until = self._lease.next_sequence()

    def advance(self, start: Mapping[str, Any], *, wait: bool) -> dict[str, Any]:
        """Settle up to `start` and acquire the next batch, in one request."""
        limits = TriggerLimits(
            self._options["maxMessagesPerTrigger"],
            self._options["maxBytesPerTrigger"],
            self._until,
            exclude=self._until is not None,
            wait_ms=LONG_POLL_MS if wait and self._until is None else 0,
            partitions=self._options["minPartitions"],
        )
        return self._lease.advance(parse_one(start), limits).offset.to_json()

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[LeasePartition]:
        """Plan the tasks of the batch between two offsets; none where they are the same."""
        finished, limits = parse_one(start), parse_one(end)
        return [] if finished.batch == limits.batch else self._lease.plan(finished, limits, self._options["minPartitions"])

    def settle(self, end: Mapping[str, Any]) -> None:
        """Settle up to `end`; nothing for the initial offset."""
        finished = parse_one(end)
        if not finished.initial:
            self._lease.settle(finished)

    def counts(self) -> dict[str, Any]:
        """Return the queue's counts, by its name."""
        return {self._options["queue"][0]: self._lease.counts}

    def close(self) -> None:
        """Close the connection. The lease stays."""
        self._lease.close()
