"""Consumers: from the offsets of Spark to the lease of one queue, or the leases of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..broker_core.client.discovery import Endpoint
from ..broker_core.errors import InvalidOption, PeerError
from .foreign.consumer import ForeignConsumer
from .foreign.partition import SpoolPartition
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

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[LeasePartition | SpoolPartition]:
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
    """Return the consumer for what stands at the option `url`, asked now, and for one queue or several.

    Where the option `spool` is given, a broker that does not answer is taken for one that is no Penstock: what is in the spool
    can be read without it.
    """
    if _is_foreign(options):
        return ForeignConsumer(options)
    return OneQueue(options) if len(options["queue"]) == 1 else SeveralQueues(options)


def _is_foreign(options: Options) -> bool:
    spool = options["spool"]
    try:
        found = options.access.there()
    except PeerError:
        if spool is None:
            raise
        return True
    if found is None or isinstance(found, Endpoint):
        if spool is not None:
            raise InvalidOption(f"a Penstock stands at {options['url']}, which needs no spool: leave the option spool out")
        options.access = options.access.at(found)
        return False
    if spool is None:
        raise InvalidOption(
            f"{options['url']} is a plain AMQP 1.0 broker ({found}): a stream from it needs the option spool, an empty folder"
            " of the query's own that driver and executors reach, such as /data/spool/orders or s3a://bucket/spool/orders"
        )
    return True


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
