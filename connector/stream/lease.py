"""The planner's side of a lease: one queue, one planner process, one epoch.

A planner's first call takes the lease up under a new epoch, and the broker then refuses calls of older epochs. For each broker a
thread renews the planner's leases. It is a daemon, since it must not keep the planner of a dead driver alive.

Every call is idempotent, and is repeated while the broker restarts.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...broker_core.client.flight import Client
from ...broker_core.errors import PeerError, PenstockError
from ..backoff import RECONNECT_S, answered
from ..offset import LeaseBatch, QueuesOffset
from ..options import Options
from ..suggestions import SelectorHints
from ..task.partition import LeasePartition
from .credit import TriggerLimits

log = logging.getLogger("penstock")

RENEW_S = 10.0  # the broker gives an unread batch back after a minute of silence
UNREAD_WARNING = 3  # batches in a row, from which on the broker slows the query down
LONG_POLL_MS = 100  # one thread asks all sources of a query


class LeaseAdvance(NamedTuple):
    """The batch, unchanged if nothing was taken. Messages and bytes are 0 unless measured."""

    batch: LeaseBatch
    messages: int
    bytes: int


class LeaseState(NamedTuple):
    """State of a lease towards a query without a checkpoint. The smallest of several is asked first.

    A lease that refuses has to be asked before another lease is taken from a query that lives.
    """

    is_unread: bool = True  # False: it holds a read batch, and refuses
    begins: bool = True  # False: a checkpoint names it, and it refuses while its query lives
    renewed: float = math.inf


def lease_states(client: Client) -> dict[str, LeaseState]:
    leases = client.call("lease.list")["leases"]
    return {
        lease["name"]: LeaseState(lease["stage"] != "read", not lease["checkpointed"], lease["renewed"] or 0.0)
        for lease in leases
    }


class _Planned(NamedTuple):
    after: int
    batch: int
    min_partitions: int
    parts: list[Any]


class Renewals:
    """Thread that renews a planner's leases at one broker."""

    def __init__(self) -> None:
        self._leases: list[Callable[[], object]] = []
        self._stopped = threading.Event()

    def add(self, renew: Callable[[], object]) -> None:
        self._leases.append(renew)
        if len(self._leases) == 1:
            threading.Thread(target=self._run, name="penstock-renew", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(RENEW_S):
            for renew in tuple(self._leases):
                try:
                    renew()
                except PeerError:
                    break  # a broker that is down counts no time
                except PenstockError:
                    pass  # the next planning call reports a lease that was deleted or taken
                except Exception:
                    log.exception("a lease could not be renewed; it is tried again")


@dataclass(eq=False)
class PlannerLease:
    """A lease of one planner. Nothing is sent before the first call. Calls come from one thread."""

    options: Options
    queue: str
    client: Client
    renewals: Renewals
    query: QueuesOffset  # for its names
    head: Callable[[], PlannerLease | None]  # the lease that this planner took up first: while it holds that, it holds all
    counts: dict[str, Any] = field(default_factory=dict)
    _epoch: int | None = None
    _waiting: bool = False
    _settled: int = 0
    _planned: _Planned | None = None
    _unread: int = 0
    _hints: SelectorHints = field(default_factory=SelectorHints)

    @property
    def name(self) -> str:
        return self.query.lease_of(self.queue)

    @property
    def is_taken_up(self) -> bool:
        """A lease without a batch so far has no epoch."""
        return self._epoch is not None

    def advance(self, start: LeaseBatch, limits: TriggerLimits) -> LeaseAdvance:
        """Settle up to `start`; return the unfinished next batch, or a new one within `limits`, or `start` without messages."""
        # The first batch is planned by a request of its own, which shows the broker that Spark has written an offset: from then
        # on the broker refuses other queries. It also detects a self-join, both sides of which have advanced by then.
        planning = self._epoch is not None and start.number > 0
        answer: dict[str, Any] = {"more": True}
        while answer.get("more"):  # the search of a selector takes several answers
            answer = self._call(
                "lease.advance",
                **_signs(sign=start),
                finished=start.number,
                # Until the lease has taken messages, and so has an epoch, the query begins again with each call.
                fresh=start.number == 0 and self._epoch is None,
                waiting=self._waiting,
                **limits._asdict(),
                plan=planning,
                counts=True,
                maxMessages=self.options["maxMessagesPerPartition"],
                leaseTimeout=self.options["leaseTimeout"],
                selector=self.options["selector"],
            )
            self._waiting = self._epoch is None
            self.counts = answer["counts"]
            self._warn_of_unread(answer.get("unread", 0))
            self._hints.log(answer.get("hints", ()))
            if not limits.alone:
                break  # the next message may be too large for the rest of the trigger
        # After a rollback with `failOnDataLoss=false`, the query continues with the broker's number.
        batch = start if answer["batch"] == start.number else LeaseBatch(answer["batch"], answer.get("sign"))
        self._settled = start.number
        self._planned = _Planned(start.number, batch.number, limits.minPartitions, answer["parts"]) if planning else None
        return LeaseAdvance(batch, answer.get("messages", 0), answer.get("bytes", 0))

    def plan(self, start: LeaseBatch, end: LeaseBatch, min_partitions: int = 1) -> list[LeasePartition]:
        planned = self._planned
        # Usually an advance has planned them. Between the same offsets the tasks are always the same.
        if planned is None or planned[:3] != (start.number, end.number, min_partitions):
            answer = self._call(
                "lease.plan",
                **_signs(afterSign=start, batchSign=end),
                after=start.number,
                batch=end.number,
                minPartitions=min_partitions,
                maxMessages=self.options["maxMessagesPerPartition"],
            )
            self._planned = planned = _Planned(start.number, end.number, min_partitions, answer["parts"])
        # The endpoint's token is as fresh as this planner's last call.
        common = {"url": self.options["url"], "known": self.client.endpoint, "broker": self.query.broker, **self._names()}
        return [
            LeasePartition(
                **common, batch=batch, first=first, last=last, **dict(zip(("bucket", "buckets"), groups, strict=False))
            )
            for batch, first, last, _count, *groups in planned.parts
        ]

    def settle(self, end: LeaseBatch) -> None:
        """Nothing is sent if `advance` has settled up to `end`, as usual."""
        if end.number <= self._settled:
            return
        self._call("lease.settle", **_signs(sign=end), finished=end.number)
        self._settled = end.number
        if self._planned is not None and self._planned.batch <= end.number:
            self._planned = None

    def _names(self) -> dict[str, Any]:
        return {"queue": self.queue, "lease": self.name, "run": self.query.run, "epoch": self._epoch}

    def _warn_of_unread(self, times: int) -> None:
        if times >= UNREAD_WARNING > self._unread:
            log.warning(
                "a query finished %d batches of queue %r in a row without reading them, or its writes were repetitions and sent "
                "nothing, so their messages were given back. It gets further batches more and more slowly until it processes "
                "one. Does its foreachBatch do nothing with the DataFrame, or has it a constant txnVersion?",
                times, self.queue,
            )  # fmt: skip
        self._unread = times

    def _call(self, action: str, **fields: Any) -> dict[str, Any]:
        """The first answer with an epoch takes the lease up."""
        head = self.head()
        if head is not None and head is not self:
            fields["head"] = {"lease": head.name, "epoch": head._epoch}
        fields |= {**self._names(), "failOnDataLoss": self.options["failOnDataLoss"]}
        seconds = RECONNECT_S if self.options.waits else 0.0
        answer = answered(lambda: self.client.call(action, **fields), seconds, lambda error: isinstance(error, PeerError))
        if self._epoch is None and answer["epoch"] is not None:
            self._epoch = answer["epoch"]
            self.renewals.add(self._renew)
        return answer

    def _renew(self) -> None:
        self.client.call("lease.renew", lease=self.name, run=self.query.run, epoch=self._epoch)


def _signs(**batches: LeaseBatch) -> dict[str, str]:
    return {field: batch.sign for field, batch in batches.items() if batch.sign is not None}
