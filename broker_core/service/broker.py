"""A running broker.

Commands are decided and applied under the lock. A reply waits until the journal is durable up to the end of the log at its
decision, so a power failure undoes no reply.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from functools import partial
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
from ..security.audit import AuditEntry, AuditLimits, AuditLog, Origin
from ..settings.keys import Settings
from ..stores.objects import ObjectStore
from . import allocator, copying, startup
from .alarms import AUDIT_FAILING, Alarms
from .attributes import attributes_of
from .block_reads import BlockReads
from .blocked_producers import BlockedProducers, WaitingProducer
from .cleaning import Cleaner
from .clock import AdvancedClock, RunningClock
from .connections import Connections
from .damage import Damage
from .events.publisher import EventMessages
from .histograms import Histograms
from .history import History
from .journal_usage import CleanerParts, oldest_of
from .matching import SelectorMatcher
from .nodes import Nodes
from .queue_counts import QueueCounts
from .recordings import Recordings
from .ticker import Ticker
from .turn import ArrivalListeners, Turn, TurnParts
from .watch import Watch, Watched, reserve_bytes

if TYPE_CHECKING:
    from typing_extensions import Unpack


R = TypeVar("R")

log = logging.getLogger("penstock")

HOUSEKEEPING_S = 1.0
SELDOM_TURNS = 10  # of housekeeping between two returns of free memory
PACKED_PER_TURN = 64  # blocks; packing must not delay other callers
NOTICE_S = 2.0  # after which a producer that waits for capacity receives a notice
RESERVE_TIMEOUT_S = 60.0  # a disk that keeps the journal's buffer full for longer is full
FREE_SPACE_FOR_US = 100_000  # microseconds for which `has_space` trusts a measurement of the disk


class BrokerService(BlockReads):
    """Recovers the broker of one data directory at construction, and serves commands until `close`. `archive`: record settled
    messages."""

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
        policies = startup.policies_of(settings)
        allocator.keep_heaps_short()
        self.settings = settings
        self._clock = clock or RunningClock()
        self._running = self._clock
        if isinstance(clock, AdvancedClock):
            self._running, clock.tick = clock.running, lambda: self.submit(c.Tick())
        self._lock = threading.Lock()
        self.arrivals = ArrivalListeners(self._lock)
        self._recent = Recent()
        self.damage = Damage()
        self.archive: str | None = None  # folder or URL
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
            disk.close()  # another process may retry
            raise
        self._stops = contextlib.ExitStack()  # of the threads
        try:
            self._equip()
            self.journal.start()
            if self.copier is not None:
                self.copier.start()
            self._start()
            self.recorder: Recorder | None = None
            if archive:
                host = Recordings(self.state, self.journal, self._lock, self._clock, lambda command: self.submit(command))
                self.recorder = Recorder(host, settings)
                self.recorder.start()
                self._stops.callback(self.recorder.close)
                self.archive = self.recorder.url
            self._watch()
        except BaseException:
            with contextlib.suppress(errors.StorageError):  # the reason why the start failed
                self._release(snapshot=False)  # another process may retry
            raise

    def _equip(self) -> None:
        self.matching = SelectorMatcher(self.state, self.journal, self._lock, self._recent, self.damage)
        self.nodes = Nodes(self.state, self._lock)
        self.counts = QueueCounts(self.state, self._lock)
        self.history = History()
        self.connections = Connections()
        self.events = EventMessages(self, lambda command: self.submit_nowait(command))
        self.histograms = Histograms()
        self.journal.tell_syncs(self.histograms.fsync.observe)
        parts = CleanerParts(
            self.state, self.journal, lambda: self.settings, self.damage, self._lock, self.submit_logged, self.take_snapshot
        )
        self.cleaner = Cleaner(parts, self.wall_ms, self._closing)
        self.blocked = BlockedProducers(self.state, self._lock)
        self._ticker = Ticker(self.state, self._clock, lambda: self.submit(c.Tick()))
        self._parts = TurnParts(
            self.state, self.journal, self._clock, self._lock, self.arrivals, self._recent, self._ticker, self.blocked
        )
        self._free = (0, 0, 0)  # free bytes of the disk; the journal's durable position then; until when they are used
        self._hindered = False  # a full disk prevents housekeeping: logged once
        self.started_ms = self.wall_ms()
        self._snapshot_at = self.journal.snapshot.position if self.journal.snapshot else 0

    def _start(self) -> None:
        """Return the messages that links held before the restart, and start the threads."""
        lost = self.submit_here(c.StartBroker(secrets.token_hex(16)))
        if lost:
            log.info("returned the messages that links held before the restart: %s", lost)
        self._ticker.start()
        self._stops.callback(self._ticker.close)
        self._run("penstock-housekeeping", self._housekeeping)
        self._run("penstock-cleaner", self.cleaner.run)

    def _watch(self) -> None:
        self.alarms = Alarms(self.wall_ms, self.events.note)
        self.audit = AuditLog(self.settings.data, self._audit_limits, self.wall_ms, partial(self.alarms.set, AUDIT_FAILING))
        self._stops.callback(self.audit.close)
        parts = self.cleaner, self.copier, self.recorder, self.connections, self.events
        watched = Watched(self.state, self._lock, self.journal, *parts, lambda: self.settings)
        self.watch = Watch(watched, self.alarms, self.wall_ms, self._closing)
        self._run("penstock-watch", self.watch.run)

    def _audit_limits(self) -> AuditLimits:
        return AuditLimits(self.settings.audit_bytes, self.settings.audit_age_s)

    def _run(self, name: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._stops.callback(thread.join)

    def submit(self, *commands: Unpack[tuple[Unpack[tuple[c.Command[Any], ...]], c.Command[R]]]) -> R:
        """Execute commands in one turn. Returns the last reply when all are durable."""
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
            # The reason for the refusal must be durable first.
            self.journal.wait(end)
            raise refusal
        return reply, end

    def submit_here(self, command: c.Command[R]) -> R:
        """Execute a command at the start. Waits for the disk, not for the copy: no client has seen anything yet."""
        reply, end = self.submit_nowait(command)
        self.journal.sync(end)
        return reply

    def submit_logged(self, command: c.Command[R]) -> tuple[R, int]:
        """Execute a command that is never refused. Returns its durable reply, and its record's position."""
        with self.turn() as turn:
            reply, end = turn.execute(command)
        self.journal.wait(end)
        return reply, turn.logged

    def turn(self, *, hurry: bool = True) -> Turn:
        return Turn(self._parts, hurry=hurry)

    def declare(self, settings: Settings) -> None:
        startup.declare(self.state, self.submit_here, settings)

    def create_on_use(self, name: str, origin: Origin) -> None:
        """Create the queue or exchange if a policy creates it at its first use. The caller's next reply waits for
        this one too."""
        state = self.state
        if name in state.queues or name in state.exchanges.by_name:
            return
        policy = state.policies.maker_of(name)
        if policy is not None:
            declare, kind = (DeclareExchange, "exchange") if policy.of_exchanges else (c.DeclareQueue, "queue")
            maker = c.Maker(origin.user, self.settings.amqp_max_nodes_per_user)
            self.submit_nowait(declare(name, policy.makes, maker=maker))
            details = {"policy": policy.pattern}
            self.audit.add(AuditEntry(origin=origin, action=f"{kind}.declare", object=name, details=details, by_use=True))

    def uptime_s(self) -> float:
        """Return the time of connections' time-outs and of samples."""
        return self._running().up / 1e6

    def wall_ms(self) -> int:
        """Return milliseconds since 1970, never before the time of an event."""
        return max(self._clock().wall, self.state.time) // 1000

    def rules(self, queue_name: str) -> Rules:
        """Takes no lock: a command is refused if the queue is gone."""
        return need_queue(self.state, queue_name).rules

    def attributes(self, queue_name: str, batch: Payload) -> Attributes:
        return attributes_of(batch, self.rules(queue_name), self.wall_ms())

    def reserve_space(self, nbytes: int) -> None:
        """Wait while the journal's buffer is full. Raises ResourceLimit while the disk is nearly full. Takes no lock."""
        self._check_space(self.journal.free_bytes() - nbytes)
        self.journal.reserve(nbytes, RESERVE_TIMEOUT_S)

    def has_space(self, nbytes: int) -> bool:
        """Return whether payloads of `nbytes` may be enqueued now. If not, ask again when the journal's listener is called.
        Raises ResourceLimit while the disk is nearly full."""
        free, durable, until = self._free
        up = self._clock().up
        if up >= until:
            durable = self.journal.durable  # first: bytes written meanwhile count twice, not never
            free = self.journal.free_bytes()
            self._free = (free, durable, up + FREE_SPACE_FOR_US)
        self._check_space(free - max(0, self.journal.end - durable) - nbytes)
        return self.journal.has_capacity(nbytes)

    def capacity_of(self, queue_name: str, usual: int = 0) -> int | None:
        """Return how many more messages the queue has capacity for: 0 if it is gone, None for any number. Takes no lock.

        `usual`: assumed bytes of a message if the queue has none.
        """
        queue = self.state.queues.get(queue_name)
        return 0 if queue is None else admission.capacity_left(queue, usual)

    def submit_patiently(
        self,
        command: c.Stores[R],
        timeout_s: float = RESERVE_TIMEOUT_S,
        on_wait: Callable[[str, float], None] = lambda queue, timeout_s: None,
    ) -> tuple[R, int]:
        """Execute a command that stores its messages together. It waits while the queue blocks its producers. Raises QueueFull
        after `timeout_s`; immediately if waiting does not help.

        `on_wait` is called once with the queue and the time limit, after `NOTICE_S`.
        """
        deadline = time.monotonic() + timeout_s
        notice: float | None = time.monotonic() + NOTICE_S
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
            changed = threading.Event()
            waiting = WaitingProducer(changed.set, command.count, size)
            self.blocked.wait(command.queue, waiting)
            if notice is not None and notice < deadline and not changed.wait(max(0.0, notice - time.monotonic())):
                notice = None
                on_wait(command.queue, timeout_s)
            if not changed.wait(max(0.0, deadline - time.monotonic())):
                self.blocked.cancel(command.queue, waiting)

    def _check_space(self, left: int) -> None:
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

    def refused(self, node: str, error: Exception, messages: int = 1) -> None:
        """Count messages for a queue or an exchange that an error keeps out."""
        with contextlib.suppress(errors.StorageError):  # the broker stops
            self.submit_nowait(c.CountRefused(node, error, messages))

    def damaged(self, queue_name: str) -> list[str]:
        known = self.damage.of(queue_name)
        with self._lock:
            queue = self.state.queues.get(queue_name)
            return [] if queue is None else [damaged.text for damaged in known if _has_live(queue, damaged.first, damaged.last)]

    def oldest(self, queue_name: str) -> dict[str, Any] | None:
        with self._lock:
            queue = self.state.queues.get(queue_name)
            payload = None if queue is None else oldest_of(queue)
            return None if payload is None else payload.described(self.state)

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
        """The queues continue as soon as their columns are copied. Raises StorageError."""
        with self.cleaner.writing:
            with self._lock:
                position = self.journal.end
                meta, blocks = self.state.snapshot()
            described, columns = json.dumps(meta).encode(), packed_columns(blocks)
            self.journal.write_snapshot(position, described, columns)
            self._snapshot_at = position
            self.cleaner.snapshot_bytes = len(described) + sum(map(len, columns))

    def close(self) -> None:
        self._release(snapshot=True)

    def _release(self, *, snapshot: bool) -> None:
        self._closing.set()
        self.journal.give_up_waiting()
        with copying.closing(self.journal, self.copier):
            self._stops.close()
            try:
                if snapshot and self.journal.failure is None:
                    self.take_snapshot()
            except errors.ResourceLimit as error:  # the next start reads more of the log
                log.warning("%s", error)


def _opened(settings: Settings, disk: Disk, on_failure: Callable[[Exception], None] | None) -> Journal:
    options = JournalOptions(
        fsync=settings.fsync,  # type: ignore[arg-type]  # checked by Settings
        interval_s=settings.fsync_interval_s,
        segment_bytes=settings.segment_bytes,
    )
    journal = Journal.open(disk, options, on_failure=on_failure)
    if journal.repaired is not None:
        log.warning("the journal was repaired: %s", journal.repaired)
    return journal


def _has_live(queue: Queue, first: int, last: int) -> bool:
    blocks = [queue.blocks.get(number) for number in range(first >> BLOCK_BITS, (last >> BLOCK_BITS) + 1)]
    return any(bool((block.state[block.rows_between(first, last)] != ARCHIVED).any()) for block in blocks if block is not None)
