"""Checksums of the spool's files: damage, a missing end and a file in another's place are noticed before Arrow parses anything.

A file is an Arrow IPC file followed by a manifest: JSON with the spool's id, the file's name, the size of the IPC file and a
CRC-32 of each of its blocks. The last 12 octets are a mark, and the manifest's length and CRC-32. A reader checks each block that
it reads, so a task with a part of a large file does not read the rest. The offset contains a hash of the manifest.

CRC-32 notices every flipped bit and every damage of up to 32 bits in a row; other damage goes unnoticed once in 4 billion times.
It costs 0.25 ms for each MiB. It protects against accidents, not against a writer who computes it again.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Any
from zlib import crc32

import pyarrow as pa

from ...broker_core.errors import StorageError

#: Octets of a block. Larger ones would make a task read more of its neighbours' rows, smaller ones the manifest larger.
BLOCK = 1 << 20
_MARK = b"PSUM"
_END, _END_SIZE = ">4sII", 12  # mark, length and CRC-32 of the manifest; a `struct.Struct` cannot travel to workers by value
_MOST = 1 << 20  # octets of a manifest: a file of 2 GiB has 18 KiB
_HASH_BYTES = 8
_VERSION = 1


class DamagedFile(StorageError):
    """A file that is not what was written. The text says how it differs."""


class Summing:
    """File for Arrow to write into: passes everything on to `file` and computes the checksums meanwhile."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file
        self._size = self._crc = 0
        self._blocks: list[int] = []

    def write(self, data: Any) -> int:
        """Write octets; return their number."""
        self._file.write(data)
        left = memoryview(data).cast("B")
        count = len(left)
        while left:
            part = left[: BLOCK - self._size % BLOCK]
            self._crc = crc32(part, self._crc)
            self._size += len(part)
            if self._size % BLOCK == 0:
                self._blocks.append(self._crc)
                self._crc = 0
            left = left[len(part) :]
        return count

    def tell(self) -> int:
        """Return the number of octets written."""
        return self._size

    def flush(self) -> None:
        """Do nothing: the owner of the file flushes it."""

    def close(self) -> None:
        """Do nothing: the owner of the file closes it."""

    def readable(self) -> bool:
        """Return False."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return False."""
        return False

    def finish(self, spool: str, name: str) -> str:
        """Write the manifest; return its hash."""
        blocks = [*self._blocks, self._crc] if self._size % BLOCK else self._blocks
        found = {
            "v": _VERSION,
            "spool": spool,
            "file": name,
            "size": self._size,
            "crc32": "".join(f"{block:08x}" for block in blocks),
        }
        manifest = json.dumps(found).encode()
        self._file.write(manifest + struct.pack(_END, _MARK, len(manifest), crc32(manifest)))
        return _hash(manifest)


def written(file: Any, spool: str, name: str, write: Callable[[Any], object]) -> str:
    """Let `write` write an IPC file into an open one, and the manifest behind it. Return the manifest's hash."""
    summing = Summing(file)
    write(summing)
    return summing.finish(spool, name)


class Checked:
    """File for Arrow to read: the IPC file within an open one, of which each block is checked before its octets are returned.

    `spool` is the id that the file must have; None: any. `manifest` is the hash that its manifest must have; None: any. Raises
    DamagedFile, here and when it reads.
    """

    closed = False

    def __init__(self, file: Any, name: str, *, spool: str | None = None, manifest: str | None = None) -> None:
        self._file = file
        self._place = 0
        self._first, self._kept = 0, pa.py_buffer(b"")  # what was read last, from a block's begin to a block's end
        content = self._manifest()
        self.manifest = _hash(content)
        found = json.loads(content)
        if found.get("v") != _VERSION:
            raise StorageError(f"the file {name} of the spool has checksums of version {found.get('v')}: use a newer connector")
        self._size, blocks = int(found["size"]), str(found["crc32"])
        self._blocks = [int(blocks[at : at + 8], 16) for at in range(0, len(blocks), 8)]
        if self._size + len(content) + _END_SIZE != self._length:
            raise DamagedFile(f"it has {self._length} octets instead of {self._size + len(content) + _END_SIZE}")
        if found["file"] != name or spool not in (None, found["spool"]):
            raise DamagedFile(f"it is {found['file']} of spool {found['spool']}")
        if manifest not in (None, self.manifest):
            raise DamagedFile("it is another file than the one that the checkpoint names")

    def _manifest(self) -> bytes:
        self._length = int(self._file.size())
        if self._length < _END_SIZE:
            raise DamagedFile(f"it has {self._length} octets, and its end is missing")
        mark, length, crc = struct.unpack(_END, self._read(self._length - _END_SIZE, _END_SIZE))
        if mark != _MARK or length > min(_MOST, self._length - _END_SIZE):
            raise DamagedFile("its end, which has the checksums, is missing or changed")
        content = bytes(self._read(self._length - _END_SIZE - length, length))
        if crc32(content) != crc:
            raise DamagedFile("its checksums are changed")
        return content

    def _read(self, first: int, count: int) -> Any:
        self._file.seek(first)
        found = self._file.read_buffer(count)
        if len(found) != count:
            raise DamagedFile(f"it ends at octet {first + len(found)}")
        return found

    def read_buffer(self, count: int) -> pa.Buffer:
        """Return the next octets, out of a mapped file without a copy."""
        begin, end = self._place, min(self._place + count, self._size)
        if begin < self._first or end > self._first + len(self._kept):
            self._first = begin // BLOCK * BLOCK
            self._kept = self._read(self._first, min(-(-end // BLOCK) * BLOCK, self._size) - self._first)
            view = memoryview(self._kept)
            for at in range(0, len(view), BLOCK):
                number = (self._first + at) // BLOCK
                if crc32(view[at : at + BLOCK]) != self._blocks[number]:
                    raise DamagedFile(f"octets {number * BLOCK} to {min((number + 1) * BLOCK, self._size) - 1} are changed")
        self._place = max(begin, end)
        return self._kept.slice(begin - self._first, max(0, end - begin))

    def read(self, count: int = -1) -> bytes:
        """Return the next octets; with -1, all that are left."""
        return bytes(self.read_buffer(self._size - self._place if count < 0 else count))

    def seek(self, place: int, whence: int = 0) -> int:
        """Go to a place from the begin (0), from here (1) or from the end (2)."""
        self._place = place + (0, self._place, self._size)[whence]
        return self._place

    def tell(self) -> int:
        """Return the place."""
        return self._place

    def size(self) -> int:
        """Return the octets of the IPC file."""
        return self._size

    def close(self) -> None:
        """Do nothing: the owner of the file closes it."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return True."""
        return True


def _hash(manifest: bytes) -> str:
    return blake2b(manifest, digest_size=_HASH_BYTES).hexdigest()
