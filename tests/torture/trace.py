"""A trace of system calls by strace, and the files that a power cut could leave at any point of it.

`read_trace` yields the calls that change files below one directory, in order. A sync has two calls, for its begin and its end:
it stores only the bytes that were written before its begin, and guarantees them only after its end.

`Disk` follows the calls. Its `power_cut` writes a state that the disk may contain then:

- Each sector that was written since a file's last sync is stored or not.
- The file's length is that of any of these writes.
- Any change of names since the directory's last sync may be undone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from penstock.broker_core.journal.reserve import NAME as RESERVE

SECTOR = 512
CALLS = "openat,open,creat,write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,"
CALLS += "ftruncate,fallocate,mkdir,mkdirat,link,linkat,sendfile,copy_file_range"
STRACE = ["strace", "-f", "-q", "-y", "-xx", "-s", str(1 << 26), "--seccomp-bpf", "-e", f"trace={CALLS}", "-e", "signal=none"]

_LINE = re.compile(r"(\d+) +(.*)", re.DOTALL)
_CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+|\?)(?:<[^>]*>)?( .*)?$", re.DOTALL)
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)", re.DOTALL)
_FD = re.compile(r"-?\d+<([^>]*)>|AT_FDCWD(?:<([^>]*)>)?")
_HEX = re.compile(r"\\x([0-9a-f]{2})")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')


class Call(NamedTuple):
    """One call on a file of the directory, or on the directory (`name` is empty). `began` marks the begin of a sync.

    `data` are the bytes written at `offset` (None: at the end). `new_name` is set for a rename.
    """

    kind: str
    name: str
    data: bytes = b""
    offset: int | None = None
    new_name: str = ""
    length: int = 0
    began: bool = False
    thread: int = 0


def read_trace(path: Path, directory: Path, witness: Path) -> Iterator[Call]:
    """Yield the calls on files of `directory`, and the lines written to `witness` (kind *witness*)."""
    begun: dict[str, str] = {}
    with path.open(errors="replace") as file:
        for line in file:
            match = _LINE.match(line.rstrip("\n"))
            assert match is not None, line[:200]
            thread, text = match.groups()
            if text.endswith("<unfinished ...>"):
                begun[thread] = text.removesuffix("<unfinished ...>")
                yield from _began(begun[thread], directory, int(thread))
                continue
            resumed = _RESUMED.match(text)
            if resumed is not None:
                text = begun.pop(thread, "") + resumed[2]
            else:
                yield from _began(text, directory, int(thread))
            call = _CALL.match(text)
            if call is not None and not call[3].startswith("-") and call[3] != "?":
                yield from _ended(call[1], call[2], int(call[3]), directory, witness, int(thread))


def _began(text: str, directory: Path, thread: int) -> Iterator[Call]:
    if text.startswith(("fsync(", "fdatasync(")):
        name = _name(_path_of(text), directory)
        if name is not None:
            yield Call("sync", name, began=True, thread=thread)


def _ended(kind: str, arguments: str, result: int, directory: Path, witness: Path, thread: int) -> Iterator[Call]:
    if kind in ("write", "writev", "pwrite64", "pwritev", "pwritev2"):
        path = _path_of(arguments)
        data = b"".join(_octets(match[1]) for match in _STRING.finditer(arguments))[:result]
        if path == str(witness):
            for line in data.decode().splitlines():
                yield Call("witness", line)
        name = _name(path, directory)
        if name is not None:
            assert len(data) == result, "strace cut the written bytes"
            offset = int(arguments.rsplit(",", 1)[1]) if kind.startswith("pwrite") else None
            yield Call("write", name, data, offset)
    elif kind in ("fsync", "fdatasync"):
        name = _name(_path_of(arguments), directory)
        if name is not None:
            yield Call("sync", name, thread=thread)
    elif kind in ("ftruncate", "fallocate"):
        name = _name(_path_of(arguments), directory)
        if name is not None:
            *mode, offset, length = (int(number) for number in ["0", *arguments.split(",")[1:]])
            assert kind == "ftruncate" or (name == RESERVE and not any(mode)), "only the growing reserve is simulated"
            yield Call("truncate", name, length=length if kind == "ftruncate" else offset + length)
    elif kind in ("openat", "open", "creat"):
        name = _name(_arguments(arguments)[0], directory)
        if name and (kind == "creat" or "O_CREAT" in arguments):
            yield Call("create", name, length=int("O_TRUNC" in arguments))
    elif kind in ("rename", "renameat", "renameat2"):
        names = [_name(path, directory) for path in _arguments(arguments)]
        if names[0] and names[1]:
            yield Call("rename", names[0], new_name=names[1])
    elif kind in ("unlink", "unlinkat"):
        name = _name(_arguments(arguments)[0], directory)
        if name:
            yield Call("unlink", name)
    elif kind in ("link", "linkat", "sendfile", "copy_file_range"):
        assert _name(_path_of(arguments), directory) is None, f"{kind} is not simulated"


def _path_of(text: str) -> str:
    match = _FD.search(text)
    return _octets(match[1] or match[2] or "").decode() if match is not None else ""


def _arguments(arguments: str) -> list[str]:
    """Return the paths among the arguments. A relative path is below the directory of the descriptor before it."""
    paths = [_octets(match[1]).decode() for match in _STRING.finditer(arguments)]
    folders = [_octets(match[1] or match[2] or "").decode() for match in _FD.finditer(arguments)]
    whole = [
        path if path.startswith("/") or not folders else f"{folders[min(place, len(folders) - 1)]}/{path}"
        for place, path in enumerate(paths)
    ]
    return whole or [""]


def _octets(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") else text.encode()


def _name(path: str, directory: Path) -> str | None:
    """Return the name of a file in the directory; empty for the directory itself, None for other files."""
    if path == str(directory):
        return ""
    head, _, tail = path.rpartition("/")
    return tail if head == str(directory) else None


@dataclass
class Inode:
    durable: bytearray = field(default_factory=bytearray)
    content: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # (offset, data), or (length, None) of a truncation
    begun: dict[int, int] = field(default_factory=dict)  # by thread: the number of pending writes when its sync began

    def write(self, data: bytes, offset: int | None, position: dict[int, int]) -> None:
        at = position.get(id(self), 0) if offset is None else offset
        _put(self.content, at, data)
        self.pending.append((at, data))
        if offset is None:
            position[id(self)] = at + len(data)

    def sync(self, thread: int) -> None:
        count = self.begun.pop(thread, len(self.pending))
        for at, data in self.pending[:count]:
            _apply(self.durable, at, data)
        del self.pending[:count]
        for waiter in self.begun:
            self.begun[waiter] = max(0, self.begun[waiter] - count)

    def survivor(self, random: Random) -> bytes:
        """Return the file after a power cut. Each sector has its content of some moment since the last sync."""
        left = bytearray(self.durable)
        worst = random.choice(["none", "all", "any", "any", "prefix"])
        until = {"none": 0, "all": len(self.pending), "any": len(self.pending), "prefix": random.randint(0, len(self.pending))}
        sectors: dict[int, list[int]] = {}
        longest = len(left)
        for number, (at, data) in enumerate(self.pending[: until[worst]]):
            if data is None:
                if worst != "any" or random.random() < 0.5:
                    _apply(left, at, None)
                continue
            longest = max(longest, at + len(data))
            if worst != "any":
                _put(left, at, data)
                continue
            for sector in range(at // SECTOR, (at + len(data) - 1) // SECTOR + 1):
                sectors.setdefault(sector, []).append(number)
        for sector, numbers in sectors.items():
            for number in numbers[: random.choice([0, random.randint(0, len(numbers)), len(numbers)])]:
                at, data = self.pending[number]
                assert data is not None
                start, stop = max(at, sector * SECTOR), min(at + len(data), (sector + 1) * SECTOR)
                _put(left, start, data[start - at : stop - at])
        if random.random() < 0.3:  # the new length is stored without the content
            left.extend(bytes(max(0, random.choice([longest, random.randint(0, longest)]) - len(left))))
        return bytes(left)


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    if data is not None:
        _put(content, at, data)
    elif at < len(content):
        del content[at:]
    else:
        content.extend(bytes(at - len(content)))


def _put(content: bytearray, at: int, data: bytes) -> None:
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data


class Disk:
    """The directory after the calls so far."""

    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self.durable: dict[str, Inode] = {}
        self.changes: list[tuple[str, str, Inode | None]] = []
        self._position: dict[int, int] = {}  # of appending descriptors, by inode, which has one writer
        self._begun: dict[int, int] = {}

    def follow(self, call: Call) -> None:
        if call.kind == "write":
            self.names[call.name].write(call.data, call.offset, self._position)
        elif call.kind == "sync" and call.began:
            if call.name:
                inode = self.names[call.name]
                inode.begun[call.thread] = len(inode.pending)
            else:
                self._begun[call.thread] = len(self.changes)
        elif call.kind == "sync" and call.name:
            self.names[call.name].sync(call.thread)
        elif call.kind == "sync":
            count = self._begun.pop(call.thread, len(self.changes))
            for change in self.changes[:count]:
                _rename(self.durable, *change)
            del self.changes[:count]
        elif call.kind == "truncate":
            inode = self.names[call.name]
            _apply(inode.content, call.length, None)
            inode.pending.append((call.length, None))
        elif call.kind == "create":
            if call.name not in self.names:
                self._change("create", call.name, Inode())
            elif call.length:  # O_TRUNC of an existing file
                self.names[call.name].content.clear()
                self.names[call.name].pending.append((0, None))
                self._position.pop(id(self.names[call.name]), None)
        elif call.kind == "rename":
            self._change("rename " + call.new_name, call.name, self.names[call.name])
        elif call.kind == "unlink" and call.name in self.names:
            self._change("unlink", call.name, None)

    def _change(self, kind: str, name: str, inode: Inode | None) -> None:
        _rename(self.names, kind, name, inode)
        self.changes.append((kind, name, inode))

    def power_cut(self, random: Random, into: Path) -> None:
        """Write the remaining bytes to a new directory."""
        names = dict(self.durable)
        worst = random.choice(["none", "all", "any"])
        for kind, name, inode in self.changes:
            if worst == "all" or (worst == "any" and random.random() < 0.5):
                _rename(names, kind, name, inode)
        into.mkdir(mode=0o700)
        survivors: dict[int, bytes] = {}
        for name, inode in names.items():
            if id(inode) not in survivors:
                survivors[id(inode)] = inode.survivor(random)
            (into / name).write_bytes(survivors[id(inode)])


def _rename(names: dict[str, Inode], kind: str, name: str, inode: Inode | None) -> None:
    action, _, new = kind.partition(" ")
    if action == "create":
        assert inode is not None
        names[name] = inode
    elif action == "unlink":
        names.pop(name, None)
    else:
        assert inode is not None
        names.pop(name, None)
        names[new] = inode
