"""The consumer of queues on a broker that is no Penstock: a trigger is one batch, one file of the spool.

The order of steps makes a batch the same after any crash: receive; write the keys, then the messages, both durable; accept at
the broker; name the file in the offset. With `settle=committed` the broker hears of it only when Spark has committed the batch. A
crash before the file is there leaves nothing but what the broker sends again; after it, the file is the batch, and what the
broker sends again is recognised by its key.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa

from ...broker_core.errors import PeerError, PenstockError, StorageError
from ...broker_core.messages import conversion
from ..backoff import RECONNECT_S, Patience
from ..brokers.credit import Credit
from ..identity import Identity
from ..options import Options
from . import batches
from .arrivals import Group, Settled
from .intake import WAITING_BYTES, Intake
from .offset import SpoolOffset, parse_spooled
from .partition import SpoolPartition
from .spool import ASIDE, Spool
from .window import Window

#: Seconds for which a spool that cannot be written is tried again, before the query fails.
SPOOL_S = 30.0
#: Seconds in which nothing comes after a drain that found nothing, before an `availableNow` run ends: a broker puts back what an
#: earlier consumer had when it notices that this one is gone.
EMPTY_S = 0.5


class _Batch(NamedTuple):
    """A batch that is to be written, and the deliveries that it settles: `at_once` are of messages that came before."""

    rows: batches.Rows
    keys: tuple[Any, Any] | None
    deliveries: list[Settled]


class ForeignConsumer:
    """Consumer of one queue or several on a broker that is no Penstock. See `connector.consumer.Consumer`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._queues: tuple[str, ...] = tuple(sorted(options["queue"]))
        window = Window(options["dedupeWindow"]) if options["dedupe"] == "messageId" else None
        self._spool = Spool(options["spool"], window, fail_on_data_loss=options["failOnDataLoss"])
        self._intake = Intake(options.access, self._queues, readers=options["minReaders"], selector=options["selector"])
        self._late = options["settle"] == "committed"
        self._cut: _Batch | None = None  # received, and not in the spool yet
        self._unsettled: dict[int, list[Settled]] = {}
        self._ending = self._ended = self._looked = False
        self._repeated = [0] * len(self._queues)
        # A copy in another queue is another message: an exchange has sent it to both.
        self._salts = [int.from_bytes(blake2b(queue.encode(), digest_size=8).digest(), "big") for queue in self._queues]
        self._aside = 0

    def identity(self) -> Identity:
        """Return the id of the spool, by which offsets name this broker: it tells none of its own. Raises PenstockError."""
        return Identity(self._spool.identity(), "")

    def fix_tail(self) -> None:
        """End when the broker has nothing for a moment: an `availableNow` run begins."""
        self._ending = True

    def advance(self, start: Mapping[str, Any], *, wait_ms: int, credit: Credit) -> dict[str, Any]:
        """Settle up to `start`; return the offset of the batch that is in the spool already, or of a new one."""
        offset = parse_spooled(start)
        self._spool.enter(offset)
        self._settle(offset.batch)
        there = self._spool.after(offset.batch)
        if there is None:
            self._begin(0.0 if offset.initial else RECONNECT_S)
            if self._ended or credit.spent or not self._receive(wait_ms, credit):
                if self._ended:
                    self._intake.flush()  # nothing else is asked of this planner, perhaps
                return dict(start)
        if there is None:
            there = self._spool.next_number(offset.batch)
            message = self._write(there)
            credit.spend(len(message), message.nbytes)
        return SpoolOffset(self._spool.id, there).to_json()

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[SpoolPartition]:
        """Plan the tasks of the batch between two offsets; none where they are the same."""
        finished, limits = parse_spooled(start), parse_spooled(end)
        if finished.batch == limits.batch:
            return []
        self._spool.enter(limits)
        rows, least = self._options["maxMessagesPerPartition"], self._options["minPartitions"]
        return self._spool.plan(finished.batch, limits.batch, rows, least)

    def settle(self, end: Mapping[str, Any]) -> None:
        """Settle up to `end`; nothing for the initial offset."""
        offset = parse_spooled(end)
        if not offset.initial:
            self._spool.enter(offset)
            self._settle(offset.batch)

    def counts(self) -> dict[str, Any]:
        """Return the counts of each queue since this planner began, and why the broker cannot be reached."""
        away = self._intake.away
        rest = {"waiting": self._intake.waiting, "setAside": self._aside, "lostConnections": self._intake.lost}
        each = zip(self._queues, self._intake.received, self._repeated, strict=True)
        found: dict[str, Any] = {
            queue: {"received": received, "repeated": repeated, **rest} for queue, received, repeated in each
        }
        return found if away is None else {**found, "away": str(away)}

    def close(self) -> None:
        """Close the connection. What was not accepted returns to its queue."""
        self._intake.close()

    # --- A trigger -----------------------------------------------------------------------------------------------------------

    def _settle(self, batch: int) -> None:
        """Accept, then delete, what Spark has committed."""
        for number in [number for number in self._unsettled if number <= batch]:
            self._intake.accept(self._unsettled.pop(number))
        if self._spool.settle(batch):
            self._aside = sum(int(name.partition(".")[0].split("-")[3]) for name in self._spool.store.names(ASIDE))

    def _begin(self, seconds: float) -> None:
        """Begin to receive, if it has not begun. At a broker that is away it is tried for so many seconds."""
        patience = Patience(seconds)
        while True:
            try:
                self._intake.start()
                return
            except PeerError as error:
                patience.wait(error)

    def _receive(self, wait_ms: int, credit: Credit) -> bool:
        """Have a batch of new messages in `_cut`, within the trigger's limits. False if there is none."""
        if self._cut is not None and not all(self._intake.holds(settled) for settled in self._cut.deliveries):
            self._cut = None  # it could not be written, and the connection was lost since: the broker sends all of it again
        if self._cut is None:
            self._take(0.0 if self._ending else wait_ms / 1000, credit)
        while self._cut is None and (self._ending or not (wait_ms or self._looked)):
            self._looked = True
            before = sum(self._intake.received)
            self._drain()
            self._take(EMPTY_S, credit)
            if self._cut is None and sum(self._intake.received) == before:  # else all that came had come before
                self._ended = self._ending
                break
        return self._cut is not None

    def _drain(self) -> None:
        patience = Patience(SPOOL_S)
        while not self._intake.drain():
            away = self._intake.away
            if away is not None:
                patience.wait(away)

    def _take(self, wait_s: float, credit: Credit) -> None:
        limits = credit.limits(None, exclude=False)
        rows = min(limits.messages or batches.MOST_ROWS, batches.MOST_ROWS)
        size = min(limits.bytes or WAITING_BYTES, WAITING_BYTES)
        until = time.monotonic() + wait_s
        while self._cut is None:
            groups = self._intake.take(rows, size, max(0.0, until - time.monotonic()))
            if not groups:
                return
            self._cut = self._batch_of(groups)

    def _batch_of(self, groups: Sequence[Group]) -> _Batch | None:
        """Make columns of what came, without what came before. None if all of it did."""
        import numpy as np

        message = pa.concat_arrays([group.message for group in groups])
        counts = [len(group.ids) for group in groups]
        queues = np.repeat(np.array([group.queue for group in groups], np.int8), counts)
        times = np.repeat(np.array([group.time for group in groups], np.int64), counts)
        keys = None
        if self._spool.window is not None:
            found = conversion.keys(message)
            found = found._replace(one=found.one ^ np.array(self._salts, np.uint64)[queues])
            before = self._before(found)
            if before.any():
                new = before == 0
                for queue, count in enumerate(np.bincount(queues[~new], minlength=len(self._queues)).tolist()):
                    self._repeated[queue] += count
                groups = self._settle_repeated(groups, before)
                mask = pa.array(new)
                message, queues, times = message.filter(mask), queues[new], times[new]
                found = found._replace(known=found.known[new], one=found.one[new], other=found.other[new])
            keys = found.one[found.known], found.other[found.known]
        deliveries = [group.settled for group in groups]
        if not len(message):
            return None
        rows = batches.Rows(message, pa.array(queues), pa.array(times).view(batches.TIMESTAMP), self._queues)
        return _Batch(rows, keys, deliveries)

    def _before(self, keys: Any) -> Any:
        """Return the batch in which each message came before: 0 for a new one, -1 for a second copy among these."""
        import numpy as np

        assert self._spool.window is not None
        before = self._spool.window.find(keys.one, keys.other)
        _, first = np.unique(keys.one, return_index=True)
        again = np.ones(len(before), np.bool_)
        again[first] = False
        before[again & (before == 0)] = -1
        before[~keys.known] = 0
        return before

    def _settle_repeated(self, groups: Sequence[Group], before: Any) -> list[Group]:
        """Accept what came before; return the rest. With `settle=committed`, a batch's copies wait for Spark as it does."""
        import numpy as np

        found, row = [], 0
        for group in groups:
            batch_of = before[row : row + len(group.ids)]
            row += len(group.ids)
            for batch in np.unique(batch_of[batch_of > 0]).tolist():
                again = Settled(group.connection, group.ids[batch_of == batch])
                if batch in self._unsettled:
                    self._unsettled[batch].append(again)
                elif self._late and batch > self._spool.committed:
                    self._unsettled[batch] = [again]
                else:
                    self._intake.accept([again])
            found.append(group._replace(ids=group.ids[batch_of <= 0]))  # new, or a copy of one that is: settled with it
        return found

    def _write(self, number: int) -> pa.Array:
        """Write what was received as a batch, and settle it, or keep its deliveries until Spark has committed. Return it."""
        assert self._cut is not None
        patience = Patience(SPOOL_S)
        while True:
            try:
                self._spool.put(number, self._cut.rows, self._cut.keys, self._options["maxMessagesPerPartition"])
                break
            except PenstockError as error:
                if not isinstance(error, StorageError) and error.code != "DISK_FULL":
                    raise
                patience.wait(error)
        message, deliveries, self._cut = self._cut.rows.message, self._cut.deliveries, None
        if self._late:
            self._unsettled[number] = deliveries
        else:
            self._intake.accept(deliveries)
        return message
