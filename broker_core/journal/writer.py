"""The writer thread: it writes the records that have accumulated, syncs once and notifies.

    synced <= durable <= written <= end + END_BYTES        (with a required copy, durable may be lower)

`durable` is `stored`: `synced` with fsync=always, otherwise `written`. With `require_copy`, it is the lower of `stored` and the
position that the copy has. `end` is the position after the last record. Once its group is written, `written` is the position
after that group's end mark.

In every fsync mode a sync happens before a new segment begins, when `sync` is called, and at the close. So at most the last
segment has unsynced bytes.

After a failed write or sync the content of the disk is unknown. A repeated fsync may wrongly succeed, because the kernel drops
the failed pages. So the first failure is final: every current and later call raises it. A full disk, or a lack of file
descriptors, is not a failure: the file is unchanged, and the thread repeats the write.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..errors import ResourceLimit, StorageError
from .disk import Buffer
from .record_groups import RecordGroup
from .records import END_BYTES
from .segment_writer import LogFiles, NoSpaceHere, SegmentWriter
from .shortages import Shortages

Fsync = Literal["always", "interval", "never"]

GROUP_LIMIT = 32 << 20  # bytes; a larger group would only delay its first record
# A write from the thread that appended saves two switches between threads, but blocks that thread. So only a small group is
# written this way, while the disk syncs this quickly. One slow sync stops it; many quick ones resume it.
QUICK_S = 0.001
QUICK_BYTES = 64 << 10
SYNCS_REMEMBERED = 16

_log = logging.getLogger(__name__)


class Appended(NamedTuple):
    """LSNs of a record's begin and end."""

    position: int
    end: int


@dataclass(frozen=True)
class JournalOptions:
    """Options of a journal."""

    fsync: Fsync = "always"  # durable means synced, otherwise written
    interval_s: float = 0.1  # with "interval": at most this long between syncs. "never" syncs when a segment is full
    segment_bytes: int = 256 << 20  # a group that would begin after these goes into a new segment
    buffer_bytes: int = 64 << 20


class Writer:
    """The writer of a log that ends at `end`, all of it synced. For any thread.

    `failure`: the error with which the journal failed. `on_failure` is called once with it, by the thread that found it.
    """

    def __init__(
        self, files: LogFiles, end: int, options: JournalOptions, on_failure: Callable[[Exception], None] | None = None
    ) -> None:
        self.broker_id = files.broker_id
        self._form, self._monotonic_s, self._options = files.form, files.disk.monotonic_s, options
        self._group_bytes = max(1, min(GROUP_LIMIT, options.buffer_bytes // 2))
        self._on_failure = on_failure
        self._listeners: list[Callable[[int], None]] = []
        self._stored_listeners: list[Callable[[], None]] = []
        self._on_sync: Callable[[float], None] | None = None

        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # the writer waits here
        self._done = threading.Condition(self._lock)  # all others
        self._idle = False  # the thread has to be woken
        self._taken_over = False  # another thread writes
        self._stopping = False
        self._shortages = Shortages(self._monotonic_s, lambda: self.failure is not None)
        self._thread: threading.Thread | None = None
        self.failure: StorageError | None = None

        self._open: RecordGroup | None = None
        self._more_to_come = False  # the open group is not complete
        self._full: deque[RecordGroup] = deque()  # complete, to be written before the open one
        self._next = end
        self._hurried = 0  # a caller waits for everything below this position
        self._sync_wanted = 0
        self.end = self.written = self.synced = self.durable = end

        self._output = SegmentWriter(files, self._shortages)  # for the writer's thread alone, like the two below
        self._synced_at = self._monotonic_s()
        self._sync_takes = 0.0  # seconds: a slow sync raises it immediately, quick ones lower it slowly
        self._copied: int | None = None  # LSN below which a copy has everything; None: no copy is required
        self._why_not_copied: Callable[[], str] = str
        self._copy_given_up = False

    # ---- appending

    def append(self, meta: bytes, payload: Sequence[Buffer] = (), *, hurry: bool = True, more: bool = False) -> Appended:
        """Append a record, by one thread at a time, without waiting for the disk. Large buffers are not copied, and must not
        change afterwards.

        Without `hurry` the record is written with the next one that hurries, or when a caller waits for it. The caller ensures
        one of these.

        With `more`, this record and the following ones share one group, until a record without `more` or `complete`. After a
        crash the log has all of them, or no part. The caller must not wait for an incomplete group, which is not written.
        """
        with self._lock:
            if self.failure is not None or self._stopping:
                raise self._refusal()
            group = self._open
            if group is None:
                group = self._open = RecordGroup(self._next, self._form)
            elif group.end - group.start >= self._group_bytes and not self._more_to_come:
                self._full.append(group)
                group = self._open = RecordGroup(group.after, self._form)
                self._wake()
            position = group.append(meta, payload)
            end = self.end = group.end
            self._more_to_come = more
            if hurry:
                self._hurry(end)
        return Appended(position, end)

    def complete(self, *, hurry: bool) -> None:
        """End the group of the records appended with `more`."""
        with self._lock:
            self._more_to_come = False
            if hurry:
                self._hurried = max(self._hurried, self.end)
            # Also if a caller has hurried before: the thread could not write yet.
            if self._write_due() or self._stopping:
                self._wake()

    def hurry(self, end: int) -> None:
        """Let the thread write up to `end` now: a caller waits for it elsewhere."""
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
        """Write and sync the appended records from this thread, if that is quick.

        True: the records are durable or the journal has failed, and the listeners were called. False: nothing has changed.

        `meanwhile` is called once the records are written, if there is a sync to wait for. It has some 100 µs, and must not
        raise. Its results must not leave before `durable` covers them.
        """
        group = self._take_over()
        if group is None:
            return False
        try:
            self._write_and_sync([group], meanwhile)
        except NoSpaceHere:
            with self._lock:
                self._full.appendleft(group)
            return False
        except Exception as error:
            self.fail(error)
        finally:
            self._hand_back()
        return True

    def _take_over(self) -> RecordGroup | None:
        """Return the one group to write, if that is quick."""
        with self._lock:
            group = self._open
            if group is None or self._more_to_come or self._full or not self._idle or not self._is_quick(group):
                return None
            self._idle, self._taken_over = False, True
            self._open, self._next = None, group.after
            return group

    def _is_quick(self, group: RecordGroup) -> bool:
        if self._copied is not None:
            return False  # it is durable when the copy has it
        if not self._output.has_room(group.start, self._options.segment_bytes):
            return False  # a new segment takes several syncs
        return group.end - group.start <= QUICK_BYTES and self._sync_takes <= QUICK_S

    def _hand_back(self) -> None:
        with self._lock:
            self._taken_over = False
            if self._due() or self._time_to_sync() is not None:
                self._work.notify()
            else:
                self._idle = True

    # ---- capacity of the buffer

    def has_capacity(self, nbytes: int) -> bool:
        if self.failure is not None:
            raise self._refusal()
        return self._fits(nbytes)

    def _fits(self, nbytes: int) -> bool:
        # A record larger than the whole buffer fits when the buffer is empty.
        return self.end - self.durable + nbytes <= self._options.buffer_bytes or self.durable >= self.end

    def reserve(self, nbytes: int, timeout_s: float) -> None:
        """Wait until `nbytes` more fit in the buffer of bytes that are not durable yet.

        They are not set aside: several callers may exceed the limit, each once. Raises ResourceLimit after `timeout_s` seconds.
        """
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
                    f"the journal's buffer of {self._options.buffer_bytes} bytes had no room for {nbytes} in {timeout_s} s"
                    f"{self._why_not_copied()}"
                ),
            )

    # ---- waiting

    def wait(self, end: int, timeout_s: float | None = None) -> None:
        if self.durable >= end:
            return
        with self._lock:
            self._hurry(end)
            self._wait_for_copy(lambda: self.durable >= end, timeout_s, lambda: _timeout(end, timeout_s))

    def _wait_written(self, position: int) -> None:
        with self._lock:
            self._hurry(position + 1)
            self._wait(lambda: self.written > position, None, lambda: _timeout(position, None))

    def sync(self, end: int) -> None:
        """Wait until everything below `end` is on the disk, in every fsync mode."""
        with self._lock:
            if self.synced >= end:
                return
            self._sync_wanted = max(self._sync_wanted, end)
            self._hurry(end)
            self._wake()
            self._wait(lambda: self.synced >= end, None, lambda: _timeout(end, None))

    def add_listener(self, callback: Callable[[int], None]) -> None:
        """The writer's thread calls `callback(durable)` whenever it has grown. One that raises is not called again."""
        with self._lock:
            self._listeners = [*self._listeners, callback]

    def tell_syncs(self, callback: Callable[[float], None]) -> None:
        """Call `callback(seconds)` after each sync, in the thread that synced. Before `start`."""
        self._on_sync = callback

    # ---- a copy elsewhere

    @property
    def stored(self) -> int:
        return self.synced if self._options.fsync == "always" else self.written

    def require_copy(self, copied: int, why: Callable[[], str]) -> None:
        """Limit `durable` to the position of the copy: `copied` now, later that of `set_copied`. Before `start`.

        `why` returns the end of an error's sentence: why the copy does not progress; nothing while it does.
        """
        self._copied, self._why_not_copied = copied, why
        self.durable = min(self.durable, copied)

    def set_copied(self, copied: int) -> None:
        """The copy has everything below this LSN. This thread calls the listeners."""
        self._copied = max(copied, self._copied or 0)
        self._publish()

    def give_up_copy(self) -> None:
        """End all waits for the copy with a StorageError: the broker stops. Writes and syncs continue."""
        with self._lock:
            self._copy_given_up = self._copied is not None
            self._done.notify_all()

    def add_stored_listener(self, callback: Callable[[], None]) -> None:
        """Let the writing thread call `callback()` whenever `stored` may have grown. It must not block."""
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
        """Before this, appends stay in memory."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, name="penstock-journal", daemon=True)
        self._thread.start()

    def give_up_waiting(self) -> None:
        """Fail if the log waits for space or descriptors much longer, which ends all waits for the log."""
        self._shortages.give_up()

    def _stop(self) -> None:
        self.give_up_waiting()
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
            if self._output.is_open:
                if self.written != self.synced:
                    self._sync()
                    self._publish()
                self._output.close(self.written, self.synced)
        except Exception as error:
            self.fail(error)

    def _write_and_sync(self, groups: list[RecordGroup], meanwhile: Callable[[], object] | None = None) -> None:
        self._write(groups)
        if self._sync_due():
            if meanwhile is not None:
                self._output.start_sync()
                meanwhile()
            self._sync()
        self._publish()

    def _take(self) -> list[RecordGroup] | None:
        """Return the groups to write next; [] if only a sync is due, None at the end."""
        with self._lock:
            while self._taken_over or not self._due():
                self._idle = not self._taken_over
                self._work.wait(None if self._taken_over else self._time_to_sync())
                self._idle = False
            if self.failure is not None:
                raise self.failure
            if self._open is not None and not self._more_to_come and not self._full:
                self._full.append(self._open)
                self._next = self._open.after
                self._open = None
            if not self._full:
                return None if self._stopping and not self._more_to_come else []
            return [self._full.popleft()]

    def _due(self) -> bool:
        return self._write_due() or (self._stopping and not self._more_to_come) or self.failure is not None or self._sync_due()

    def _write_due(self) -> bool:
        return bool(self._full) or (self._open is not None and not self._more_to_come and self._hurried > self._open.start)

    def _time_to_sync(self) -> float | None:
        if self._options.fsync != "interval" or self.written == self.synced:
            return None
        return max(0.0, self._synced_at + self._options.interval_s - self._monotonic_s())

    def _sync_due(self) -> bool:
        if self.written == self.synced:
            return False
        is_wanted = self.synced < self._sync_wanted <= self.written
        return self._options.fsync == "always" or is_wanted or self._time_to_sync() == 0.0

    def _write(self, groups: list[RecordGroup]) -> None:
        always = self._options.fsync == "always"
        for group in groups:
            if not self._output.has_room(group.start, self._options.segment_bytes):
                if self._output.is_open:
                    self._sync()
                self._output.begin(group.start)
            self._output.write(group, self.synced, preallocates=always, may_wait=not self._taken_over)
            self.written = group.after

    def _sync(self) -> None:
        written, began = self.written, self._monotonic_s()
        self._output.sync()
        self.synced = written
        self._synced_at = self._monotonic_s()
        took = self._synced_at - began
        if self._on_sync is not None:
            self._on_sync(took)
        self._sync_takes = max(took, self._sync_takes + (took - self._sync_takes) / SYNCS_REMEMBERED)
        self._output.note_synced(written)

    def _publish(self) -> None:
        for stored in self._stored_listeners:
            stored()
        with self._lock:
            before = self.durable
            durable = self.durable = self.stored if self._copied is None else max(before, min(self.stored, self._copied))
            assert before <= durable, "durable never falls"
            assert durable <= self.written <= self.end + END_BYTES, "see the order above"
            self._done.notify_all()
        if durable == before and self._copied is not None:
            return
        for callback in self._listeners:
            try:
                callback(durable)
            except Exception:  # the log does not depend on its listeners, whose loop may be closed
                _log.exception("a listener of the journal failed, and will not be called again")
                with self._lock:
                    self._listeners = [listener for listener in self._listeners if listener is not callback]

    def fail(self, error: BaseException) -> None:
        """Stop permanently: a write or sync failed, or the log and the owner's state differ.

        Unwritten records are discarded. Every waiting or later call raises a StorageError that names `error`. May be called under
        a lock of the caller.
        """
        with self._lock:
            if self.failure is not None:
                return
            self.failure = StorageError(f"the journal failed and the broker must stop, nothing was retried: {error}")
            self.failure.__cause__ = error
            # The end moves beyond all that can become durable, so that every later wait fails, also while the thread writes the
            # last group.
            self.end += END_BYTES + 1
            self._open = None
            self._full.clear()
            self._idle = False
            self._work.notify()
            self._done.notify_all()
        if self._on_failure is not None:
            self._on_failure(self.failure)


def _timeout(end: int, timeout_s: float | None) -> TimeoutError:
    return TimeoutError(f"position {end} was not durable within {timeout_s} s; it may become so later")
