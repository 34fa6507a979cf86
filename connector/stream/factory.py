"""Consumers: from the offsets of Spark to the lease of one queue, or the leases of several, at one broker or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...broker_core.client.discovery import Endpoint, LessSafe
from ...broker_core.errors import InvalidOption, PenstockError
from ..brokers.consumer import SeveralBrokers
from ..foreign.consumer import ForeignConsumer
from ..identity import Identity
from ..offset import parse_one
from ..options import Options
from ..task.partition import LeasePartition
from .consumer import Consumer, OneBroker
from .credit import Credit
from .lease import Lease, Renewals, Standing, standings
from .queues import SeveralQueues


def consumer_of(options: Options, *, several: bool = False) -> Consumer:
    """Return the consumer for what stands at the option `url`, asked now: for one queue or several, at one broker or several.

    Where the option `spool` is given, a broker that does not answer, or refuses, is taken for one that is no Penstock: what is in
    the spool can be read without it. `several` says that the checkpoint is of several brokers.
    """
    if several or len(options.urls) > 1:
        return SeveralBrokers(options, _of_one_broker)
    return _of_one_broker(options)


def _of_one_broker(options: Options) -> OneBroker:
    return ForeignConsumer(options) if _is_foreign(options) else _of_queues(options)


def _of_queues(options: Options) -> OneQueue | SeveralQueues:
    options.check_names()
    return OneQueue(options) if len(options["queue"]) == 1 else SeveralQueues(options)


def _is_foreign(options: Options) -> bool:
    spool = options["spool"]
    try:
        found = options.access.there()
    except PenstockError as error:
        if spool is None or isinstance(error, (InvalidOption, LessSafe)):
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
        self._client = options.access.client()
        self._renewals = Renewals()
        self._lease = Lease(options, options["queue"][0], self._client, self._renewals)
        self._until: int | None = None  # the queue's tail when an `availableNow` run began

    def identity(self) -> Identity:
        """Ask which broker it is."""
        return self._lease.identity

    def standing(self) -> Standing:
        """Ask how the lease of the option `lease` stands."""
        return standings(self._client).get(self._options["lease"], Standing())

    @property
    def is_busy(self) -> bool:
        """Return that nothing takes long: a Penstock answers at once."""
        return False

    def fix_tail(self) -> None:
        """Remember the queue's end: later messages are not taken."""
        self._until = self._lease.next_sequence()

    def advance(self, start: Mapping[str, Any], *, wait_ms: int, credit: Credit, once: bool = False) -> dict[str, Any]:
        """Settle up to `start` and acquire the next batch, in one request."""
        wait = wait_ms if self._until is None else 0
        least, ends = self._options["minPartitions"], self._until is not None
        taken = self._lease.advance(parse_one(start), credit.limits(self._until, exclude=ends, wait_ms=wait, partitions=least))
        credit.spend(taken.messages, taken.bytes)
        return taken.offset.to_json()

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
        """End the renewals and close the connection. The lease stays."""
        self._renewals.stop()
        self._client.close()
