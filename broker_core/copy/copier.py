"""The broker's threads that keep the copy.

One claims the copy, puts the missing bytes, and follows the log. The other puts snapshots, merges small pieces, and deletes
unneeded objects. Its results count from the next contents on.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

from zlib_ng.zlib_ng import crc32

from ..errors import DamagedJournal, DataLoss, PenstockError, StorageError
from ..journal import Disk, Journal
from ..journal.disk import Buffer
from ..journal.snapshots import names_of as snapshots_of
from ..stores.objects import NoSuchObject, ObjectStore, StoreError
from ..stores.retry import retry_after
from . import chunks, marker, pictures, uploads
from .chain import Chain, ChainBroken, CopyFenced, add_parts
from .chunks import ChunkPart
from .contents import Contents, Piece, PieceRun, base_of, offset_of, small_runs

Mode = Literal["async", "sync"]

CHUNK_BYTES = 16 << 20  # of the log in one put: about 0.2 s of one connection to S3
SMALL_BYTES = 4 << 20  # at most 64 objects for a file of 256 MiB
MERGE_LEAST = 64  # pieces of the segment that grows
SAMPLES_MAX = 4096  # then pairs become one
CHUNKS_MAX = 256  # since the last contents: each is a request of a restore
DELETE_AFTER_S = 300.0  # a restore may use replaced contents for this long
LOOK_S = 10.0  # without puts, between two checks of the copy's writer
TEND_S = 1.0
UNTENDED_S = 60.0  # of failures before the log reports them
START_S = 10.0  # then a start continues without the store
CLOSE_S = 10.0  # a clean stop waits this long for the rest
HANGING_S = 1.0  # and then this long for a running request
FAILED_S = 30.0  # after a failure that another attempt does not repair

T = TypeVar("T")
log = logging.getLogger("penstock.copy")


class _CopierStopping(Exception):
    """The broker stops."""


class Copier:
    """Keeper of one copy, for one life of a broker. Call `begin` before the journal starts, `start` after it, `close` before it
    closes."""

    def __init__(
        self,
        store: ObjectStore,
        journal: Journal,
        disk: Disk,
        *,
        writer: str,
        mode: Mode = "async",
        interval_s: float = 1.0,
    ) -> None:
        self._store, self._journal, self._disk, self.mode, self.interval_s = store, journal, disk, mode, interval_s
        self._clock = time.monotonic
        self._chain = Chain(store, journal.broker_id, writer, "copy")
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._stopping = False
        self._until = 0.0
        self._is_claimed = False
        self._complete = False
        self._contents = Contents()  # the next contents of the chain
        self._dirty = False  # they differ from those of the chain
        self._known: set[str] = set()  # a restore may need these stored objects
        self._condemned: deque[tuple[float, str]] = deque()  # unneeded objects, and the times of their deletion
        self._gone: dict[str, int] = {}  # dropped segments, and the end of the log then
        self._cursor = self._target = 0
        self._samples: deque[tuple[int, float]] = deque()  # positions of the log, and their times
        self._put_at = 0.0
        self._idle = False
        self._swept = False
        self._trouble: tuple[float, str] | None = None
        self._threads: list[threading.Thread] = []

    def begin(self, limit_s: float = START_S) -> None:
        """Claim the copy. If the store cannot be reached within `limit_s` seconds, the thread claims it later.

        Raises CopyFenced if the copy belongs to another directory, StorageError if the directory cannot be written.
        """
        known = marker.read(self._disk).with_writer(self._chain.writer)
        try:
            marker.write(self._disk, known)
        except OSError as error:
            raise StorageError(f"{self._disk.path(marker.NAME)} cannot be written: {error.strerror or error}") from error
        deadline, attempts, copied = self._clock() + limit_s, 0, 0
        while True:
            try:
                copied = self._claim()
                break
            except StoreError as error:
                attempts += 1
                if self._clock() >= deadline:
                    log.warning("the copy cannot be reached, the broker starts without it: %s", error)
                    self._note_trouble(error)
                    break
                time.sleep(min(retry_after(attempts), max(0.0, deadline - self._clock())))
        if self.mode == "sync":
            self._journal.require_copy(copied, self._why)

    def start(self) -> None:
        self._journal.add_stored_listener(self._on_stored)
        self._on_stored()
        for name, work in (("penstock-copy", self._run), ("penstock-copy-tend", self._tend)):
            thread = threading.Thread(target=work, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def close(self, limit_s: float = CLOSE_S) -> None:
        """Copy the rest, for at most `limit_s` seconds, and end the threads. A thread with a hanging request changes nothing
        more, and ends with the request or the process."""
        with self._lock:
            self._stopping, self._until = True, self._clock() + limit_s
            self._news.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, self._until - self._clock()) + HANGING_S)
        behind = self._journal.stored - self._chain.position
        if behind > 0 and self._journal.failure is None:
            log.warning("the copy at %s ends %d bytes before the log; the next start copies them", self._store.url, behind)

    def status(self) -> dict[str, Any]:
        lag_s, lag = self.lag()
        trouble = self._trouble
        state = "waiting" if trouble else "copying" if self._complete else "beginning"
        return {
            "url": self._store.url,
            "copy": self.mode,
            "state": state,
            "lagSeconds": round(lag_s, 3),
            "lagBytes": lag,
            "position": self._chain.position,
            "error": trouble[1] if trouble else None,
            "failingSeconds": round(self._clock() - trouble[0], 3) if trouble else 0.0,
        }

    def lag(self) -> tuple[float, int]:
        """Return the age in seconds of the oldest byte that the copy lacks, and the number of these bytes."""
        lag = max(0, self._journal.stored - self._chain.position)
        with self._lock:
            since = self._samples[0][1] if self._samples and lag else None
        return (0.0 if since is None else max(0.0, self._clock() - since)), lag

    def _why(self) -> str:
        trouble = self._trouble
        if trouble is not None:
            return (
                f", since the copy is missing (copy = sync): for {self._clock() - trouble[0]:.0f} s the store says: {trouble[1]}"
            )
        return "" if self._complete else ", since the first copy is not complete (copy = sync)"

    def _on_stored(self) -> None:
        stored = self._journal.stored
        with self._lock:
            if stored > (self._samples[-1][0] if self._samples else self._chain.position):
                now = self._clock()
                if len(self._samples) > 1 and now - self._samples[-2][1] < 0.05:
                    self._samples[-1] = (stored, self._samples[-1][1])
                else:
                    self._samples.append((stored, now))
                if len(self._samples) > SAMPLES_MAX:  # the store is unavailable for long
                    samples, rest = list(self._samples), len(self._samples) % 2
                    pairs = zip(samples[:-1:2], samples[1::2], strict=True)
                    self._samples = deque([(later[0], earlier[1]) for earlier, later in pairs] + samples[len(samples) - rest :])
            if self._idle or self.mode == "sync" or stored - self._cursor >= CHUNK_BYTES:
                self._news.notify_all()

    # The thread that puts chunks

    def _run(self) -> None:
        while True:
            try:
                if not self._is_claimed:
                    self._patiently(self._claim)
                self._catch_up()
                self._follow()
            except _CopierStopping:
                return
            except CopyFenced as error:
                log.critical("%s", error)
                self._journal.fail(error)
                return
            except ChainBroken as error:
                log.error("%s; the copy begins again", error)
                self._forget()
            except (DataLoss, pictures.PictureGone):
                log.warning("the journal has dropped segments before their copy, which begins again from the latest snapshot")
            except Exception as error:
                if self._is_over():
                    return
                if not isinstance(error, PenstockError):
                    log.exception("the copy failed")
                self._note_trouble(error)
                with self._lock:
                    self._news.wait_for(lambda: self._stopping, FAILED_S)
                    if self._stopping:
                        return

    def _forget(self) -> None:
        with self._lock:
            self._is_claimed = self._complete = self._swept = False
            self._contents = Contents()
            self._known, self._gone = set(), {}
            self._condemned.clear()

    def _claim(self) -> int:
        """Return the position of the copy."""
        known = marker.read(self._disk)
        state = self._chain.claim(known)
        if state is not None and state.last.position > self._journal.stored:
            raise CopyFenced(
                f"{self._store.url} holds more of the log than this directory ({state.last.position:,} bytes, here are "
                f"{self._journal.stored:,}): the directory was put back from an older state. Restore it from the copy, or set "
                "copy_url to another place"
            )
        if known.restored is not None:
            marker.write(self._disk, known._replace(restored=None))
        with self._lock:
            self._is_claimed = True
            self._contents = Contents() if state is None else state.contents.copy()
        log.info("the copy at %s is this broker's, from chunk %d on", self._store.url, self._chain.number)
        return 0 if state is None else state.last.position

    def _catch_up(self) -> None:
        """Put everything that the copy lacks now."""
        if not self._swept:
            for name in self._patiently(lambda: self._chain.garbage(self._contents)):
                self._patiently(partial(self._store.delete, name))
            self._swept = True
        while True:
            picture = pictures.take(self._disk, lambda: self._journal.stored)
            contents = self._contents.copy()
            try:
                uploads.upload(self._chain, self._disk, picture, contents, self._patiently)
                break
            except pictures.PictureGone:
                continue
            finally:
                with self._lock:
                    self._contents = contents  # uploads count, even if another picture has to be taken
        with self._lock:
            self._known |= self._contents.objects()
            self._gone = {}
        self._cursor = self._target = picture.position
        self._put([], [], picture.position, commit=True)
        if not self._complete:
            self._complete = True
            log.info("the copy at %s is complete up to %d", self._store.url, picture.position)

    def _follow(self) -> None:
        while True:
            while not self._has_work():
                self._patiently(self._chain.check_end)
            if self._target <= self._cursor:
                self._target = self._journal.stored
            limit = min(CHUNK_BYTES, self._target - self._cursor)
            pieces = self._journal.log_bytes(self._cursor, limit) if limit > 0 else []
            parts = [ChunkPart(name, at, len(data), crc32(data)) for name, at, data in pieces]
            body = [data for *_, data in pieces]
            self._cursor += max(0, limit)
            position = self._target if self._cursor == self._target else self._chain.position
            self._put(parts, list[Buffer](body), position)

    def _has_work(self) -> bool:
        """Wait for work. Return False when it is time to check the copy's writer."""
        with self._lock:
            while True:
                now, waiting = self._clock(), self._journal.stored - self._cursor
                if self._journal.failure is not None:
                    raise _CopierStopping
                if self._stopping and (waiting <= 0 or now >= self._until):
                    raise _CopierStopping
                since = self._samples[0][1] if self._samples else now
                due = since + (0.0 if self.mode == "sync" else self.interval_s) if waiting > 0 else now + LOOK_S
                if waiting >= CHUNK_BYTES or (waiting > 0 and (self._stopping or self.mode == "sync" or due <= now)):
                    return True
                if self._dirty and self._contents.snapshot_position <= self._chain.position and now - self._put_at >= TEND_S:
                    return True
                if now - self._put_at >= LOOK_S:
                    self._put_at = now
                    return False
                self._idle = waiting <= 0
                self._news.wait(max(0.001, min(due - now, self._put_at + LOOK_S - now, TEND_S)))
                self._idle = False

    def _put(self, parts: list[ChunkPart], body: list[Buffer], position: int, commit: bool = False) -> None:
        with self._lock:
            current = self._contents.copy()
        small, small_body = uploads.small_parts(self._disk, current)
        contents = self._contents_to_commit(position) if commit or self._dirty else None
        lag = max(0, self._journal.stored - position)
        pending = self._chain.prepare([*parts, *small], [*body, *small_body], position=position, lag=lag, contents=contents)
        began = self._clock()
        self._patiently(lambda: self._chain.put(pending))
        now = self._clock()
        log.debug("chunk %d, %d bytes: %.3f s", pending.chunk.number, sum(part.length for part in parts), now - began)
        with self._lock:
            self._put_at = now
            add_parts(self._contents, pending.chunk, pending.body_at)
            self._known.add(pending.chunk.name)
            while self._samples and self._samples[0][0] <= position:
                self._samples.popleft()
            if contents is not None:
                self._condemn(contents, pending.chunk.parts, now)
        if self.mode == "sync":
            self._journal.set_copied(position)

    def _contents_to_commit(self, position: int) -> Contents | None:
        """Return the contents without unneeded segments; None while their snapshot is ahead of the log in the copy."""
        with self._lock:
            if self._contents.snapshot_position > position:
                return None
            for name in self._unneeded_segments(position):
                self._contents.remove([name])
                del self._gone[name]
            self._dirty = False
            return self._contents.copy()

    def _unneeded_segments(self, position: int) -> list[str]:
        """Return the dropped segments that a restore up to `position` does not need. Under the lock."""
        local, unneeded = set(self._journal.segment_names()), []
        names = self._contents.segments()
        for name, after in itertools.pairwise(names):  # not the last, which marks the end of the log
            if name not in local:
                since = self._gone.setdefault(name, self._journal.end)
                size = self._contents.ends.get(name, self._contents.size(name))
                end = min(base_of(name) + size - offset_of(name, base_of(name)), base_of(after))
                if since <= position and end <= self._contents.snapshot_position:
                    unneeded.append(name)
        return unneeded

    def _condemn(self, contents: Contents, parts: list[ChunkPart], now: float) -> None:
        """Mark unneeded objects. `contents` are in the chain."""
        needed = contents.objects() | self._contents.objects() | {chunks.name_of(self._chain.base)}
        self._condemned.extend((now + DELETE_AFTER_S, name) for name in sorted(self._known - needed))
        self._known = needed

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Repeat `attempt` while the store fails. Raises _CopierStopping, ChainBroken, CopyFenced."""
        attempts, look = 0, False
        while True:
            if self._journal.failure is not None or (self._stopping and self._clock() >= self._until):
                raise _CopierStopping
            try:
                if look:
                    self._chain.check_end()
                result = attempt()
            except StoreError as error:
                attempts += 1
                look = self._is_claimed
                self._note_trouble(error)
            else:
                self._trouble = None
                return result
            with self._lock:
                wait = retry_after(attempts)
                if self._stopping:
                    wait = min(wait, self._until - self._clock())
                if wait > 0:
                    self._news.wait_for(lambda: self._stopping or self._journal.failure is not None, wait)
                stopping = self._stopping
            if stopping:
                time.sleep(min(0.2, max(0.0, wait)))

    def _note_trouble(self, error: Exception) -> None:
        self._trouble = (self._clock() if self._trouble is None else self._trouble[0], str(error))
        log.debug("the copy waits, and tries again: %s", error)

    def _is_over(self) -> bool:
        return self._stopping or self._journal.failure is not None

    def _once(self, put: Callable[[], None]) -> None:
        if self._is_over():
            raise _CopierStopping
        put()

    # The thread that tends the stored objects

    def _tend(self) -> None:
        failing: float | None = None  # infinite once the failure is in the log
        while True:
            with self._lock:
                self._news.wait_for(self._is_over, TEND_S)
                if self._is_over():
                    return
            try:
                if self._complete:
                    self.tend()
                failing = None
            except (StoreError, FileNotFoundError, pictures.PictureGone, DamagedJournal) as error:
                log.debug("tending the copy is tried again: %s", error)
                failing = self._clock() if failing is None else failing
                if self._clock() - failing >= UNTENDED_S:
                    failing = math.inf
                    log.warning("the copy at %s grows, because tending it fails: %s", self._store.url, error)
            except _CopierStopping:
                return
            except Exception:
                if not self._is_over():
                    log.exception("tending the copy failed; it is tried again")

    def tend(self) -> None:
        """After a StoreError, call it again."""
        self._put_snapshot()
        with self._lock:
            contents, last = self._contents.copy(), self._contents.segments()[-1:]
            if self._chain.number - self._chain.base >= CHUNKS_MAX or self._unneeded_segments(self._chain.position):
                self._dirty = True
        for run in small_runs(contents, last, small=SMALL_BYTES, least=MERGE_LEAST):
            with contextlib.suppress(pictures.PictureGone):  # the journal has dropped it
                self._merge(run)
        self._delete_due()

    def _put_snapshot(self) -> None:
        name = next(iter(snapshots_of(self._disk)), None)
        if name is None or base_of(name) <= self._contents.snapshot_position:
            return
        size, pieces = self._disk.size(name), list[Piece]()
        file = uploads.open_file(self._disk, name)
        for start in range(0, size, uploads.OBJECT_BYTES):
            stop = min(size, start + uploads.OBJECT_BYTES)
            pieces.append(uploads.put_range(self._chain, file, self._disk.path(name), start, stop, self._once))
        with self._lock:
            self._contents.remove(self._contents.snapshots())
            self._contents.files[name] = pieces
            self._dirty = True
            self._news.notify_all()

    def _merge(self, run: PieceRun) -> None:
        file = uploads.open_file(self._disk, run.file)
        piece = uploads.put_range(self._chain, file, self._disk.path(run.file), run.start, run.stop, self._once)
        with self._lock:
            if self._contents.size(run.file) >= run.stop:
                self._contents.replace(run.file, piece)
                self._dirty = True

    def _delete_due(self) -> None:
        while self._condemned and self._condemned[0][0] <= self._clock():
            name = self._condemned[0][1]
            with contextlib.suppress(NoSuchObject):
                self._store.delete(name)
            with self._lock:
                if self._condemned and self._condemned[0][1] == name:
                    self._condemned.popleft()
