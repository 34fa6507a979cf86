"""The consumer of queues on a foreign broker: a trigger is one batch or several, each a file of the spool.

The order of steps makes a batch the same after any crash:

1. Receive messages.
2. Write their keys, then the messages. Both are durable.
3. Accept the messages at the broker. With `settle=committed` this waits until Spark has committed the batch.
4. Name the file in the offset.

After a crash before the end of step 2, the broker sends the messages again. After a later crash, the file is the batch, and
messages that come again are recognised by their keys.

If triggers have no limit, a thread (`write_ahead`) takes the same steps while Spark works. The next trigger takes all its files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ...broker_core.errors import InvalidOption, PeerError, PenstockError, StorageError, WrongPort
from ..backoff import RECONNECT_S, Patience, answered
from ..identity import Identity
from ..offset import SpoolOffset, parse_spool
from ..options import Options
from ..stream.credit import Credit
from ..stream.lease import LeaseState
from . import batches
from .arrivals import ArrivalGroup, DeliveryIds
from .intake import FILE_BYTES, FILE_ROWS, GATHER_S, QUIET_S, WAITING_BYTES, WAITING_ROWS, Gather, Intake
from .partition import SpoolPartition
from .recognition import copies, keys_of
from .spool import Spool
from .window import Window
from .write_ahead import Ahead

log = logging.getLogger("penstock")

SPOOL_S = 30.0  # for which a spool that cannot be written is tried again, before the query fails
#: Silence after an empty drain before an `availableNow` run ends. A broker returns messages of an earlier consumer only when it
#: notices its end. Artemis sometimes answers a drain of a paged queue 0.01 to 0.34 seconds before its last messages.
EMPTY_S = 0.5
ENDING_QUIET_S, ENDING_S = 0.1, 3.0  # `QUIET_S` and `GATHER_S` of such a run: its first messages are not urgent


class _Batch(NamedTuple):
    rows: batches.Rows
    keys: tuple[Any, Any] | None
    deliveries: list[DeliveryIds]


class _Size(NamedTuple):
    rows: int
    octets: int

    @property
    def is_full(self) -> bool:
        return self.rows >= FILE_ROWS or self.octets >= FILE_BYTES // 2  # a file ends before the message that exceeds it


class ForeignConsumer:
    """A `BrokerConsumer`. Without leases, its lease state refuses nothing."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._queues: tuple[str, ...] = tuple(sorted(options["queue"]))
        window = Window(options["dedupeWindow"]) if options["dedupe"] == "messageId" else None
        self._spool = Spool(options["spool"], window, fail_on_data_loss=options["failOnDataLoss"])
        self._intake = Intake(options.access, self._queues, readers=options["minReaders"], selector=options["selector"])
        self._late = options["settle"] == "committed"
        self._cut: _Batch | None = None
        self._unsettled: dict[int, list[DeliveryIds]] = {}
        self._ending = self._ended = self._once = self._beginning = False
        self._connecting = True  # until the broker was away
        self._repeated = [0] * len(self._queues)
        self._sizes: dict[int, _Size] = {}
        self._returned = 0
        self._refused = False  # the spool has refused a file
        self._first = True
        self._unlimited = options["maxMessagesPerTrigger"] is None and options["maxBytesPerTrigger"] is None
        self._ahead = Ahead(self._await_file, self._write_ahead)

    def identity(self) -> Identity:
        return Identity(self._spool.identity(), "")

    def lease_state(self) -> LeaseState:
        return LeaseState()

    def has_begun(self) -> bool:
        return False  # `advance` refuses a spool that another query uses

    @property
    def is_busy(self) -> bool:
        """True if a run that ends waits for a drain, for a batch to fill, or for the first connection."""
        return self._drains and (not self._beginning or self._connecting) and self._intake.away is None

    @property
    def _drains(self) -> bool:
        """True if a trigger without messages asks the broker for more, because no usual trigger follows."""
        return self._ending or self._once

    def fix_tail(self) -> None:
        """The run ends when the broker has no messages for a moment."""
        self._ending = True

    def advance(self, start: Mapping[str, Any], *, wait_ms: int, credit: Credit, once: bool = False) -> dict[str, Any]:
        offset = parse_spool(start)
        self._once = once
        with self._ahead.turn():
            self._spool.enter(offset)
            self._settle(offset.batch)
            self._returned = offset.batch
            last = self._spool.after(offset.batch)
            if last is None:
                self._begin(0.0 if offset.is_initial else RECONNECT_S)  # url or queue of a new query may be wrong
                if self._ended or credit.spent or not self._receive(wait_ms, credit):
                    if self._ended:
                        self._intake.flush()  # this may be the planner's last call
                    return dict(start)
                last = self._spool.next_number(offset.batch)
                size = self._write(last)
                credit.spend(*size)
            if self._unlimited:
                self._ahead.begin()
                last = self._last_of_trigger(last, credit)
            if self._ending and not self._late and not self._intake.waiting:
                self._intake.ask_drain()
            manifests = self._spool.manifests(offset.batch, last)
            self._returned = last
        return SpoolOffset(self._spool.id, last, manifests).to_json()

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[SpoolPartition]:
        finished, last = parse_spool(start), parse_spool(end)
        if finished.batch == last.batch:
            return []
        rows, least = self._options["maxMessagesPerPartition"], self._options["minPartitions"]
        with self._ahead.turn():
            self._spool.enter(last)
            return self._spool.plan(finished.batch, last.batch, rows, least, dict(last.manifests))

    def settle(self, end: Mapping[str, Any]) -> None:
        offset = parse_spool(end)
        if not offset.is_initial:
            with self._ahead.turn():
                self._spool.enter(offset)
                self._settle(offset.batch)

    def counts(self) -> dict[str, Any]:
        away = self._intake.away
        common = {"waiting": self._intake.waiting, "setAside": self._spool.set_aside, "lostConnections": self._intake.lost}
        rows = zip(self._queues, self._intake.received, self._repeated, strict=True)
        counts: dict[str, Any] = {
            queue: {"received": received, "repeated": repeated, **common} for queue, received, repeated in rows
        }
        return counts if away is None else {**counts, "away": str(away)}

    def close(self) -> None:
        self._ahead.stop(self._intake.enough.set)
        self._intake.close()

    # --- A trigger -----------------------------------------------------------------------------------------------------------

    def _settle(self, batch: int) -> None:
        for number in [number for number in self._unsettled if number <= batch]:
            self._intake.accept(self._unsettled.pop(number))
        self._sizes = {number: size for number, size in self._sizes.items() if number > batch}
        self._spool.settle(batch)

    def _begin(self, seconds: float) -> None:
        patience = Patience(seconds)
        self._beginning = True
        while self._beginning:
            try:
                self._intake.start()
                self._beginning = False
            except (InvalidOption, WrongPort):
                raise  # permanent, unlike a refusal by the broker, which may be an InvalidRequest
            except PenstockError as error:
                self._connecting = self._connecting and not isinstance(error, PeerError)
                patience.wait(error)

    def _receive(self, wait_ms: int, credit: Credit) -> bool:
        """Take new messages into `_cut`, within the trigger's limits. False without any."""
        self._take(0.0 if self._ending else wait_ms / 1000, credit)
        alone = credit.limits(None, exclude=False).alone
        while self._cut is None and self._drains:
            before = sum(self._intake.received)
            silent_s = self._intake.silent_s
            if silent_s is None and not self._intake.waiting:
                self._drain()
            self._take(max(0.0, EMPTY_S - (silent_s or 0.0)), credit)
            if self._cut is None and self._intake.waiting and not alone:
                break  # it exceeds the bytes that another broker has left of this trigger
            if self._cut is None and sum(self._intake.received) == before:  # else only repeated messages came
                self._ended = self._ending
                break
        return self._cut is not None

    def _drain(self) -> None:
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
        """Take the messages of one file into `_cut`. False if none comes in time, or the next exceeds the credit."""
        if self._cut is not None and not all(self._intake.holds(deliveries) for deliveries in self._cut.deliveries):
            self._cut = None  # the connection was lost before it could be written: the broker sends all of it again
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
        import numpy as np

        message = pa.concat_arrays([group.message for group in groups])
        queues = np.concatenate([group.queues for group in groups])
        times = np.concatenate([group.times for group in groups])
        keys = None
        if self._spool.window is not None:
            all_keys = keys_of(message, queues, self._queues)
            before = self._before(all_keys)
            if before.any():
                new = before == 0
                for queue, count in enumerate(np.bincount(queues[~new], minlength=len(self._queues)).tolist()):
                    self._repeated[queue] += count
                groups = self._settle_repeated(groups, before)
                mask = batches.mask_of(new)
                message, queues, times = message.filter(mask), queues[new], times[new]
                all_keys = all_keys._replace(known=all_keys.known[new], high=all_keys.high[new], low=all_keys.low[new])
            keys = all_keys.high[all_keys.known], all_keys.low[all_keys.known]
        deliveries = [group.settled for group in groups]
        if not len(message):
            return None
        received = batches.array_of(times, batches.TIMESTAMP)
        rows = batches.Rows(message, batches.array_of(queues, pa.int8()), received, self._queues)
        return _Batch(rows, keys, deliveries)

    def _before(self, keys: Any) -> Any:
        """Return the earlier batch of each message; 0: new, -1: a second copy among these."""
        assert self._spool.window is not None
        before = self._spool.window.find(keys.high, keys.low)
        before[copies(keys) & (before == 0)] = -1
        before[~keys.known] = 0
        return before

    def _settle_repeated(self, groups: Sequence[ArrivalGroup], before: Any) -> list[ArrivalGroup]:
        """Accept repeated messages. With `settle=committed`, they wait for Spark like their batch."""
        import numpy as np

        rest, row = [], 0
        for group in groups:
            batch_of = before[row : row + len(group.ids)]
            row += len(group.ids)
            for batch in np.unique(batch_of[batch_of > 0]).tolist():
                again = DeliveryIds(group.connection, group.ids[batch_of == batch])
                if self._late and batch > self._spool.committed:
                    held = self._unsettled.setdefault(batch, [])
                    if held and held[0].connection != again.connection:
                        held.clear()  # of a lost connection
                    held.append(again)
                else:
                    self._intake.accept([again])
            rest.append(group._replace(ids=group.ids[batch_of <= 0]))  # a copy of a new message is settled with it
        return rest

    def _last_of_trigger(self, batch: int, credit: Credit) -> int:
        # The first trigger does not wait: files are written ahead while Spark starts its workers.
        until = time.monotonic() + (0.0 if self._first else self._gather.most_s)
        self._first = False
        rows = octets = 0
        while True:
            size = self._size(batch)
            rows, octets = rows + size.rows, octets + size.octets
            if rows >= WAITING_ROWS or octets >= WAITING_BYTES:
                return batch
            if batch + 1 not in self._spool.files and not (size.is_full and self._write_more(batch + 1, until, credit)):
                return batch
            batch += 1

    def _size(self, number: int) -> _Size:
        if number not in self._sizes:
            self._sizes[number] = _Size(*self._spool.size(number))
        return self._sizes[number]

    def _write_more(self, number: int, until: float, credit: Credit) -> bool:
        """False if no messages come in time, or the spool refuses them: Spark may make room."""
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
            self._intake.enough.set()
            return False
        return True

    def _await_file(self) -> None:
        if self._cut is None:
            self._intake.enough.wait()

    def _write_ahead(self) -> bool:
        """False if the planner has to go first."""
        sizes = [size for number, size in self._sizes.items() if number > self._returned]
        if sum(size.rows for size in sizes) >= WAITING_ROWS or sum(size.octets for size in sizes) >= WAITING_BYTES:
            return False
        if self._ended or not self._may_wait_for_spark():
            return False
        if self._cut is None and not self._intake.enough.is_set():
            return True
        try:
            if self._take(0.0, Credit(None, None)):
                self._put(self._spool.next_number(0))
        except PenstockError as error:
            if _may_pass(error):
                self._refuse(error)
            return False  # the next trigger reports a permanent error
        return True

    def _may_wait_for_spark(self) -> bool:
        """True if another file fits the window with Spark's batches: a lost connection brings all of them again."""
        window = self._options["dedupeWindow"] if self._late and self._spool.window is not None else None
        return window is None or sum(size.rows for size in self._sizes.values()) + FILE_ROWS <= window

    def _refuse(self, error: PenstockError) -> None:
        if not self._refused:
            self._refused = True
            log.warning("no file is written while Spark works on a batch, and it is tried again: %s", error)

    def _write(self, number: int) -> _Size:
        return answered(lambda: self._put(number), SPOOL_S, _may_pass)

    def _put(self, number: int) -> _Size:
        """Write the messages. Accept them, or keep their deliveries until Spark has committed."""
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
    return isinstance(error, StorageError) or error.code == "DISK_FULL"
