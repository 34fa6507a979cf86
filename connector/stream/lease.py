"""The planner's side of a lease: one queue, one planner process, one epoch.

The words, the same in options, commands and texts:
- *query*: a streaming query of Spark, with its checkpoint;
- *lease*: at the broker, the messages of one queue that a query has taken, in numbered batches. Its name is the option `lease`,
  and what `penstock lease` takes; a query over several queues has a lease `LEASE/QUEUE` of each;
- *consumer*: whoever takes messages from a queue: an AMQP link that receives, or a lease that holds a batch.

A planner's first call takes the lease up under a new epoch, and the broker then refuses calls of older epochs. The planner keeps
its epoch, and a daemon thread for each broker renews its leases while the planner lives (a thread that is no daemon would keep
a dead driver's planner alive).

Every call is idempotent, so one that finds no broker is repeated for a while: a restart of the broker ends no query.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from ...broker_core.client.flight import Client
from ...broker_core.errors import PeerError, PenstockError
from ..backoff import RECONNECT_S, Patience
from ..identity import Identity, begun, check_names, check_same, identity_of
from ..offset import Offset
from ..options import Options
from ..suggestions import SelectorHints
from ..task.partition import LeasePartition
from .credit import TriggerLimits

log = logging.getLogger("penstock")

RENEW_S = 10.0  # the broker gives an unread batch back after a minute of silence
UNREAD_TOLD = 3  # batches in a row that a query left unread, after which its user is told: from here on the broker slows it down
LONG_POLL_MS = 100  # all sources of a query are asked in one thread: a longer wait would hold up the others


class Taken(NamedTuple):
    """Result of a trigger: its offset, unchanged if nothing was taken. Messages and bytes are 0 unless they were measured."""

    offset: Offset
    messages: int
    bytes: int


class Standing(NamedTuple):
    """State of a lease, or of the first of several, towards a query without a checkpoint: the smaller comes first.

    Who refuses has to be asked before another lease is begun, and by that taken from a query that lives.
    """

    unread: bool = True  # False: it holds a batch that was read, and refuses
    begins: bool = True  # False: a checkpoint names it, and it refuses while its query lives
    renewed: float = math.inf  # seconds ago


def standings(client: Client) -> dict[str, Standing]:
    """Ask how the broker's leases stand, by name."""
    leases = client.call("lease.list")["leases"]
    return {
        lease["name"]: Standing(lease["stage"] != "read", not _checkpointed(lease), lease["renewed"] or 0.0) for lease in leases
    }


def _checkpointed(lease: dict[str, Any]) -> bool:
    """Say whether a checkpoint names a lease. An older broker does not tell."""
    return bool(lease.get("checkpointed", lease["finished"] > 0 or lease["stage"] == "read"))


class _Planned(NamedTuple):
    """The last plan of tasks, from `lease.advance` or `lease.plan`, and the offsets between which it lies."""

    after: int
    batch: int
    min_partitions: int
    parts: list[Any]  # as `lease.plan` gives them


class Renewals:
    """Thread that renews the leases that a planner has at one broker, one after another, until `stop`."""

    def __init__(self) -> None:
        self._leases: list[Callable[[], object]] = []
        self._stopped = threading.Event()

    def add(self, renew: Callable[[], object]) -> None:
        """Call `renew` every `RENEW_S` seconds from here on."""
        self._leases.append(renew)
        if len(self._leases) == 1:
            threading.Thread(target=self._run, name="penstock-renew", daemon=True).start()

    def stop(self) -> None:
        """End the renewals. The leases stay."""
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(RENEW_S):
            for renew in tuple(self._leases):
                try:
                    renew()
                except PeerError:
                    break  # a broker that is down counts no time, and is told again when it is back
                except PenstockError:
                    pass  # the next planning call tells the user of a lease that another reader took, or that was deleted
                except Exception:
                    log.exception("a lease could not be renewed; it is tried again")


def _none() -> None:
    return None


def _signs(**offsets: Offset) -> dict[str, str]:
    """Return the signs of these offsets, by the names of the protocol's fields."""
    return {field: offset.sign for field, offset in offsets.items() if offset.sign is not None}


class Lease:
    """A lease as one planner holds it. Nothing is sent before the first call; calls come from one thread.

    `known` names the lease if the query has several (`connector.several`); else its first offset does, or it gets a new name.
    `head` returns the lease that this planner took up first: as long as the planner holds that, it holds all. Raises
    PenstockError with the broker's own text, and WrongOffset if the checkpoint and the options contradict each other.
    """

    def __init__(
        self,
        options: Options,
        queue: str,
        client: Client,
        renewals: Renewals,
        known: Offset | None = None,
        head: Callable[[], Lease | None] = _none,
    ) -> None:
        self._options = options
        self._queue = queue
        self._client = client
        self._renewals = renewals
        self._known = known  # names broker, lease and run; its batch has no meaning here
        self._head = head
        self._epoch: int | None = None
        self._waiting = False  # it has asked, and there is no lease yet
        self._settled = 0  # the broker has said so, to this planner
        self._planned: _Planned | None = None
        self.counts: dict[str, Any] = {}  # of the queue, as the broker told with the last batch
        self._unread = 0  # batches in a row that the query finished, and that came back
        self._identity: Identity | None = None
        self._hints = SelectorHints()

    @property
    def taken_up(self) -> bool:
        """True if this planner has an epoch; a lease that has never taken anything has none."""
        return self._epoch is not None

    @property
    def identity(self) -> Identity:
        """Id and version of the broker: the one call besides. Not sent again when nobody answers: the url may be wrong."""
        if self._identity is None:
            self._identity = identity_of(self._client)
        return self._identity

    def next_sequence(self) -> int:
        """Return the sequence number that the queue gives next: all messages below it are there now."""
        return int(self._call("queue.stat", queue=self._queue)["nextSequence"])

    def advance(self, start: Offset, limits: TriggerLimits) -> Taken:
        """Settle up to `start`; return the unfinished next batch, or a new one within `limits`, or `start` if there is none."""
        known = self._enter(start)
        # The first batch's tasks are asked for apart. That tells the broker that Spark has written an offset: from here on other
        # queries are refused. It also tells a self-join, both sides of which have advanced by then, that it is one.
        planning = self._epoch is not None and start.batch > 0
        answer: dict[str, Any] = {"more": True}
        while answer.get("more"):  # a selector over a queue that nobody has looked through yet: the broker says so now and then
            answer = self._call(
                "lease.advance",
                **self._names(known),
                **_signs(sign=start),
                finished=start.batch,
                # A new lease has no epoch until it has taken something; until then the query begins again with each call.
                fresh=start.batch == 0 and self._epoch is None,
                waiting=self._waiting,
                messages=limits.messages,
                bytes=limits.bytes,
                until=limits.until,
                exclude=limits.exclude,
                waitMs=limits.wait_ms,
                alone=limits.alone,
                measure=limits.measure,
                plan=planning,
                counts=True,
                minPartitions=limits.partitions,
                maxMessages=self._options["maxMessagesPerPartition"],
                failOnDataLoss=self._options["failOnDataLoss"],
                leaseTimeout=self._options["leaseTimeout"],
                selector=self._options["selector"],
            )
            self._took_up(answer)
            self._waiting = self._epoch is None
            self.counts = answer.get("counts", {})
            self._say_unread(answer.get("unread", 0))
            self._hints.log(answer.get("hints", ()))
            if not limits.alone:
                break  # what is next may be too large for what is left of a trigger: not worth looking for more
        # Also after a rollback that `failOnDataLoss=false` lets pass: the broker's number is the one that goes on.
        end = start if answer["batch"] == start.batch else known.at(answer["batch"], answer.get("sign"))
        self._settled = start.batch
        self._planned = _Planned(start.batch, end.batch, limits.partitions, answer["parts"]) if planning else None
        return Taken(end, answer.get("messages", 0), answer.get("bytes", 0))

    def plan(self, start: Offset, end: Offset, min_partitions: int = 1) -> list[LeasePartition]:
        """Plan the tasks of the batches after `start` up to `end`."""
        known = self._enter(end)
        planned = self._planned
        # Between the same offsets the same tasks, always: what an advance has planned, nearly always this, need not be asked for.
        if planned is None or planned[:3] != (start.batch, end.batch, min_partitions):
            answer = self._call(
                "lease.plan",
                **self._names(known),
                **_signs(afterSign=start, batchSign=end),
                after=start.batch,
                batch=end.batch,
                minPartitions=min_partitions,
                maxMessages=self._options["maxMessagesPerPartition"],
                failOnDataLoss=self._options["failOnDataLoss"],
            )
            self._took_up(answer)
            self._planned = planned = _Planned(start.batch, end.batch, min_partitions, answer["parts"])
        names = ("batch", "first", "last", "count", "bucket", "buckets")
        parts = [dict(zip(names, part, strict=False)) for part in planned.parts]
        fields: dict[str, Any] = {
            "url": self._options["url"],
            "known": self._client.endpoint,  # its token is a fresh one, as of this planner's last call
            "broker": known.broker,
            "queue": self._queue,
            "lease": known.lease,
            "run": known.run,
            "epoch": self._epoch,
        }
        return [
            LeasePartition(**{**fields, **{name: value for name, value in part.items() if name != "count"}}) for part in parts
        ]

    def settle(self, end: Offset) -> None:
        """Settle everything up to `end`, which Spark has finished. Nearly always `advance` has settled it before; then no request
        is sent."""
        known = self._enter(end)
        if end.batch <= self._settled:
            return
        loss = self._options["failOnDataLoss"]
        answer = self._call("lease.settle", **self._names(known), **_signs(sign=end), finished=end.batch, failOnDataLoss=loss)
        self._took_up(answer)
        self._settled = end.batch
        if self._planned is not None and self._planned.batch <= end.batch:
            self._planned = None  # its tasks were those of a batch that was held

    # --- Who the lease is ----------------------------------------------------------------------------------------------

    def _enter(self, offset: Offset) -> Offset:
        """Return the names of this planner's lease: the offset's, or new ones. Raises WrongOffset for contradictions."""
        broker = self.identity.broker
        if self._known is None:
            self._known = (begun(self._options, broker) if offset.initial else offset)._replace(queue=self._queue)
            check_names(self._options, broker, self._known)
        if not offset.initial:
            check_same(offset, self._known)
        return self._known

    def _names(self, known: Offset) -> dict[str, Any]:
        names = {"queue": self._queue, "lease": known.lease, "run": known.run, "epoch": self._epoch}
        head = self._head()
        if head is None or head is self or head._known is None:
            return names
        return {**names, "head": {"lease": head._known.lease, "epoch": head._epoch}}

    def _took_up(self, answer: dict[str, Any]) -> None:
        if self._epoch is None and answer["epoch"] is not None:
            self._epoch = answer["epoch"]
            self._renewals.add(self._renew)

    def _say_unread(self, times: int) -> None:
        if times >= UNREAD_TOLD > self._unread:
            log.warning(
                "a query finished %d batches of queue %r in a row without reading them, or its writes were repetitions and sent "
                "nothing, so their messages were given back: it gets further ones more and more slowly until it works one off. "
                "Does its foreachBatch do nothing with the DataFrame, or has it a constant txnVersion?",
                times,
                self._queue,
            )
        self._unread = times

    # --- Talking -------------------------------------------------------------------------------------------------------

    def _call(self, action: str, **fields: Any) -> dict[str, Any]:
        patience = Patience(RECONNECT_S if self._identity and self._options.waits else 0.0)
        while True:
            try:
                return self._client.call(action, **fields)
            except PeerError as error:
                patience.wait(error)

    def _renew(self) -> None:
        known = self._known
        assert known is not None  # it was taken up
        self._client.call("lease.renew", lease=known.lease, run=known.run, epoch=self._epoch)
