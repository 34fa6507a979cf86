"""A disk in memory with the faults of real ones: it loses, tears and flips bytes, is full, and fails.

`LyingDisk` is a `Disk`. It counts its operations (`calls`). It can fail one of them (`fail`), be full (`room`), or stop at the
n-th operation that changes something (`stop_at`). One of two disks follows:

- `power_cut(random)`: each unsynced page has one of its states since the last sync. The file ends anywhere after the synced
  bytes. Changes of names since the last `sync_directory` may be undone.
- `kill()`: the process is gone, but the page cache stays: all bytes read back, and are still not on the disk.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pyarrow as pa

from penstock.broker_core.journal.disk import FileIdentity
from penstock.broker_core.journal.reserve import is_full

PAGE = 4096
ROOM = 3 * PAGE


class Inode:
    def __init__(self, data: bytes = b"", synced: int = 0) -> None:
        self.data = bytearray(data)
        self.synced = synced  # bytes that are on the disk
        self.states: list[int] = []  # its lengths since the last sync
        self.room = 0  # up to this length it reads as zeros after its data
        self.most_room = 0  # the largest room so far
        self.notes: list[bytes] = []  # bytes written in place, each over the previous ones

    def append(self, data: bytes) -> None:
        self.data += data
        self.states.append(len(self.data))

    @property
    def content(self) -> bytes:
        return bytes(self.data).ljust(self.room, b"\0")

    def sync(self) -> None:
        self.synced, self.states = len(self.data), []

    def survivor(self, random: Random) -> Inode:
        """Copy the remains after a power cut."""
        if self.notes:
            old, new = random.choice(self.notes), random.choice(self.notes)
            left = random.choice([old, new, new[: len(new) // 2] + old[len(new) // 2 :]])
            return Inode(left, len(left))
        lengths = [self.synced, *self.states]
        size = random.choice([random.choice(lengths), random.randint(self.synced, len(self.data)), len(self.data)])
        worst = random.choice(["none", "all", "any"])
        data = bytearray()
        for start in range(0, size, PAGE):
            length = {"none": self.synced, "all": len(self.data), "any": random.choice(lengths)}[worst]
            page = self.data[start : max(start, min(start + PAGE, length))]
            data += page + bytes(PAGE - len(page))
        room = random.choice([0, random.randint(0, self.most_room), self.most_room])
        return Inode(bytes(data[:size]).ljust(room, b"\0"), max(size, room))


class LyingDisk:
    def __init__(self, names: dict[str, Inode] | None = None, durable: dict[str, Inode] | None = None) -> None:
        self._names = names if names is not None else {}  # as they read
        self._durable = durable if durable is not None else dict(self._names)  # as they are on the disk
        self._changes: list[tuple[str, str, Inode | None]] = []  # since: (kind, name, inode), or ("rename " + new, old, inode)
        self.calls: Counter[str] = Counter()
        self.fail: Callable[[str, str], OSError | None] = lambda call, name: None
        self.room: int | None = None  # bytes that can still be written
        self.time_s = 0.0  # its clock; `fail` advances it to make a call slow
        self.stop_at: int | None = None
        self.stopped = False
        self._steps = 0

    def _call(self, call: str, name: str = "") -> None:
        self.calls[call] += 1
        self._steps += 1
        if self.stopped or self._steps == self.stop_at:
            self.stopped = True
            raise OSError(errno.EIO, "the machine is off")
        error = self.fail(call, name)
        if error is not None:
            raise error

    # ---- after a crash

    def power_cut(self, random: Random) -> LyingDisk:
        self.stopped = True
        names = dict(self._durable)
        worst = random.choice(["none", "all", "any"])
        for kind, name, inode in self._changes:
            if worst == "none" or (worst == "any" and random.random() < 0.5):
                continue
            _change(names, kind, name, inode)
        survivors: dict[int, Inode] = {}
        for inode in names.values():
            survivors.setdefault(id(inode), inode.survivor(random))
        return LyingDisk({name: survivors[id(inode)] for name, inode in names.items()})

    def kill(self) -> LyingDisk:
        self.stopped = True
        after = LyingDisk(self._names, self._durable)
        after._changes = self._changes
        return after

    def copy(self) -> LyingDisk:
        """Copy the disk with all bytes, as if synced."""
        names = {name: Inode(bytes(inode.data), len(inode.data)) for name, inode in self._names.items()}
        for name, inode in self._names.items():
            names[name].room, names[name].most_room = inode.room, inode.most_room
        return LyingDisk(names)

    def data(self, name: str) -> bytearray:
        """Return the bytes of a file, for changes."""
        return self._names[name].data

    def truncate(self, name: str, size: int) -> None:
        del self._names[name].data[size:]
        self._names[name].room = self._names[name].most_room = 0

    # ---- Disk

    def names(self) -> list[str]:
        return sorted(self._names)

    def create(self, name: str, *, optional: bool = False) -> _File:
        self._call("create", name)
        inode = Inode()
        self._do("create", name, inode)
        return _File(self, name, inode)

    def open(self, name: str) -> _File:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        return _File(self, name, self._names[name])

    def create_note(self, name: str) -> _Note:
        self._call("create", name)
        inode = Inode()
        self._do("create", name, inode)
        return _Note(self, name, inode)

    def size(self, name: str) -> int:
        return len(self._names[name].content)

    def rename(self, old: str, new: str) -> None:
        self._call("rename", new)
        self._do("rename " + new, old, self._names[old])

    def unlink(self, name: str) -> None:
        self._call("unlink", name)
        self._do("unlink", name, None)

    def _do(self, kind: str, name: str, inode: Inode | None) -> None:
        _change(self._names, kind, name, inode)
        self._changes.append((kind, name, inode))

    def sync_directory(self) -> None:
        self._call("sync_directory")
        self._durable, self._changes = dict(self._names), []

    def free_bytes(self) -> int:
        return 1 << 40 if self.room is None else self.room

    def fill_reserve(self, nbytes: int) -> None:
        pass  # `room` is its free space

    def has_reserve(self) -> bool:
        return True

    def path(self, name: str) -> str:
        return f"/disk/{name}"

    def now_ns(self) -> int:
        return 1_700_000_000_000_000_000

    def monotonic_s(self) -> float:
        return self.time_s

    def close(self) -> None:
        pass


def _change(names: dict[str, Inode], kind: str, name: str, inode: Inode | None) -> None:
    if kind == "create" and inode is not None:
        names[name] = inode
    elif kind == "unlink":
        names.pop(name, None)
    elif name in names and names[name] is inode:
        names[kind.removeprefix("rename ")] = names.pop(name)


class _File:
    def __init__(self, disk: LyingDisk, name: str, inode: Inode) -> None:
        self._disk, self._name, self._inode = disk, name, inode

    def append(self, buffers: Sequence[bytes]) -> None:
        data = b"".join(buffers)
        if self._disk.room is not None:
            if len(data) > self._disk.room:
                raise OSError(errno.ENOSPC, "no space left on the disk")
            self._disk.room -= len(data)
        try:
            self._disk._call("append", self._name)
        except OSError as error:
            if not is_full(error):
                self._inode.append(data[: len(data) // 2])  # a failed write has written a part
            raise
        self._inode.append(data)

    def preallocate(self, nbytes: int) -> None:
        if self._disk.room is not None or len(self._inode.data) + nbytes <= self._inode.room:
            return
        self._disk._call("preallocate", self._name)
        self._inode.room = self._inode.most_room = len(self._inode.data) + max(nbytes, ROOM)

    def start_sync(self) -> None:
        pass  # no guarantee

    def sync(self) -> None:
        self._disk._call("sync", self._name)
        self._inode.sync()

    def close(self) -> None:
        self._inode.room = 0  # until the next power cut: the room is not synced

    def read(self, offset: int, length: int) -> bytes:
        error = self._disk.fail("read", self._name)
        if error is not None:
            raise error
        return self._inode.content[offset : offset + length]

    def size(self) -> int:
        return len(self._inode.content)

    def map(self) -> pa.Buffer:
        return pa.py_buffer(self._inode.content)

    def identity(self) -> FileIdentity:
        return FileIdentity(1, id(self._inode))


class _Note:
    """Choose the remains of bytes that were written in place, after a power cut: the newest, or any since the file was new."""

    def __init__(self, disk: LyingDisk, name: str, inode: Inode) -> None:
        self._disk, self._name, self._inode = disk, name, inode
        inode.notes = [b""]

    def write(self, data: bytes) -> None:
        self._disk._call("note", self._name)
        self._inode.data[:] = data
        self._inode.notes.append(data)

    def close(self) -> None:
        pass
