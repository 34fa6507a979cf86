"""The consumer of queues on a broker that is no Penstock: a trigger is one batch or several, each a file of the spool.

The order of steps makes a batch the same after any crash: receive; write the keys, then the messages, both durable; accept at
the broker; name the file in the offset. With `settle=committed` the broker hears of it only when Spark has committed the batch. A
crash before the file is there leaves nothing but what the broker sends again; after it, the file is the batch, and what the
broker sends again is recognised by its key.

Where triggers have no limit, a thread (`ahead`) writes files by the same steps while Spark works. The next trigger takes all of
them. The first trigger of a new planner takes all files that it finds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ...broker_core.errors import InvalidOption, PeerError, PenstockError, StorageError, WrongPort
from ..backoff import RECONNECT_S, Patience
from ..identity import Identity
from ..offset import SpoolOffset, parse_spool
from ..options import Options
from ..stream.credit import Credit
from ..stream.lease import LeaseState
from . import batches
from .arrivals import ArrivalGroup, Deliveries
from .intake import FILE_BYTES, FILE_ROWS, GATHER_S, QUIET_S, WAITING_BYTES, WAITING_ROWS, Gather, Intake
from .partition import SpoolPartition
from .recognition import copies, keys_of
from .spool import Spool
from .window import Window
from .write_ahead import Ahead

log = logging.getLogger("penstock")

#: Seconds for which a spool that cannot be written is tried again, before the query fails.
SPOOL_S = 30.0
#: Seconds in which nothing comes after a drain that found nothing, before an `availableNow` run ends: a broker puts back what an
#: earlier consumer had when it notices that this one is gone. And Artemis, where a queue is paged, sometimes answers a drain
#: behind thousands of outcomes with nothing although it has more: this came 0.01, 0.24 and 0.34 seconds after the answer.
EMPTY_S = 0.5
#: Seconds as `QUIET_S` and `GATHER_S`, for such a run: nobody waits for its first messages.
ENDING_QUIET_S, ENDING_S = 0.1, 3.0


class _Batch(NamedTuple):
    """A batch that is to be written, and the deliveries that it settles."""

    rows: batches.Rows
    keys: tuple[Any, Any] | None
    deliveries: list[Deliveries]


class _Size(NamedTuple):
    rows: int
    octets: int

    @property
    def full(self) -> bool:
        return self.rows >= FILE_ROWS or self.octets >= FILE_BYTES // 2  # a file ends before the message that goes beyond


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
        self._unsettled: dict[int, list[Deliveries]] = {}
        self._ending = self._ended = self._once = self._beginning = False
        self._connecting = True  # until a broker was away
        self._repeated = [0] * len(self._queues)
        self._sizes: dict[int, _Size] = {}  # of batches that Spark has not committed, once they are known
        self._returned = 0  # the last batch that Spark has been told of
        self._refused = False  # the spool, of what was to be written beside what Spark has
        self._first = True
        self._unlimited = options["maxMessagesPerTrigger"] is None and options["maxBytesPerTrigger"] is None
        self._ahead = Ahead(self._await_file, self._write_ahead)

    def identity(self) -> Identity:
        """Return the id of the spool, by which offsets name this broker: it tells none of its own. Raises PenstockError."""
        return Identity(self._spool.identity(), "")

    def lease_state(self) -> LeaseState:
        """Return a state that refuses nothing: another broker has no leases."""
        return LeaseState()

    @property
    def is_busy(self) -> bool:
        """Say whether a run that ends has a call under way that may take seconds, at a broker that is there: it is asked whether
        that is all, or a batch gathers, or it is connected to for the first time."""
        return self._asks and (not self._beginning or self._connecting) and self._intake.away is None

    @property
    def _asks(self) -> bool:
        """Say whether the broker is asked if that is all, where nothing comes: no other trigger follows, or only such ones."""
        return self._ending or self._once

    def fix_tail(self) -> None:
        """End when the broker has nothing for a moment: an `availableNow` run begins."""
        self._ending = True

    def advance(self, start: Mapping[str, Any], *, wait_ms: int, credit: Credit, once: bool = False) -> dict[str, Any]:
        """Settle up to `start`; return the offset of the batch that is in the spool already, or of a new one."""
        offset = parse_spool(start)
        self._once = once
        with self._ahead.turn():
            self._spool.enter(offset)
            self._settle(offset.batch)
            self._returned = offset.batch
            there = self._spool.after(offset.batch)
            if there is None:
                self._begin(0.0 if offset.is_initial else RECONNECT_S)  # a new query fails at once: its url or queue may be wrong
                if self._ended or credit.spent or not self._receive(wait_ms, credit):
                    if self._ended:
                        self._intake.flush()  # nothing else is asked of this planner, perhaps
                    return dict(start)
                there = self._spool.next_number(offset.batch)
                size = self._write(there)
                credit.spend(*size)
            if self._unlimited:
                self._ahead.begin()
                there = self._several(there, credit)
            if self._ending and not self._late and not self._intake.waiting:
                self._intake.ask_drain()  # that was all, perhaps: it shows while Spark works
            manifests = self._spool.manifests(offset.batch, there)
            self._returned = there
        return SpoolOffset(self._spool.id, there, manifests).to_json()

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[SpoolPartition]:
        """Plan the tasks of the batch between two offsets; none where they are the same."""
        finished, limits = parse_spool(start), parse_spool(end)
        if finished.batch == limits.batch:
            return []
        rows, least = self._options["maxMessagesPerPartition"], self._options["minPartitions"]
        with self._ahead.turn():
            self._spool.enter(limits)
            return self._spool.plan(finished.batch, limits.batch, rows, least, dict(limits.manifests))

    def settle(self, end: Mapping[str, Any]) -> None:
        """Settle up to `end`; nothing for the initial offset."""
        offset = parse_spool(end)
        if not offset.is_initial:
            with self._ahead.turn():
                self._spool.enter(offset)
                self._settle(offset.batch)

    def counts(self) -> dict[str, Any]:
        """Return the counts of each queue since this planner began, and why the broker cannot be reached."""
        away = self._intake.away
        rest = {"waiting": self._intake.waiting, "setAside": self._spool.set_aside, "lostConnections": self._intake.lost}
        each = zip(self._queues, self._intake.received, self._repeated, strict=True)
        found: dict[str, Any] = {
            queue: {"received": received, "repeated": repeated, **rest} for queue, received, repeated in each
        }
        return found if away is None else {**found, "away": str(away)}

    def close(self) -> None:
        """Close the connection. What was not accepted returns to its queue."""
        self._ahead.stop(self._intake.wake_waiting)
        self._intake.close()

    # --- A trigger -----------------------------------------------------------------------------------------------------------

    def _settle(self, batch: int) -> None:
        """Accept, then delete, what Spark has committed."""
        for number in [number for number in self._unsettled if number <= batch]:
            self._intake.accept(self._unsettled.pop(number))
        self._sizes = {number: size for number, size in self._sizes.items() if number > batch}
        self._spool.settle(batch)

    def _begin(self, seconds: float) -> None:
        """Begin to receive, if it has not begun. At a broker that is away, or refuses, it is tried for so many seconds."""
        patience = Patience(seconds)
        self._beginning = True
        while self._beginning:
            try:
                self._intake.start()
                self._beginning = False
            except (InvalidOption, WrongPort):
                raise  # no wait changes it; a refusal of the broker's own, which may be an InvalidRequest, may pass
            except PenstockError as error:  # a refusal, too: see `Intake`
                self._connecting = self._connecting and not isinstance(error, PeerError)
                patience.wait(error)

    def _receive(self, wait_ms: int, credit: Credit) -> bool:
        """Have a batch of new messages in `_cut`, within the trigger's limits. False if there is none."""
        self._take(0.0 if self._ending else wait_ms / 1000, credit)
        alone = credit.limits(None, exclude=False).alone
        while self._cut is None and self._asks:
            before = sum(self._intake.received)
            silent_s = self._intake.silent_s
            if silent_s is None and not self._intake.waiting:
                self._drain()
            self._take(max(0.0, EMPTY_S - (silent_s or 0.0)), credit)
            if self._cut is None and self._intake.waiting and not alone:
                break  # it is larger than what another broker has left of the trigger's bytes, and the next trigger's
            if self._cut is None and sum(self._intake.received) == before:  # else all that came had come before
                self._ended = self._ending
                break
        return self._cut is not None

    def _drain(self) -> None:
        """Have the broker send what it has. One that is away is waited for as at a start: such a run is to end."""
        patience: Patience | None = None
        while not self._intake.drain():
            away = self._intake.away
            if away is None:
                patience = None
            else:
                patience = patience or Patience(RECONNECT_S)
                patience.wait(away)

    @property
    def _gather(self) -> Gather:
        return Gather(ENDING_QUIET_S, ENDING_S) if self._ending else Gather(QUIET_S, GATHER_S)

    def _take(self, wait_s: float, credit: Credit, gather: Gather | None = None) -> bool:
        """Have what came in `_cut`, as one file. False if nothing new comes in time, or what waits is larger than is left."""
        if self._cut is not None and not all(self._intake.holds(settled) for settled in self._cut.deliveries):
            self._cut = None  # it could not be written, and the connection was lost since: the broker sends all of it again
        limits = credit.limits(None, exclude=False)
        most_rows, most_bytes = (FILE_ROWS, FILE_BYTES) if self._unlimited else (batches.MOST_ROWS, WAITING_BYTES)
        rows, size = min(limits.messages or most_rows, most_rows), min(limits.bytes or most_bytes, most_bytes)
        until = time.monotonic() + wait_s
        while self._cut is None:
            left = max(0.0, until - time.monotonic())
            groups = self._intake.take(rows, size, left, gather or self._gather, alone=limits.alone)
            if not groups:
                return False
            self._cut = self._batch_of(groups)
        return True

    def _batch_of(self, groups: Sequence[ArrivalGroup]) -> _Batch | None:
        """Make columns of what came, without what came before. None if all of it did."""
        import numpy as np

        message = pa.concat_arrays([group.message for group in groups])
        queues = np.concatenate([group.queues for group in groups])
        times = np.concatenate([group.times for group in groups])
        keys = None
        if self._spool.window is not None:
            found = keys_of(message, queues, self._queues)
            before = self._before(found)
            if before.any():
                new = before == 0
                for queue, count in enumerate(np.bincount(queues[~new], minlength=len(self._queues)).tolist()):
                    self._repeated[queue] += count
                groups = self._settle_repeated(groups, before)
                mask = batches.mask_of(new)
                message, queues, times = message.filter(mask), queues[new], times[new]
                found = found._replace(known=found.known[new], one=found.one[new], other=found.other[new])
            keys = found.one[found.known], found.other[found.known]
        deliveries = [group.settled for group in groups]
        if not len(message):
            return None
        received = batches.array_of(times, batches.TIMESTAMP)
        rows = batches.Rows(message, batches.array_of(queues, pa.int8()), received, self._queues)
        return _Batch(rows, keys, deliveries)

    def _before(self, keys: Any) -> Any:
        """Return the batch in which each message came before: 0 for a new one, -1 for a second copy among these."""
        assert self._spool.window is not None
        before = self._spool.window.find(keys.one, keys.other)
        before[copies(keys) & (before == 0)] = -1
        before[~keys.known] = 0
        return before

    def _settle_repeated(self, groups: Sequence[ArrivalGroup], before: Any) -> list[ArrivalGroup]:
        """Accept what came before; return the rest. With `settle=committed`, a batch's copies wait for Spark as it does."""
        import numpy as np

        found, row = [], 0
        for group in groups:
            batch_of = before[row : row + len(group.ids)]
            row += len(group.ids)
            for batch in np.unique(batch_of[batch_of > 0]).tolist():
                again = Deliveries(group.connection, group.ids[batch_of == batch])
                if self._late and batch > self._spool.committed:
                    held = self._unsettled.setdefault(batch, [])
                    if held and held[0].connection != again.connection:
                        held.clear()  # of a lost connection, over which nobody can settle them any more
                    held.append(again)
                else:
                    self._intake.accept([again])
            found.append(group._replace(ids=group.ids[batch_of <= 0]))  # new, or a copy of one that is: settled with it
        return found

    def _several(self, there: int, credit: Credit) -> int:
        """Return the last batch of a trigger that has this one: with what is in files, and what still comes meanwhile."""
        # The first trigger does not wait: Spark starts its workers meanwhile, and files are written ahead.
        until = time.monotonic() + (0.0 if self._first else self._gather.most_s)
        self._first = False
        rows = octets = 0
        while True:
            size = self._size(there)
            rows, octets = rows + size.rows, octets + size.octets
            if rows >= WAITING_ROWS or octets >= WAITING_BYTES:
                return there
            if not self._spool.holds(there + 1) and not (size.full and self._write_more(there + 1, until, credit)):
                return there
            there += 1

    def _size(self, number: int) -> _Size:
        if number not in self._sizes:
            self._sizes[number] = _Size(*self._spool.size(number))  # another planner has written it
        return self._sizes[number]

    def _write_more(self, number: int, until: float, credit: Credit) -> bool:
        """Write what comes until then as a batch, too. False if nothing does, or the spool refuses it: Spark may make room."""
        left = until - time.monotonic()
        if credit.spent or left <= 0 or not self._may_wait_for_spark():
            return False
        if not self._take(min(QUIET_S, left), credit, self._gather._replace(most_s=left)):
            return False
        try:
            credit.spend(*self._put(number))
        except PenstockError as error:
            if not _may_pass(error):
                raise
            self._refuse(error)
            self._intake.wake_waiting()  # for another attempt
            return False
        return True

    def _await_file(self) -> None:
        """Return when there is something to be written."""
        if self._cut is None:
            self._intake.await_file()

    def _write_ahead(self) -> bool:
        """Write what waits as the next batch. False where the planner has to be asked first: it says what is wrong."""
        sizes = [size for number, size in self._sizes.items() if number > self._returned]
        if sum(size.rows for size in sizes) >= WAITING_ROWS or sum(size.octets for size in sizes) >= WAITING_BYTES:
            return False
        if self._ended or not self._may_wait_for_spark():
            return False
        if self._cut is None and not self._intake.has_file:  # the planner has taken it
            return True
        try:
            if self._take(0.0, Credit(None, None)):
                self._put(self._spool.next_number(0))
        except PenstockError as error:
            if _may_pass(error):
                self._refuse(error)
            return False  # what is wrong for good, the next trigger says
        return True

    def _may_wait_for_spark(self) -> bool:
        """Say whether another file may be accepted with what Spark has: a lost connection brings all of it again, to be known
        then."""
        window = self._options["dedupeWindow"] if self._late and self._spool.window is not None else None
        return window is None or sum(size.rows for size in self._sizes.values()) + FILE_ROWS <= window

    def _refuse(self, error: PenstockError) -> None:
        """Log, the first time, why the spool takes no more for now."""
        if not self._refused:
            self._refused = True
            log.warning("nothing is written beside the batch that Spark has, and it is tried again: %s", error)

    def _write(self, number: int) -> _Size:
        """Write what was received as a batch, for as long as it takes. Return its size."""
        patience = Patience(SPOOL_S)
        while True:
            try:
                return self._put(number)
            except PenstockError as error:
                if not _may_pass(error):
                    raise
                patience.wait(error)

    def _put(self, number: int) -> _Size:
        """Write what was received as a batch, and settle it, or keep its deliveries until Spark has committed."""
        assert self._cut is not None
        self._spool.put(number, self._cut.rows, self._cut.keys, self._options["maxMessagesPerPartition"])
        message, deliveries, self._cut = self._cut.rows.message, self._cut.deliveries, None
        self._refused = False
        size = self._sizes[number] = _Size(len(message), message.nbytes)
        if self._late:
            self._unsettled[number] = deliveries
        else:
            self._intake.accept(deliveries)
        return size


def _may_pass(error: PenstockError) -> bool:
    """Say whether a spool that gave this error may be written a little later."""
    return isinstance(error, StorageError) or error.code == "DISK_FULL"
