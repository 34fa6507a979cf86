"""The consumer of queues at one Penstock broker, with a lease for each.

With one queue a trigger is one request. Several queues are asked one after another, each for the rest of the limits.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ...broker_core.errors import WrongOffset
from ..access import BrokerAccess
from ..identity import Identity, identity_of
from ..offset import NO_BATCH, LeaseBatch, QueuesOffset, parse_queues
from ..options import RANDOM_LEASE, Options
from ..task.partition import LeasePartition
from .credit import Credit
from .fan_out import FanOut, no_credit, rotated
from .lease import LeaseState, PlannerLease, Renewals, lease_states

SLICE_MS = 20  # an idle query waits at one queue after another
MANY = 8  # from this number of queues on, a trigger first asks which of them have messages


class QueuesConsumer(FanOut[QueuesOffset, str, LeaseBatch]):
    """Queues that are added to a query with a checkpoint begin at batch 0. None can be removed."""

    def __init__(self, options: Options, access: BrokerAccess) -> None:
        self._options = options
        self._queues: tuple[str, ...] = tuple(sorted(options["queue"]))
        self._client = access.client()
        self._renewals = Renewals()
        self._names: QueuesOffset | None = None
        self._leases: dict[str, PlannerLease] = {}
        self._head: PlannerLease | None = None
        self._ends: dict[str, int] | None = None
        self._unsettled: set[str] = set()
        self._waits = 0

    def identity(self) -> Identity:
        return identity_of(self._client)

    def lease_state(self) -> LeaseState:
        states = lease_states(self._client)
        names = self._new_names("")
        return min(states.get(names.lease_of(queue), LeaseState()) for queue in self._queues)

    def has_begun(self) -> bool:
        return self._options["lease"] is not None and not self.lease_state().begins

    @property
    def is_busy(self) -> bool:
        return False

    def fix_tail(self) -> None:
        self._ends = {queue: int(self._client.call("queue.stat", queue=queue)["nextSequence"]) for queue in self._queues}

    def advance(self, start: Mapping[str, Any], *, wait_ms: int, credit: Credit, once: bool = False) -> dict[str, Any]:
        known = self._enter(start)
        wait_ms = wait_ms if self._ends is None else 0
        if len(self._queues) == 1:  # a lease returns an unfinished batch to any request
            taken = self._ask(known, self._queues, credit, wait_ms)
        else:
            credit.shared = True
            taken = self._next(known, credit, wait_ms)
        self._answered = known.following(taken) if taken else known
        self._unsettled = set(taken)
        return self._answered.to_json() if taken else dict(start)

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[LeasePartition]:
        before = parse_queues(start)
        if parse_queues(end) is None:
            return []
        until = self._enter(end)
        if before is not None:
            self._check_offset(before, until)
        batches = {queue: (NO_BATCH if before is None else before.of(queue), until.of(queue)) for queue in self._queues}
        changed = [queue for queue, (first, last) in batches.items() if first.number != last.number]
        least = -(-self._options["minPartitions"] // max(1, len(changed)))
        return [part for queue in changed for part in self._leases[queue].plan(*batches[queue], least)]

    def settle(self, end: Mapping[str, Any]) -> None:
        if parse_queues(end) is not None:
            for queue, batch in self._enter(end).batches.items():
                self._leases[queue].settle(batch)

    def counts(self) -> dict[str, Any]:
        return {queue: lease.counts for queue, lease in self._leases.items()}

    def close(self) -> None:
        self._renewals.stop()
        self._client.close()

    # --- A trigger -----------------------------------------------------------------------------------------------------

    def _unfinished(self, known: QueuesOffset) -> dict[str, LeaseBatch]:
        self._unsettled = set()
        return self._ask(known, self._order(known), no_credit())

    def _arrived(self, known: QueuesOffset, credit: Credit, is_new: bool) -> dict[str, LeaseBatch]:
        if is_new or not credit.spent or not self._unsettled:
            return {}
        return self._ask(known, [queue for queue in self._order(known) if queue in self._unsettled], no_credit())

    def _acquire(self, known: QueuesOffset, credit: Credit, wait_ms: int) -> dict[str, LeaseBatch]:
        order = self._order(known)
        return self._ask(known, self._worth_asking(order), credit) or self._wait(known, order, credit, wait_ms)

    def _order(self, known: QueuesOffset) -> list[str]:
        order = rotated(self._queues, known.rotation)
        if not known.batches and self._options["lease"] is not None and self._head_lease() is None:
            # A lease that refuses has to be asked before another lease is taken from a query that lives.
            states = lease_states(self._client)
            order.sort(key=lambda queue: states.get(known.lease_of(queue), LeaseState()))
        return order

    def _worth_asking(self, order: list[str]) -> list[str]:
        """Leave out queues with nothing to take or settle, if there are many."""
        if len(order) < MANY:
            return order
        listed = {queue["queue"]: queue for queue in self._client.call("queue.list")["queues"]}
        empty = {name for name, queue in listed.items() if not (queue["available"] or queue["delayed"])} - self._unsettled
        for name in empty.intersection(order):
            self._leases[name].counts = _without_available(self._leases[name].counts, listed[name])
        return [queue for queue in order if queue not in empty]

    def _ask(self, known: QueuesOffset, order: Sequence[str], credit: Credit, wait_ms: int = 0) -> dict[str, LeaseBatch]:
        """Settle every queue's finished batch; return unfinished batches, or new ones within the limits."""
        taken: dict[str, LeaseBatch] = {}
        least = self._options["minPartitions"] if len(self._queues) == 1 else 1
        for queue in order:
            end = None if self._ends is None else self._ends[queue]
            limits = credit.limits(end, exclude=self._ends is not None, wait_ms=wait_ms, partitions=least)
            answer = self._leases[queue].advance(known.of(queue), limits)
            credit.spend(answer.messages, answer.bytes)
            if answer.batch != known.of(queue):
                taken[queue] = answer.batch
        return taken

    def _wait(self, known: QueuesOffset, order: list[str], credit: Credit, wait_ms: int) -> dict[str, LeaseBatch]:
        for _ in range(wait_ms // SLICE_MS):
            queue = order[self._waits % len(order)]
            self._waits += 1
            if taken := self._ask(known, [queue], credit, SLICE_MS):
                return taken
        return {}

    # --- Names of the query --------------------------------------------------------------------------------------------

    def _enter(self, data: Mapping[str, Any]) -> QueuesOffset:
        """The initial offset gets the names of this query. Raises WrongOffset for contradictions."""
        offset = parse_queues(data)
        names = self._names or self._begin(offset)
        if offset is None:
            return names
        self._check_offset(offset, names)
        if len(self._queues) > 1:
            # First, so that another planner with this checkpoint is refused at every queue, and an older checkpoint before a
            # queue that it does not contain begins again.
            for queue, batch in offset.batches.items():
                if not self._leases[queue].is_taken_up:
                    self._leases[queue].plan(batch, batch)
        return offset

    def _begin(self, offset: QueuesOffset | None) -> QueuesOffset:
        broker = self.identity().broker
        names = self._new_names(broker) if offset is None else offset._replace(rotation=0, batches={})
        self._check_names(names, broker)
        self._leases = {
            queue: PlannerLease(self._options, queue, self._client, self._renewals, names, self._head_lease)
            for queue in self._queues
        }
        self._names = names
        return names

    def _new_names(self, broker: str) -> QueuesOffset:
        lease = self._options["lease"] or f"q-{secrets.token_hex(16)}"
        first_queue = self._queues[0] if len(self._queues) == 1 else None
        return QueuesOffset(broker, lease, secrets.token_hex(8), 0, {}, first_queue)

    def _head_lease(self) -> PlannerLease | None:
        """By this lease the broker detects another planner with the query's leases."""
        if self._head is None:
            self._head = next((lease for lease in self._leases.values() if lease.is_taken_up), None)
        return self._head

    def _check_names(self, names: QueuesOffset, broker: str) -> None:
        if names.broker != broker:
            raise WrongOffset(
                f"the checkpoint belongs to broker {names.broker}, but the one at {self._options['url']} is {broker}: point the"
                " option url at the broker (or the data directory) the query began with, or start with a new checkpoint"
            )
        lease = self._options["lease"]
        if lease is not None and lease != names.lease:
            raise WrongOffset(
                f"the checkpoint belongs to lease {names.lease!r}, but the option lease is {lease!r}:"
                " put the option back as it was, or start with a new checkpoint"
            )
        if lease is None and not RANDOM_LEASE.fullmatch(names.lease):
            raise WrongOffset(
                f"the checkpoint belongs to lease {names.lease!r}, but the option lease is not set:"
                " put it back as it was, or start with a new checkpoint"
            )

    def _check_offset(self, offset: QueuesOffset, names: QueuesOffset) -> None:
        if (offset.broker, offset.lease, offset.run) != (names.broker, names.lease, names.run):
            raise WrongOffset(
                f"the offset names lease {offset.lease!r}, run {offset.run}, but this query reads lease {names.lease!r},"
                f" run {names.run}: the checkpoint was changed while the query ran; start the query again"
            )
        missing = next((queue for queue in offset.batches if queue not in self._queues), None)
        if missing is not None:
            raise WrongOffset(
                f"the checkpoint belongs to queue {missing!r}, which the option queue does not name: put it back (queues can be"
                " added under a checkpoint, not removed), or start with a new checkpoint and another `lease`"
            )


def _without_available(counts: dict[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    if not counts:
        return counts
    oldest = counts["oldestSeconds"] if now["acquired"] else None
    return {**counts, "available": 0, "oldestSeconds": oldest, "inFlight": now["acquired"], "bytes": now["bytes"]}
