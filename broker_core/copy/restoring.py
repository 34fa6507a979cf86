"""A data directory from a copy or a backup.

The directory gets its `id` last, so a broker refuses an incomplete one. Until then it has a file `restoring`, and the same
command continues: it fetches the pieces that are missing or do not match their checksums.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from ..errors import DamagedJournal, InvalidRequest, ResourceLimit, StorageError
from ..journal import lineage, manifest, segments
from ..journal.disk import LocalDisk, write_file
from ..journal.holes import merged
from ..journal.journal import ID_FILE
from ..journal.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from ..stores.objects import NoSuchObject, ObjectStore
from . import marker
from .chain import Chain, ChainState, load, read_header
from .chunks import Chunk
from .contents import Contents, Piece, base_of, offset_of
from .marker import Marker, Restored
from .pictures import ordered

RESTORING = "restoring"
PARALLEL_REQUESTS = 8
PIECE_BYTES = 8 << 20  # of one request
FULL = (errno.ENOSPC, errno.EDQUOT)
CHANGES = 10  # times in a row that a running broker may remove the next object


class Report(NamedTuple):
    """The restored data, and its writer."""

    broker: str
    position: int  # LSN
    bytes: int
    time_ms: int  # of the copy's last chunk, by its writer's clock
    owner: str  # that writer's process and host
    kind: str
    lag: int  # bytes of the log that it had confirmed, but not copied then
    taken_over: bool


def restore(
    store: ObjectStore,
    directory: Path,
    *,
    writer: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Restore the content of the store into an empty directory.

    `writer`, a new name, takes the copy over first: its former writer cannot continue, and all that it has put is restored.
    `progress` receives the bytes read and the total.

    Raises StoreError, and InvalidRequest if there is no copy, or the directory is not empty. Raises DamagedJournal if something
    is missing or does not match its checksum; ResourceLimit if the disk is too small.
    """
    state = _load(store)
    if writer is not None and state.last.kind != "copy":
        raise InvalidRequest(f"{store.url} holds a {state.last.kind}, which has no writer to stop: leave out --take-over")
    disk = _empty_directory(directory)
    try:
        _check_space(disk, directory, state.contents)
        if writer is not None:  # no broker is stopped for an unsuitable directory
            state = _take_over(store, state.last, writer)
        state = _fill(store, directory, state, progress)
        written = _last_written(store, state.last)
        _finish(disk, directory, state, writer)
    except OSError as error:
        if error.errno not in FULL:
            raise StorageError(f"{directory} cannot be written: {error}") from error
        raise ResourceLimit(
            f"the disk of {directory} is full. Free some space and start the restore again there, or name another directory"
        ) from error
    finally:
        disk.close()
    sizes = state.last.position, state.contents.bytes
    return Report(written.broker, *sizes, written.time_ms, written.owner, written.kind, written.lag, writer is not None)


def _load(store: ObjectStore) -> ChainState:
    for _ in range(CHANGES):
        try:
            state = load(store)
            break
        except NoSuchObject:
            continue
    else:
        raise DamagedJournal(f"{store.url}: chunks of the chain are missing")
    if state is None:
        raise InvalidRequest(f"{store.url} holds no copy and no backup of a broker")
    if not state.contents.files:
        raise InvalidRequest(f"{store.url}: its first copy was never complete, so there is nothing to restore yet")
    return state


def _take_over(store: ObjectStore, before: Chunk, writer: str) -> ChainState:
    state = Chain(store, before.broker, writer, before.kind).claim(Marker((before.writer, writer)))
    assert state is not None, "there was a chunk before"
    return state


def _last_written(store: ObjectStore, last: Chunk) -> Chunk:
    """Return the last chunk that is more than a fence."""
    while last.fence and last.number > 1:
        try:
            last = read_header(store, last.number - 1)[0]
        except NoSuchObject:
            break
    return last


def _empty_directory(directory: Path) -> LocalDisk:
    if directory.is_dir():
        names = [name for name in os.listdir(directory) if name != "lock"]
        if names and (RESTORING not in names or ID_FILE in names):  # with an id it is complete
            raise InvalidRequest(f"{directory} is not empty: name a new directory, or remove this one")
    disk = LocalDisk(directory)
    write_file(disk, RESTORING, [b"`penstock restore` was broken off here: start it again, or remove this directory\n"])
    return disk


def _check_space(disk: LocalDisk, directory: Path, contents: Contents) -> None:
    free = disk.free_bytes() + sum(os.stat(directory / name).st_blocks * 512 for name in disk.names())
    if free < contents.bytes:
        raise ResourceLimit(
            f"{directory} has room for {free >> 20} MiB, and the copy has {contents.bytes >> 20} MiB: name another directory"
        )


class _Job(NamedTuple):
    file: str
    piece: Piece


def _jobs(contents: Contents) -> list[_Job]:
    """Return the pieces, those of snapshots first, because a running broker replaces them soonest."""
    order = sorted(contents.files, key=lambda name: (not name.endswith(SNAPSHOT_SUFFIX), name))
    return [_Job(name, piece) for name in order for piece in contents.files[name]]


class _Missing(Exception):
    """A piece whose object is not in the store."""

    def __init__(self, job: _Job) -> None:
        super().__init__(job.piece.object)
        self.job = job


def _fill(store: ObjectStore, directory: Path, state: ChainState, progress: Callable[[int, int], None]) -> ChainState:
    """Return the state that was fetched, a later one if its broker continued and removed objects."""
    fetched, idle = set[_Job](), 0
    while True:
        contents, before = state.contents, len(fetched)
        _remove_others(directory, contents)
        try:
            _fetch_missing(store, directory, contents, fetched, progress)
            break
        except _Missing as missing:
            job = missing.job
            state = _load(store)
            idle = 0 if len(fetched) > before else idle + 1
            if job in _jobs(state.contents) or idle == CHANGES:
                raise DamagedJournal(
                    f"{store.url}/{job.piece.object} is missing: {job.piece.length} bytes of {job.file}; use an older backup"
                ) from missing
    for name in contents.files:
        with _opened(directory, name) as descriptor:
            os.fsync(descriptor)
    return state


def _remove_others(directory: Path, contents: Contents) -> None:
    """Remove files that the broker has dropped since an interrupted attempt."""
    wanted = {_file_name(name): contents.size(name) for name in contents.files}
    for name in os.listdir(directory):
        if name in ("lock", RESTORING):
            continue
        if name not in wanted:
            os.unlink(directory / name)
        elif os.stat(directory / name).st_size > wanted[name]:
            os.truncate(directory / name, wanted[name])


def _fetch_missing(
    store: ObjectStore, directory: Path, contents: Contents, fetched: set[_Job], progress: Callable[[int, int], None]
) -> None:
    """Raises _Missing."""

    def bring(job: _Job) -> _Job:
        with _opened(directory, job.file) as descriptor:
            if not _has(descriptor, job.piece):
                try:
                    _fetch(store, descriptor, job)
                except NoSuchObject as error:
                    raise _Missing(job) from error
        fetched.add(job)
        return job

    jobs, total = _jobs(contents), contents.bytes
    done = sum(job.piece.length for job in jobs if job in fetched)
    wanted = (job for job in jobs if job not in fetched)
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        while some := list(islice(wanted, 4 * PARALLEL_REQUESTS)):
            for job in pool.map(bring, some):
                done += job.piece.length
                progress(done, total)


@contextmanager
def _opened(directory: Path, name: str) -> Iterator[int]:
    """Open a file for one piece: there may be more files than a process may open."""
    descriptor = os.open(directory / _file_name(name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _has(descriptor: int, piece: Piece) -> bool:
    """Return True if the file has the piece, from an interrupted attempt, or because pieces were merged."""
    if os.fstat(descriptor).st_size < piece.end:
        return False
    crc, at = 0, piece.offset
    while at < piece.end and (data := os.pread(descriptor, min(PIECE_BYTES, piece.end - at), at)):
        crc, at = crc32(data, crc), at + len(data)
    return at == piece.end and crc == piece.crc


def _file_name(name: str) -> str:
    if "/" in name or name in (".", "..", ""):
        raise DamagedJournal(f"the copy names a file {name!r}, which no broker has written")
    return f"{name}.restored" if name == ID_FILE else name


def _fetch(store: ObjectStore, descriptor: int, job: _Job) -> None:
    piece, crc, at = job.piece, 0, 0
    while at < piece.length:
        data = store.get_range(piece.object, piece.at + at, min(PIECE_BYTES, piece.length - at))
        if not data:
            raise DamagedJournal(f"{store.url}/{piece.object}, offset {piece.at + at}: the object ends here")
        crc = crc32(data, crc)
        _write(descriptor, data, piece.offset + at)
        at += len(data)
    if crc != piece.crc:
        raise DamagedJournal(
            f"{store.url}/{piece.object}, offset {piece.at}: {piece.length} bytes of {job.file} do not match their checksum; use "
            "an older backup"
        )


def _write(descriptor: int, data: bytes, offset: int) -> None:
    """Write all: on a nearly full disk, a call may write less."""
    rest = memoryview(data)
    while rest:
        done = os.pwrite(descriptor, rest, offset)
        if not done:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest, offset = rest[done:], offset + done


def _finish(disk: LocalDisk, directory: Path, state: ChainState, writer: str | None) -> None:
    """Write the list of segments, the marker, and finally the id."""
    contents, position, names = state.contents, state.last.position, list[str]()
    for name in contents.segments():  # after the last whole group an unconfirmed one may begin
        if base_of(name) > position:
            disk.unlink(name)
            continue
        names.append(name)
        size = min(contents.ends.get(name, contents.size(name)), offset_of(name, position))
        if contents.size(name) > size:
            os.truncate(directory / name, size)
    broker = state.last.broker
    headers = [segments.read_header(disk, name, broker) for name in names]
    headers, begin, gaps = ordered(headers, ()), 0, list[tuple[int, int]]()
    for segment in headers:
        gaps.append((begin, segment.base))
        begin = segment.end
    disk.sync_directory()
    synced = min(position, headers[-1].end) if headers else 0
    manifest.write(disk, broker, headers, synced, merged(gaps), product=None)  # the version that wrote them is unknown
    restored = None if writer is not None or state.last.kind != "copy" else Restored(state.last.writer, state.last.number)
    marker.write(disk, Marker(() if writer is None else (writer,), restored))
    lineage.write(disk, lineage.read(disk, broker).restored(uuid.uuid4().hex))
    disk.rename(f"{ID_FILE}.restored", ID_FILE)
    disk.sync_directory()
    disk.unlink(RESTORING)
    disk.sync_directory()
