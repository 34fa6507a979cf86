"""The writer thread: it takes the records that have accumulated, writes them, syncs once and notifies; meanwhile the next group
fills.

`Group.seal` gives the persisted bytes. At any time the positions are in this order:

    synced <= durable <= written <= end + END_BYTES        (without a copy; with one, durable may be lower)

`durable` is `stored`, which is `synced` under fsync=always and `written` otherwise; where a copy elsewhere has to have
everything first (`require_copy`), it is the lower of `stored` and what the copy has. `end` is after the last record; once its
group is written, `written` is after that group's end mark. A sync happens after every write (always), when `interval_s` has
passed since the last one and something is unsynced (interval), before a new segment begins, when a snapshot asks for it
(`sync_to`), and at the close (all modes). So at most the last segment holds anything unsynced.

After a failed write or sync nobody knows what is on the disk, and a repeated fsync may wrongly succeed: the kernel forgets the
failed pages. So the first failure is the last: it is kept, every call that waits or comes later gets it, and nothing is written
any more, not even at the close. A write that finds the disk full, or no file descriptor, is no failure: the file is as it was,
and the thread tries again until there is space. No caller was told that the records are durable.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

from ..errors import ResourceLimit, StorageError
from .disk import AppendFile, Buffer, Disk
from .groups import Group
from .manifest import Manifest
from .records import END_BYTES, Format
from .reserve import is_full
from .segments import Segment, SegmentChain, create
from .shortages import Shortages

Fsync = Literal["always", "interval", "never"]

GROUP_LIMIT = 32 << 20  # bytes; more saves no time by fewer syncs, and delays the first record of a group
# A write from the thread that appended saves two hand-overs between threads, but blocks that thread. So only a small group is
# written so, and only while the disk syncs this quickly. One slow sync is enough to stop it; many quick ones resume it.
QUICK_S = 0.001
QUICK_BYTES = 64 << 10
SYNCS_REMEMBERED = 16
SMALL_BYTES = 8 << 10  # a smaller group is written into preallocated zeros: its sync would wait mostly for the file's new length

_log = logging.getLogger(__name__)


class _NoSpaceHere(Exception):
    """The disk is full, and the thread that writes must not wait."""


class Writer:
    """The writer of a log that ends at `end`, all of it synced. Public methods may be called from any thread."""

    def __init__(
        self,
        disk: Disk,
        chain: SegmentChain,
        manifest: Manifest,
        broker_id: str,
        form: Format,
        end: int,
        generation: int,
        *,
        fsync: Fsync,
        interval_s: float,
        segment_bytes: int,
        buffer_bytes: int,
        on_failure: Callable[[Exception], None] | None,
    ) -> None:
        self._disk, self._chain, self._broker_id, self._generation = disk, chain, broker_id, generation
        self._form, self._manifest = form, manifest
        self._fsync, self._interval_s = fsync, interval_s
        self._segment_bytes, self._buffer_bytes = segment_bytes, buffer_bytes
        self._group_bytes = max(1, min(GROUP_LIMIT, buffer_bytes // 2))
        self._on_failure = on_failure
        self._listeners: list[Callable[[int], None]] = []
        self._stored_listeners: list[Callable[[], None]] = []
        self.on_sync: Callable[[float], None] | None = None  # is told how many seconds each sync took

        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # the writer waits here
        self._done = threading.Condition(self._lock)  # all others
        self._idle = False  # the thread waits and has to be woken
        self._taken_over = False  # another thread writes in the thread's place
        self._stopping = False
        self.shortages = Shortages(disk.monotonic_s, lambda: self.failure is not None)
        self._thread: threading.Thread | None = None
        self.failure: StorageError | None = None

        self._open: Group | None = None  # being filled
        self._more_to_come = False  # the open group is not complete: more records must be in it
        self._closed: deque[Group] = deque()  # complete, to be written before the open one
        self._next = end  # where the next group opens
        self._hurried = 0  # a caller waits for everything below
        self._sync_wanted = 0
        self.end = self.written = self.synced = self.durable = end

        self._file: AppendFile | None = None  # used by the writer's thread alone, like the three below
        self._segment: Segment | None = None
        self._copied: int | None = None  # LSN below which a copy has everything; None: none has to
        self._why_not_copied: Callable[[], str] = str
        self._copy_given_up = False
        self._synced_at = self._disk.monotonic_s()
        self._sync_takes = 0.0  # seconds: rises at once with a slow sync, falls slowly

    # ---- appending

    def append(self, meta: bytes, payload: Sequence[Buffer], hurry: bool = True, more: bool = False) -> tuple[int, int]:
        """Append a record; return its position and the end of the log. See `Journal.append`."""
        with self._lock:
            if self.failure is not None or self._stopping:
                raise self._refusal()
            group = self._open
            if group is None:
                group = self._open = Group(self._next, self._form)
            elif group.end - group.start >= self._group_bytes and not self._more_to_come:
                self._closed.append(group)
                group = self._open = Group(group.after, self._form)
                self._wake()
            position = group.append(meta, payload)
            end = self.end = group.end
            self._more_to_come = more
            if hurry:
                self._hurry(end)
        return position, end

    def complete(self, hurry: bool) -> None:
        """End the group of the records appended with `more`."""
        with self._lock:
            self._more_to_come = False
            if hurry:
                self._hurried = max(self._hurried, self.end)
            # Also where somebody has hurried to this end already: the thread was woken then, and could not write yet.
            if self._write_due() or self._stopping:
                self._wake()

    def hurry(self, end: int) -> None:
        """Let the thread write up to `end` now."""
        if end > self._hurried:
            with self._lock:
                self._hurry(end)

    def _hurry(self, end: int) -> None:
        if end > self._hurried:
            self._hurried = end
            self._wake()

    def _wake(self) -> None:
        if self._idle:
            self._idle = False
            self._work.notify()

    # ---- writing from another thread

    def write_here(self, meanwhile: Callable[[], object]) -> bool:
        """Write and sync from the calling thread, if that is quickly done. See `Journal.write_here`."""
        group = self._take_over()
        if group is None:
            return False
        try:
            self._write_and_sync([group], meanwhile)
        except _NoSpaceHere:
            with self._lock:
                self._closed.appendleft(group)
            return False
        except Exception as error:
            self.fail(error)
        finally:
            self._hand_back()
        return True

    def _take_over(self) -> Group | None:
        """Take over the thread's work and return the one group to write, if that is quickly done."""
        with self._lock:
            group = self._open
            if group is None or self._more_to_come or self._closed or not self._idle or not self._is_quick(group):
                return None
            self._idle, self._taken_over = False, True
            self._open, self._next = None, group.after
            return group

    def _is_quick(self, group: Group) -> bool:
        if self._copied is not None:
            return False  # it is durable when the copy has it
        if self._segment is None or group.start - self._segment.base > self._segment_bytes:
            return False  # a new segment takes several syncs
        return group.end - group.start <= QUICK_BYTES and self._sync_takes <= QUICK_S

    def _hand_back(self) -> None:
        with self._lock:
            self._taken_over = False
            if self._due() or self._time_to_sync() is not None:  # the thread has new work, or a sync to wait for
                self._work.notify()
            else:
                self._idle = True

    # ---- capacity of the buffer

    def has_capacity(self, nbytes: int) -> bool:
        """Return True if `nbytes` fit in the buffer now. StorageError when the journal failed."""
        if self.failure is not None:
            raise self._refusal()
        return self._fits(nbytes)

    def _fits(self, nbytes: int) -> bool:
        # A record larger than the whole buffer fits when the buffer is empty; else it would never fit.
        return self.end - self.durable + nbytes <= self._buffer_bytes or self.durable >= self.end

    def reserve(self, nbytes: int, timeout_s: float) -> None:
        """Wait until `nbytes` fit in the buffer. See `Journal.reserve`."""
        if self.has_capacity(nbytes):
            return
        with self._lock:
            if self.failure is not None:
                raise self._refusal()
            self._hurry(self.end)
            self._wait_for_copy(
                lambda: self._fits(nbytes),
                timeout_s,
                lambda: ResourceLimit(
                    f"the journal's buffer of {self._buffer_bytes} bytes had no room for {nbytes} in {timeout_s} s"
                    f"{self._why_not_copied()}"
                ),
            )

    # ---- waiting

    def wait(self, end: int, timeout_s: float | None) -> None:
        """Wait until `durable` >= `end`. StorageError when the journal failed, TimeoutError after the time."""
        if self.durable >= end:
            return
        with self._lock:
            self._hurry(end)
            self._wait_for_copy(lambda: self.durable >= end, timeout_s, lambda: _timeout(end, timeout_s))

    def wait_written(self, position: int) -> None:
        """Wait until the record at `position` can be read from its file."""
        if self.written > position:
            return
        with self._lock:
            self._hurry(position + 1)
            self._wait(lambda: self.written > position, None, lambda: _timeout(position, None))

    def sync_to(self, end: int) -> None:
        """Wait until everything below `end` is on the disk, in every fsync mode."""
        with self._lock:
            if self.synced >= end:
                return
            self._sync_wanted = max(self._sync_wanted, end)
            self._hurry(end)
            self._wake()
            self._wait(lambda: self.synced >= end, None, lambda: _timeout(end, None))

    def add_listener(self, callback: Callable[[int], None]) -> None:
        """Call `callback(durable)` whenever that has grown."""
        with self._lock:
            self._listeners = [*self._listeners, callback]

    # ---- a copy elsewhere

    @property
    def stored(self) -> int:
        """LSN below which this disk has everything, as far as `fsync` promises."""
        return self.synced if self._fsync == "always" else self.written

    def require_copy(self, copied: int, why: Callable[[], str]) -> None:
        """Let nothing become durable before `set_copied` has said so. Before `start`. See `Journal.require_copy`."""
        self._copied, self._why_not_copied = copied, why
        self.durable = min(self.durable, copied)

    def set_copied(self, copied: int) -> None:
        """Say that the copy has everything below this LSN."""
        self._copied = max(copied, self._copied or 0)
        self._publish()

    def give_up_copy(self) -> None:
        """Let nobody wait for the copy any more. See `Journal.give_up_copy`."""
        with self._lock:
            self._copy_given_up = self._copied is not None
            self._done.notify_all()

    def add_stored_listener(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever `stored` may have grown."""
        with self._lock:
            self._stored_listeners = [*self._stored_listeners, callback]

    def _wait_for_copy(self, ready: Callable[[], bool], timeout_s: float | None, late: Callable[[], Exception]) -> None:
        self._wait(lambda: ready() or self._copy_given_up, timeout_s, late)
        if not ready():
            raise StorageError(f"the broker stops, and its copy does not have this{self._why_not_copied()}")

    def _wait(self, ready: Callable[[], bool], timeout_s: float | None, late: Callable[[], Exception]) -> None:
        if ready():
            return
        if self._thread is None and self.failure is None:
            raise StorageError("the journal is not started, or is closed: nothing is written, so there is nothing to wait for")
        self._done.wait_for(lambda: self.failure is not None or ready() or self._thread is None, timeout_s)
        if ready():
            return
        if self.failure is not None or self._thread is None:
            raise self._refusal()
        raise late()

    def _refusal(self) -> StorageError:
        return StorageError(str(self.failure or "the journal is closed"))

    # ---- the thread

    def start(self) -> None:
        """Start the thread."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, name="penstock-journal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write and sync everything, and end the thread. StorageError when that failed, now or earlier."""
        self.shortages.give_up()
        with self._lock:
            self._stopping = True
            self._idle = False
            self._work.notify()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._thread = None
            self._done.notify_all()
        if self.failure is not None:
            raise self._refusal()

    def _run(self) -> None:
        try:
            while (groups := self._take()) is not None:
                self._write_and_sync(groups)
            self._close()
        except Exception as error:
            self.fail(error)

    def _write_and_sync(self, groups: list[Group], meanwhile: Callable[[], object] | None = None) -> None:
        self._write(groups)
        if self._sync_due():
            if meanwhile is not None:
                assert self._file is not None
                self._file.start_sync()
                meanwhile()
            self._sync()
        self._publish()

    def _take(self) -> list[Group] | None:
        """Return the groups to write next, at most `GROUP_LIMIT` and one record; [] if only a sync is due, None at the end."""
        with self._lock:
            while self._taken_over or not self._due():
                self._idle = not self._taken_over
                self._work.wait(None if self._taken_over else self._time_to_sync())
                self._idle = False
            if self.failure is not None:
                raise self.failure
            if self._open is not None and not self._more_to_come and not self._closed:
                self._closed.append(self._open)
                self._next = self._open.after
                self._open = None
            if not self._closed:
                return None if self._stopping and not self._more_to_come else []
            return [self._closed.popleft()]

    def _due(self) -> bool:
        return self._write_due() or (self._stopping and not self._more_to_come) or self.failure is not None or self._sync_due()

    def _write_due(self) -> bool:
        return bool(self._closed) or (self._open is not None and not self._more_to_come and self._hurried > self._open.start)

    def _time_to_sync(self) -> float | None:
        """Return the seconds until the next sync is due; None if none is."""
        if self._fsync != "interval" or self.written == self.synced:
            return None
        return max(0.0, self._synced_at + self._interval_s - self._disk.monotonic_s())

    def _sync_due(self) -> bool:
        if self.written == self.synced:
            return False
        return self._fsync == "always" or self.synced < self._sync_wanted <= self.written or self._time_to_sync() == 0.0

    def _write(self, groups: list[Group]) -> None:
        for group in groups:
            if self._segment is None or group.start - self._segment.base > self._segment_bytes:
                self._roll(group.start)
            assert self._file is not None
            assert self._segment is not None
            if self._fsync == "always" and group.after - group.start <= SMALL_BYTES:
                self._file.preallocate(group.after - group.start)
            self._append(self._file, group.seal(self.synced))
            self._segment.end = group.after  # before `written`: a reader that sees `written` reads up to there
            self.written = group.after

    def _append(self, file: AppendFile, data: Sequence[Buffer]) -> None:
        try:
            file.append(data)
        except OSError as error:
            if not is_full(error):
                raise
            if self._taken_over:
                raise _NoSpaceHere from error
            self.shortages.outlast(lambda: file.append(data))

    def _roll(self, base: int) -> None:
        """Begin a segment. The one before is synced first, so that only a journal's last segment can end in a torn tail."""
        if self._file is not None:
            self._sync()
            self._file.close()
        self._segment, self._file = self.shortages.outlast(
            lambda: create(self._disk, self._broker_id, self._form, base, self._generation, self._disk.now_ns())
        )
        self._chain.add(self._segment)
        self.shortages.outlast(lambda: self._manifest.write(base))

    def _sync(self) -> None:
        assert self._file is not None
        written, began = self.written, self._disk.monotonic_s()
        self._file.sync()
        self.synced = written
        self._synced_at = self._disk.monotonic_s()
        took = self._synced_at - began
        if self.on_sync is not None:
            self.on_sync(took)
        self._sync_takes = max(took, self._sync_takes + (took - self._sync_takes) / SYNCS_REMEMBERED)
        assert self._segment is not None
        self._manifest.note(self._segment, written)

    def _publish(self) -> None:
        for stored in self._stored_listeners:
            stored()
        with self._lock:
            before = self.durable
            durable = self.durable = self.stored if self._copied is None else max(before, min(self.stored, self._copied))
            assert before <= durable, "what was durable stays so"
            assert durable <= self.written <= self.end + END_BYTES, "see the order above"
            self._done.notify_all()
        if durable == before and self._copied is not None:
            return
        for callback in self._listeners:
            self._notify(callback, durable)

    def _notify(self, callback: Callable[[int], None], durable: int) -> None:
        try:
            callback(durable)
        except Exception:  # its loop may be closed; the log does not depend on its listeners
            _log.exception("a listener of the journal failed and gets no more news")
            with self._lock:
                self._listeners = [other for other in self._listeners if other is not callback]

    def _close(self) -> None:
        """Append an empty group, which states that everything before it is synced: the next start has no tail to copy."""
        if self._file is None:
            return
        if self.written != self.synced:
            self._sync()
            self._publish()
        try:
            self._file.append(Group(self.written, self._form).seal(self.synced))
            self._file.sync()
        except OSError as error:
            if not is_full(error):  # the next start copies the tail
                raise
        self._file.close()
        with contextlib.suppress(OSError):  # the manifest of the last roll, and the note, are enough
            self._manifest.write(self.synced)

    def fail(self, error: BaseException) -> None:
        """Stop for ever, because of `error`: of the writer's thread, of another file of the journal, or of the state that the
        log stands for.

        The log's end moves beyond what can become durable, so that every later wait for it fails.
        """
        with self._lock:
            if self.failure is not None:
                return
            self.failure = StorageError(f"the journal failed and the broker must stop, nothing was retried: {error}")
            self.failure.__cause__ = error
            self.end += END_BYTES + 1  # the thread may be writing the last group at this moment
            self._open = None
            self._closed.clear()
            self._idle = False
            self._work.notify()
            self._done.notify_all()
        if self._on_failure is not None:
            self._on_failure(self.failure)


def _timeout(end: int, timeout_s: float | None) -> TimeoutError:
    return TimeoutError(f"position {end} was not durable within {timeout_s} s; it may become so later")
