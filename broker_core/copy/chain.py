"""The chain of a copy: its writer, and its chunks.

Each method makes one attempt. After a StoreError it may have succeeded or not, and the caller repeats it, `put` with the same
chunk.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ..errors import DamagedJournal, StorageError
from ..journal.disk import Buffer
from ..stores.objects import ObjectStore
from . import chunks
from .chunks import Chunk, ChunkPart
from .contents import Contents, Piece
from .marker import Marker

OBJECTS = "objects/"
PARALLEL_REQUESTS = 8

log = logging.getLogger("penstock.copy")


class CopyFenced(StorageError):
    """The copy belongs to another writer."""


class ChainBroken(StorageError):
    """Chunks that this writer has put are gone: the bucket was emptied, or is another one."""


class Pending(NamedTuple):
    """A chunk to be put. Its bytes do not change."""

    chunk: Chunk
    data: list[Buffer]
    body_at: int  # offset of the parts in the object


class ChainState(NamedTuple):
    """The last chunk, and the files with the parts of all chunks."""

    last: Chunk
    contents: Contents


def _who() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


class Chain:
    """The chain in one store, for one writer, whose name is unique."""

    def __init__(self, store: ObjectStore, broker: str, writer: str, kind: str, clock: Callable[[], float] = time.time) -> None:
        self.store, self.broker, self.writer, self.kind = store, broker, writer, kind
        self.number = 0  # of the last chunk
        self.base = 0  # of the last chunk with contents
        self.position = 0
        self._clock = clock
        self._objects = 0

    def claim(self, marker: Marker) -> ChainState | None:
        """Fence all earlier writers. Return the content of the copy; None if it is new.

        `marker`, with this writer's name, is on the disk. Raises CopyFenced if the copy belongs to another directory.
        """
        while True:
            last = last_chunk(self.store)
            if last is not None:
                self._check_owner(last, marker)
            self.number, self.base, self.position = (last.number, last.base, last.position) if last is not None else (0, 0, 0)
            fence = self.prepare([], [], position=self.position, fence=True)
            if self.store.create(fence.chunk.name, fence.data):
                break  # otherwise another writer was quicker
        self._count(fence.chunk)
        state = load(self.store)
        return state if last is not None else None

    def _check_owner(self, last: Chunk, marker: Marker) -> None:
        if last.broker != self.broker:
            way = "name another place" if self.kind == "backup" else "set copy_url to another place"
            raise CopyFenced(
                f"{self.store.url} holds the {last.kind} of another broker (id {last.broker}, this one is {self.broker}): {way}"
            )
        if last.kind != self.kind:
            raise CopyFenced(f"{self.store.url} holds a {last.kind}, and cannot also take a {self.kind}: use another place")
        if self.kind == "backup" or last.writer in marker.writers:
            return
        if marker.restored is not None and last.writer == marker.restored.writer:
            if last.number == marker.restored.number:
                return
            raise CopyFenced(
                f"{self.store.url} has been written to since this directory was restored from it: {last.owner} still runs, or "
                f"ran until {_at(last)}, and has confirmed more than this directory holds. Restore again, with --take-over: then "
                "it is stopped first"
            )
        raise CopyFenced(
            f"{self.store.url} belongs to another data directory now: {last.owner} has taken it over, and wrote it last at "
            f"{_at(last)}. This directory must not continue: messages would be delivered twice. If the "
            "other broker is the right one, remove this directory. If this one is, set copy_url to another place"
        )

    def prepare(
        self,
        parts: Sequence[ChunkPart],
        body: Sequence[Buffer],
        *,
        position: int,
        lag: int = 0,
        contents: Contents | None = None,
        fence: bool = False,
    ) -> Pending:
        number = self.number + 1
        base = number if contents is not None else self.base
        time_ms = int(self._clock() * 1000)
        chunk = Chunk(
            number, self.broker, self.writer, _who(), self.kind, time_ms, base, position, lag, fence, list(parts), contents
        )
        data = chunks.pack(chunk, list(body))
        return Pending(chunk, data, len(memoryview(data[0])))

    def put(self, pending: Pending) -> None:
        """Raises CopyFenced if another writer has put that number."""
        name = pending.chunk.name
        if not self.store.create(name, pending.data):
            stored = read_header(self.store, pending.chunk.number)[0]
            if stored.writer != self.writer:
                raise self._taken_over(stored)
        self._count(pending.chunk)

    def _count(self, chunk: Chunk) -> None:
        self.number, self.base, self.position = chunk.number, chunk.base, chunk.position

    def check_end(self) -> None:
        """Raises CopyFenced if another writer has continued the chain, ChainBroken if chunks are missing."""
        last = last_chunk(self.store)
        if last is None or last.number < self.number:
            raise ChainBroken(f"{self.store.url} has lost its chunks: the last one was {self.number}")
        if last.writer != self.writer:
            raise self._taken_over(last)

    def _taken_over(self, by: Chunk) -> CopyFenced:
        return CopyFenced(
            f"{self.store.url} was taken over at {_at(by)} by {by.owner}: this broker was declared lost, and another one "
            "continues from its copy. This one confirms nothing more and stops. Do not start it again on this directory, unless "
            "you know that the other one is gone"
        )

    def new_object(self) -> str:
        self._objects += 1
        return f"{OBJECTS}{self.writer}-{self._objects:08d}"

    def garbage(self, contents: Contents) -> list[str]:
        """Return the names of objects that no reader of the chain, from its base on, needs."""
        needed = contents.objects()
        unnamed = [name for name in self.store.names(OBJECTS) if name not in needed]
        former = [name for name in self.store.names(chunks.FOLDER) if chunks.number_of(name) < self.base]
        return unnamed + [name for name in former if name not in needed]


def _at(chunk: Chunk) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(chunk.time_ms / 1000))


def last_chunk(store: ObjectStore) -> Chunk | None:
    last = max((chunks.number_of(name) for name in store.names(chunks.FOLDER)), default=0)
    return read_header(store, last)[0] if last else None


def read_header(store: ObjectStore, number: int) -> tuple[Chunk, int]:
    """Return a chunk's header, and the offset of its body."""
    name = chunks.name_of(number)
    where = f"{store.url}/{name}"
    data = store.get_range(name, 0, chunks.HEAD_GUESS)
    needed = chunks.header_bytes(data, where)
    if needed > len(data):
        data = store.get_range(name, 0, needed)
    return chunks.unpack(data, where)


def load(store: ObjectStore) -> ChainState | None:
    """Read the chain; None if there is no copy. Raises NoSuchObject if the writer has removed a chunk meanwhile: call it again.
    DamagedJournal if the chain is inconsistent."""
    last = last_chunk(store)
    if last is None:
        return None
    first = last.base or last.number + 1
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        headers = list(pool.map(lambda number: read_header(store, number), range(first, last.number + 1)))
    contents = Contents()
    for chunk, body_at in headers:
        if chunk.contents is not None:
            contents = chunk.contents.copy()
        try:
            add_parts(contents, chunk, body_at)
        except ValueError as error:
            raise DamagedJournal(
                f"{store.url}/{chunk.name}, offset 0: the chunk does not follow the ones before: {error}"
            ) from None
    return ChainState(headers[-1][0] if headers else last, contents)


def add_parts(contents: Contents, chunk: Chunk, body_at: int) -> None:
    """Raises ValueError if the parts do not follow the contents."""
    at = body_at
    for part in chunk.parts:
        contents.add(part.file, Piece(chunk.name, at, part.offset, part.length, part.crc))
        at += part.length
