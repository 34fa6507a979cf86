"""A running broker: one engine state, one journal, one lock, and the clock.

Every plane calls `submit`. Commands are decided and applied under the lock. The reply leaves when the journal is durable up to
the end of the log at the time of the decision. So a power failure undoes no reply.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .. import errors
from ..archive.recorder.recorder import Recorder
from ..engine import commands as c
from ..engine.columns.attributes import Attributes
from ..engine.columns.rowset import BLOCK_BITS
from ..engine.columns.states import ARCHIVED
from ..engine.commands import DeclareExchange, TimeOutTransactions
from ..engine.decide.decision import need_queue
from ..engine.model import admission
from ..engine.model.options import Rules
from ..engine.model.queue import Queue
from ..engine.model.state import packed_columns
from ..journal import Disk, Journal, JournalOptions, LocalDisk
from ..messages.payloads import Payload
from ..reading.recent import Recent
from ..settings.keys import Settings
from ..stores.objects import ObjectStore
from . import allocator, copying, startup
from .alarms import Alarms
from .attributes import attributes_of
from .block_reads import BlockReads
from .blocked_producers import BlockedProducers, WaitingProducer
from .cleaning import Cleaner
from .clock import RunningClock
from .connections import Connections
from .damage import Damage
from .histograms import Histograms
from .history import History
from .journal_usage import CleanerParts, oldest_of
from .locked_view import LockedView
from .matching import SelectorMatcher
from .nodes import Nodes
from .queue_counts import QueueCounts
from .recordings import Recordings
from .ticker import Ticker
from .turn import ArrivalListeners, Turn, TurnParts
from .watch import Watch, Watched, reserve_bytes

if TYPE_CHECKING:
    from typing_extensions import Unpack


__all__ = ["BrokerService", "Turn"]

R = TypeVar("R")

log = logging.getLogger("penstock")

HOUSEKEEPING_S = 1.0  # packing, snapshots
SELDOM_TURNS = 10  # of housekeeping between two returns of free memory
PACKED_PER_TURN = 64  # blocks packed in one turn of housekeeping, which must not delay other callers for long
RESERVE_TIMEOUT_S = 60.0  # how long a sender waits for space in the journal's buffer; a slower disk counts as full
FREE_SPACE_FOR_US = 100_000  # microseconds for which `has_space` uses the last measurement of the disk's free space


class BrokerService(BlockReads):
    """The broker of one data directory: recovers at construction, and serves commands until `close`."""

    def __init__(
        self,
        settings: Settings,
        *,
        disk: Disk | None = None,
        clock: Callable[[], c.Now] | None = None,
        on_failure: Callable[[Exception], None] | None = None,
        store: ObjectStore | None = None,
        archive: bool = False,
    ) -> None:
        """`archive`: record settled messages, as the settings require."""
        policies = startup.policies_of(settings)
        allocator.keep_heaps_short()
        self.settings = settings
        self._clock = clock or RunningClock()
        self._lock = threading.Lock()
        self._arrivals = ArrivalListeners(self._lock)
        self._recent = Recent()
        self.damage = Damage()
        self.archive: str | None = None  # folder or URL of the archive
        self.few_files: str | None = None  # how the limit of open files restricts the broker; for an alarm
        self.listeners: list[str] = []  # addresses, once the planes listen
        self._closing = threading.Event()
        disk = disk or LocalDisk(settings.data)
        try:
            self.journal = _opened(settings, disk, on_failure)
            self.journal.fill_reserve(reserve_bytes(settings))
            self.state = startup.recovered(self.journal, policies, records=archive)
            self.journal.adopt({str(number): queue.recordings.last for number, queue in self.state.by_id.items()})
            self.copier = copying.begin(settings, self.journal, disk, store)
        except BaseException:
            disk.close()  # another process may retry, with another version or a repaired directory
            raise
        self._stops = contextlib.ExitStack()  # of the threads
        try:
            self._equip()
            copying.start(self.journal, self.copier)
            self._start()
            self.recorder = self._recording() if archive else None
            if self.recorder is not None:
                self.recorder.start()
                self._stops.callback(self.recorder.close)
                self.archive = self.recorder.url
            self._watch()
        except BaseException:
            self._give_up()
            raise

    def _equip(self) -> None:
        """Make the parts that work on the state and the journal."""
        self.matching = SelectorMatcher(self.state, self.journal, self._lock, self._recent, self.damage)
        self.nodes = Nodes(self.state, self._lock)
        self.counts = QueueCounts(self.state, self._lock)
        self.history = History()
        self.connections = Connections()
        self.histograms = Histograms()
        self.journal.tell_syncs(self.histograms.fsync.observe)
        parts = CleanerParts(
            self.state, self.journal, lambda: self.settings, self.damage, self._lock, self.submit_logged, self.take_snapshot
        )
        self.cleaner = Cleaner(parts, self.wall_ms, self._closing)
        self._blocked = BlockedProducers(self.state)
        self._ticker = Ticker(self.state, self._clock, lambda: self.submit(c.Tick()))
        self._parts = TurnParts(
            self.state,
            self.journal,
            self._clock,
            self._lock,
            self._arrivals,
            self._recent,
            self._ticker,
            self._blocked,
            LockedView(self.state, self.journal, self._recent),
        )
        self._free = (0, 0, 0)  # free bytes of the disk; the journal's durable position then; until when `has_space` uses them
        self._hindered = False  # whether a full disk prevents housekeeping: logged once
        self.started_ms = self.wall_ms()
        self._snapshot_at = self.journal.snapshot.position if self.journal.snapshot else 0

    def _start(self) -> None:
        """Return the messages that links held before the restart, and start the threads."""
        lost = self.submit_here(c.StartBroker(secrets.token_hex(16)))
        if lost:
            log.info("returned the messages that links held before the restart: %s", lost)
        self._ticker.start()
        self._stops.callback(self._ticker.close)
        self._housekeeper = threading.Thread(target=self._housekeeping, name="penstock-housekeeping", daemon=True)
        self._housekeeper.start()
        self._stops.callback(self._housekeeper.join)
        self._cleaning = threading.Thread(target=self.cleaner.run, name="penstock-cleaner", daemon=True)
        self._cleaning.start()
        self._stops.callback(self._cleaning.join)

    def _recording(self) -> Recorder:
        host = Recordings(self.state, self.journal, self._lock, self._clock, lambda command: self.submit(command))
        return Recorder(host, self.settings)

    def _watch(self) -> None:
        """Start the thread that raises alarms."""
        self.alarms = Alarms(self.wall_ms)
        watched = Watched(
            self.state,
            self._lock,
            self.journal,
            self.cleaner,
            self.copier,
            lambda: self.settings,
            lambda: self.recorder,
            self.connections.slow,
            self.connections.starved,
            lambda: self.few_files,
        )
        self.watch = Watch(watched, self.alarms, self.wall_ms, self._closing)
        self.watch.start()
        self._stops.callback(self.watch.join)

    # Commands
    def submit(self, *commands: Unpack[tuple[Unpack[tuple[c.Command[Any], ...]], c.Command[R]]]) -> R:
        """Execute commands in one turn. Returns the reply of the last command when all of them are durable."""
        reply, end = self.submit_nowait(*commands)
        self.journal.wait(end)
        return reply

    def submit_nowait(self, *commands: Unpack[tuple[Unpack[tuple[c.Command[Any], ...]], c.Command[R]]]) -> tuple[R, int]:
        """Execute commands in one turn. The caller waits for the returned log position before it reveals the reply."""
        reply: Any = None
        end = 0
        refusal: errors.PenstockError | None = None
        with self.turn() as turn:
            try:
                for command in commands:
                    reply, position = turn.execute(command)
                    end = max(end, position)
            except errors.PenstockError as error:
                refusal, end = error, turn.end
        if refusal is not None:
            # The state that led to the refusal must be durable before the caller receives it.
            self.journal.wait(end)
            raise refusal
        return reply, end

    def submit_here(self, command: c.Command[R]) -> R:
        """Execute a command at the start. Waits for the disk, and not for the copy: no client has seen anything yet."""
        reply, end = self.submit_nowait(command)
        self.journal.sync(end)
        return reply

    def submit_logged(self, command: c.Command[R]) -> tuple[R, int]:
        """Execute a command that is never refused. Returns its reply when it is durable, and the position of its record."""
        with self.turn() as turn:
            reply, end = turn.execute(command)
        self.journal.wait(end)
        return reply, turn.logged

    def turn(self, *, hurry: bool = True) -> Turn:
        """Begin a turn: several commands under one lock, without a wait for the disk. See `Turn`."""
        return Turn(self._parts, hurry=hurry)

    def declare(self, settings: Settings) -> None:
        """Declare the queues, exchanges and bindings of the settings. Raises InvalidRequest, which names the wrong field."""
        startup.declare(self.state, self.submit_here, settings)

    def create_on_use(self, name: str, user: str) -> None:
        """Create the queue or exchange if a policy creates it at its first use. It counts for `user`. The caller's next command
        waits for this one too, because it is later in the log."""
        state = self.state
        if name in state.queues or name in state.exchanges.by_name:
            return
        policy = state.policies.maker_of(name)
        if policy is not None:
            log.info("%r is created by its first use: policy %r", name, policy.pattern, extra={"queue": name, "user": user})
            declare = DeclareExchange if policy.of_exchanges else c.DeclareQueue
            self.submit_nowait(declare(name, policy.makes, maker=c.Maker(user, self.settings.amqp_max_nodes_per_user)))

    def uptime_s(self) -> float:
        """Return the uptime in seconds, without the time in which the broker stood still."""
        return self._clock().up / 1e6

    def wall_ms(self) -> int:
        """Return milliseconds since 1970 by the broker's clock, never before the time of an event."""
        return max(self._clock().wall, self.state.time) // 1000

    def rules(self, queue_name: str) -> Rules:
        """Return the options of a queue. Without the lock: a command is refused if the queue is gone."""
        return need_queue(self.state, queue_name).rules

    def attributes(self, queue_name: str, batch: Payload) -> Attributes:
        """Read the attributes of arriving messages that the queue needs. Without the lock: see `rules`."""
        return attributes_of(batch, self.rules(queue_name), self.wall_ms())

    # ArrivalListeners
    @property
    def arrivals(self) -> int:
        """A counter that grows whenever messages become AVAILABLE."""
        return self._arrivals.count

    def wait_for_arrival(self, seen: int, timeout_s: float) -> bool:
        """Wait until messages become AVAILABLE in any queue after `arrivals` was `seen`. False after `timeout_s`."""
        with self._lock:
            return self._arrivals.wait(seen, timeout_s)

    def add_arrival_listener(self, callback: Callable[[str], None]) -> None:
        """Call `callback(queue)` whenever messages become AVAILABLE in a queue, and when a queue is deleted. The thread that has
        the broker's lock calls it, so it must not block or call the service. Its exceptions are logged, and it stays registered.
        """
        with self._lock:
            self._arrivals.add(callback)

    def remove_arrival_listener(self, callback: Callable[[str], None]) -> None:
        """Undo `add_arrival_listener`."""
        with self._lock:
            self._arrivals.remove(callback)

    # Space for payloads
    def reserve_space(self, nbytes: int) -> None:
        """Reserve space for payloads of `nbytes` in the journal's buffer. Waits while it is full. Raises ResourceLimit while the
        disk is nearly full. Called without the lock."""
        self._check_space(self.journal.free_bytes() - nbytes)
        self.journal.reserve(nbytes, RESERVE_TIMEOUT_S)

    def has_space(self, nbytes: int) -> bool:
        """Return True if payloads of `nbytes` may be enqueued now. False while the journal's buffer is too full: ask again
        when the journal's listener is called. Raises ResourceLimit while the disk is nearly full. Never waits.

        The disk is measured at most every 100 ms. Bytes that the journal has not written yet are subtracted.
        """
        free, durable, until = self._free
        up = self._clock().up
        if up >= until:
            durable = self.journal.durable  # first: bytes written during the measurement then count twice, not never
            free = self.journal.free_bytes()
            self._free = (free, durable, up + FREE_SPACE_FOR_US)
        self._check_space(free - max(0, self.journal.end - durable) - nbytes)
        return self.journal.has_capacity(nbytes)

    def capacity_of(self, queue_name: str, usual: int = 0) -> int | None:
        """Return how many more messages the queue has capacity for: 0 if it is gone, None for any number.

        `usual`: assumed bytes of a message if the queue has no messages. Without the lock: see `rules`."""
        queue = self.state.queues.get(queue_name)
        return 0 if queue is None else admission.capacity_left(queue, usual)

    def call_when_capacity(self, queue_name: str, callback: Callable[[], None], messages: int = 1, size: int = 1) -> None:
        """Call `callback` once, when the queue has capacity for `messages` of `size` bytes together, or no longer needs it. The
        thread that has the broker's lock calls it, perhaps before this method returns. It must not block or call the service."""
        with self._lock:
            self._blocked.wait(queue_name, WaitingProducer(messages, size, callback))

    def submit_patiently(self, command: c.Stores[R], timeout_s: float = RESERVE_TIMEOUT_S) -> tuple[R, int]:
        """Execute a command that stores its messages together. While the queue blocks its producers, the command waits for
        capacity. Raises QueueFull after `timeout_s`; immediately if the queue does not block, will never have so much capacity,
        or has reached its limit of keys or groups."""
        deadline = time.monotonic() + timeout_s
        sizes = command.sizes
        size = sizes * command.count if isinstance(sizes, int) else int(sizes.sum(dtype="int64"))
        while True:
            try:
                return self.submit_nowait(command)
            except admission.NamesFull:
                raise
            except errors.QueueFull:
                queue = self.state.queues.get(command.queue)
                if queue is None or not admission.may_wait(queue, command.count, size) or time.monotonic() >= deadline:
                    raise
            self._wait_for_capacity(command.queue, command.count, size, deadline)

    def _wait_for_capacity(self, queue_name: str, messages: int, size: int, deadline: float) -> None:
        changed = threading.Event()
        waiting = WaitingProducer(messages, size, changed.set)
        with self._lock:
            self._blocked.wait(queue_name, waiting)
        if not changed.wait(max(0.0, deadline - time.monotonic())):
            with self._lock:
                self._blocked.cancel(queue_name, waiting)

    def _check_space(self, left: int) -> None:
        """`left`: free bytes of the disk after the store."""
        if left < self.settings.free_space_mark_bytes:
            raise errors.DiskFull(
                f"the broker's disk would have {max(0, left) >> 20} MiB left and keeps "
                f"{self.settings.free_space_mark_bytes >> 20} MiB for settling: nothing was stored. Free some space, or shorten "
                "the retention"
            )
        if self.journal.is_full:
            raise errors.DiskFull(
                "the disk of the broker's data directory was full, and has too little space yet: nothing was stored. Free some "
                "space, or shorten the retention"
            )

    # Reading: see also `block_reads`
    def damaged(self, queue_name: str) -> list[str]:
        """Describe the unsettled messages of the queue that cannot be read."""
        known = self.damage.of(queue_name)
        with self._lock:
            queue = self.state.queues.get(queue_name)
            return [] if queue is None else [damaged.text for damaged in known if _has_live(queue, damaged.first, damaged.last)]

    def oldest(self, queue_name: str) -> dict[str, Any] | None:
        """Describe the unsettled message of a queue whose payload is the oldest in the journal; None without one."""
        with self._lock:
            queue = self.state.queues.get(queue_name)
            payload = None if queue is None else oldest_of(queue)
        return None if payload is None else payload.to_json()

    # Housekeeping
    def _housekeeping(self) -> None:
        turns = 0
        while not self._closing.wait(HOUSEKEEPING_S):
            turns += 1
            self._keep_house(seldom=turns % SELDOM_TURNS == 0)

    def _keep_house(self, *, seldom: bool) -> None:
        try:
            self.submit(TimeOutTransactions())
            if self.history.is_due(self.uptime_s()):
                self.history.sample(self.uptime_s(), self.wall_ms() * 1000, self.counts.read())
            self.pack_blocks()
            if self.journal.end - self._snapshot_at >= self.settings.snapshot_every_bytes:
                self.take_snapshot()
            if seldom:
                allocator.give_back()  # after the snapshot, which frees the most
            self._hindered = False
        except errors.ResourceLimit as error:
            if not self._hindered:
                log.warning("housekeeping is tried again every %g s: %s", HOUSEKEEPING_S, error)
            self._hindered = True
        except errors.StorageError as error:
            log.error("housekeeping: %s", error)  # on_failure stops the broker
        except Exception:
            log.exception("housekeeping failed; it is tried again in %g s", HOUSEKEEPING_S)

    def pack_blocks(self, limit: int = PACKED_PER_TURN) -> int:
        """Move full blocks without a live row out of memory. Returns their number."""
        with self._lock:
            ready = self.state.blocks_to_pack(limit)
        for queue, number in ready:
            self.submit_nowait(c.PackBlock(queue, number))
        return len(ready)

    def take_snapshot(self) -> None:
        """Write a snapshot. The queues continue as soon as their columns are copied. Raises StorageError."""
        with self.cleaner.writing:
            with self._lock:
                position = self.journal.end
                meta, blocks = self.state.snapshot()
            described, columns = json.dumps(meta).encode(), packed_columns(blocks)
            self.journal.write_snapshot(position, described, columns)
            self._snapshot_at = position
            self.cleaner.snapshot_written(len(described) + sum(map(len, columns)))

    def retain(self) -> int:
        """Drop the segments that are not needed. Returns the bytes freed."""
        return self.cleaner.retain()

    def close(self) -> None:
        """Write a snapshot, flush, and release the data directory."""
        self._closing.set()
        self.journal.give_up_waiting()
        closing = copying.Closing(self.journal, self.copier)
        self._stops.close()
        try:
            if self.journal.failure is None:
                self.take_snapshot()
        except errors.ResourceLimit as error:  # the next start reads more of the log
            log.warning("%s", error)
        finally:
            closing.end()

    def _give_up(self) -> None:
        """Release the data directory after a failed start: another process may retry, with other settings."""
        self._closing.set()
        self.journal.give_up_waiting()
        closing = copying.Closing(self.journal, self.copier)
        self._stops.close()
        with contextlib.suppress(errors.StorageError):  # the reason why the start failed
            closing.end()


def _opened(settings: Settings, disk: Disk, on_failure: Callable[[Exception], None] | None) -> Journal:
    options = JournalOptions(
        fsync=settings.fsync,  # type: ignore[arg-type]  # checked by Settings
        interval_s=settings.fsync_interval_s,
        segment_bytes=settings.segment_bytes,
    )
    journal = Journal.open(disk, options, on_failure=on_failure)
    if journal.repaired is not None:
        log.warning("the journal's tail was repaired: %s", journal.repaired)
    return journal


def _has_live(queue: Queue, first: int, last: int) -> bool:
    """Return True if one of these messages is not settled."""
    blocks = [queue.blocks.get(number) for number in range(first >> BLOCK_BITS, (last >> BLOCK_BITS) + 1)]
    return any(bool((block.state[block.rows_between(first, last)] != ARCHIVED).any()) for block in blocks if block is not None)
