"""One query over several queues: each queue has a lease of its own, and the limits of a trigger hold for all together.

A batch of Spark's holds a batch of each queue that had messages. The queues are asked one after another, each for what is left of
the limits; each trigger begins with another queue, by the offset's `turn`. A crash between two queues leaves an unfinished batch
in those that were asked. These batches alone are then the next batch of Spark's, since a lease returns an unfinished batch
unchanged. So a planner looks for unfinished batches first, unless it has just found that there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...broker_core.errors import WrongOffset
from ..identity import Identity, begun, check_names, check_same, identity_of
from ..offset import Offset, Offsets, parse_several
from ..options import Options
from ..task.partition import LeasePartition
from .credit import Credit
from .lease import Lease, Renewals, Standing, standings

SLICE_MS = 20  # an idle query waits at one queue at a time, so long
MANY = 8  # queues from which on a trigger looks which of them have messages, before it asks them one by one


class SeveralQueues:
    """Consumer of several queues.

    Queues can be added to a query with a checkpoint, also to one that read a single queue. They begin at batch 0. None can be
    removed.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._queues: tuple[str, ...] = tuple(sorted(options["queue"]))
        self._client = options.access.client()
        self._renewals = Renewals()
        self._known: Offsets | None = None  # names broker, lease and run
        self._leases: dict[str, Lease] = {}
        self._head: Lease | None = None  # the one that this planner took up first
        self._answered: Offsets | None = None  # the last answer: who begins there has finished all there was
        self._until: dict[str, int] | None = None  # the queues' tails when an `availableNow` run began
        self._unsettled: set[str] = set()  # queues of the last answer
        self._waits = 0  # how often it waited at a queue: each wait is at another one

    def identity(self) -> Identity:
        """Ask which broker it is."""
        return identity_of(self._client)

    def standing(self) -> Standing:
        """Ask how the leases of these queues stand, by the option `lease`; return the first."""
        found = standings(self._client)
        return min(found.get(f"{self._options['lease']}/{queue}", Standing()) for queue in self._queues)

    @property
    def is_busy(self) -> bool:
        """Return that nothing takes long: a Penstock answers at once."""
        return False

    def fix_tail(self) -> None:
        """Remember each queue's end: later messages are not taken."""
        self._until = {queue: int(self._client.call("queue.stat", queue=queue)["nextSequence"]) for queue in self._queues}

    def advance(self, start: Mapping[str, Any], *, wait_ms: int, credit: Credit, once: bool = False) -> dict[str, Any]:
        """Settle up to `start` and acquire the next batch, of one or more queues."""
        credit.shared = True
        given = parse_several(start)
        known = self._enter(given)
        order = self._order(known, given is None)
        found = self._next(known, order, credit, wait_ms if self._until is None else 0)
        self._answered = known.with_each(found)._replace(turn=known.turn + 1) if found else known
        if found:
            return self._answered.to_json()
        return dict(start)

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[LeasePartition]:
        """Plan the tasks of the batches between two offsets, of all queues that have one."""
        given, limits = parse_several(start), parse_several(end)
        if limits is None:
            return []
        known = self._enter(limits)
        before = {queue: known.of(queue).at(0) if given is None else given.of(queue) for queue in self._queues}
        changed = [queue for queue in self._queues if known.of(queue).batch != before[queue].batch]
        each = -(-self._options["minPartitions"] // max(1, len(changed)))
        return [part for queue in changed for part in self._leases[queue].plan(before[queue], known.of(queue), each)]

    def settle(self, end: Mapping[str, Any]) -> None:
        """Settle each queue up to its part of `end`; nothing for the initial offset."""
        finished = parse_several(end)
        if finished is None:
            return
        known = self._enter(finished)
        for queue in self._begun(known):
            self._leases[queue].settle(known.of(queue))

    def counts(self) -> dict[str, Any]:
        """Return the counts of each queue that was asked."""
        return {queue: self._leases[queue].counts for queue in self._queues if queue in self._leases}

    def close(self) -> None:
        """End the renewals and close the connection. Leases stay."""
        self._renewals.stop()
        self._client.close()

    # --- A trigger -----------------------------------------------------------------------------------------------------

    def _next(self, known: Offsets, order: list[str], credit: Credit, wait_ms: int) -> dict[str, Offset]:
        """Acquire the next batch; return its queues, and the offset of each after it."""
        answered, self._answered = self._answered, None
        unsettled, self._unsettled = self._unsettled, set()
        if known != answered:
            found, unsettled = self._ask(known, order, _nothing()), set[str]()
        else:
            found = self._ask(known, [queue for queue in order if queue in unsettled], _nothing()) if credit.spent else {}
        if not found and not credit.spent:
            found = self._ask(known, self._worth_asking(order, unsettled), credit) or self._wait(known, order, credit, wait_ms)
        self._unsettled = set(found)
        return found

    def _worth_asking(self, order: list[str], unsettled: set[str]) -> list[str]:
        """Leave out the queues that have nothing to take and nothing to settle: of many, one request tells which these are."""
        if len(order) < MANY:
            return order
        known = {queue["queue"]: queue for queue in self._client.call("queue.list")["queues"]}
        empty = {name for name, queue in known.items() if not (queue["available"] or queue["delayed"])} - unsettled
        for name in empty.intersection(order):
            self._leases[name].counts = _without_available(self._leases[name].counts, known[name])
        return [queue for queue in order if queue not in empty]

    def _ask(self, known: Offsets, order: list[str], credit: Credit) -> dict[str, Offset]:
        """Settle every queue's finished batch; return the unfinished batches, or new ones within the limits."""
        found = {}
        for queue in order:
            until = None if self._until is None else self._until[queue]
            taken = self._leases[queue].advance(known.of(queue), credit.limits(until, exclude=self._until is not None))
            credit.spend(taken.messages, taken.bytes)
            if taken.offset != known.of(queue):
                found[queue] = taken.offset
        return found

    def _wait(self, known: Offsets, order: list[str], credit: Credit, wait_ms: int) -> dict[str, Offset]:
        """Wait at one queue after another, as long as with one queue; the first messages that come are the batch."""
        limits = credit.limits(None, exclude=False, wait_ms=SLICE_MS)
        for _ in range(wait_ms // SLICE_MS):
            queue = order[self._waits % len(order)]
            self._waits += 1
            taken = self._leases[queue].advance(known.of(queue), limits)
            if taken.offset != known.of(queue):
                credit.spend(taken.messages, taken.bytes)
                return {queue: taken.offset}
        return {}

    def _order(self, known: Offsets, fresh: bool) -> list[str]:
        first = known.turn % len(self._queues)
        order = [*self._queues[first:], *self._queues[:first]]
        if fresh and self._options["lease"] is not None and not any(lease.taken_up for lease in self._leases.values()):
            found = standings(self._client)
            order.sort(key=lambda queue: found.get(known.of(queue).lease, Standing()))
        return order

    # --- Who the query is ----------------------------------------------------------------------------------------------

    def _enter(self, offset: Offsets | None) -> Offsets:
        """Return the complete offset of this planner's query. Raises WrongOffset for contradictions."""
        known = self._known or self._begin(offset)
        if offset is not None:
            check_same(offset, known)
            self._check_queues(offset)
        entered = known._replace(turn=0, batches=(), signs=()) if offset is None else offset
        entered = entered.with_each({queue: entered.of(queue) for queue in self._queues})
        # All that have begun are taken up before anything else: whoever read with this checkpoint before is then refused
        # everywhere, and a checkpoint of an earlier run is before a queue that it has not read yet begins again.
        for queue in self._begun(entered):
            if not self._leases[queue].taken_up:
                self._leases[queue].plan(entered.of(queue), entered.of(queue))
        return entered

    def _begin(self, offset: Offsets | None) -> Offsets:
        broker = self.identity().broker
        if offset is None:
            fresh: Offset = begun(self._options, broker)
            offset = Offsets(fresh.broker, fresh.lease, fresh.run, 0, ())
        check_names(self._options, broker, offset)
        self._leases = {
            queue: Lease(self._options, queue, self._client, self._renewals, offset.of(queue), self._first)
            for queue in self._queues
        }
        self._known = offset
        return offset

    def _first(self) -> Lease | None:
        """Return the lease that tells the broker whether another planner has taken up this query's leases."""
        if self._head is None:
            self._head = next((lease for lease in self._leases.values() if lease.taken_up), None)
        return self._head

    def _begun(self, known: Offsets) -> list[str]:
        return [queue for queue in self._queues if known.of(queue).batch]

    def _check_queues(self, offset: Offsets) -> None:
        gone = [queue for queue, _ in offset.batches if queue not in self._queues]
        if gone:
            raise WrongOffset(
                f"the checkpoint reads queue {gone[0]!r} too, which the option queue does not name any longer: put it back"
                " (queues can be added under a checkpoint, not taken away), or start with a new checkpoint and another `lease`"
            )


def _nothing() -> Credit:
    """Return the credit of who only settles, and looks for unfinished batches."""
    return Credit(0, 0)


def _without_available(counts: dict[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Bring a queue's counts up to date by what `queue.list` says of it."""
    if not counts:
        return counts
    oldest = counts["oldestSeconds"] if now["acquired"] else None
    return {**counts, "available": 0, "oldestSeconds": oldest, "inFlight": now["acquired"], "bytes": now["bytes"]}
