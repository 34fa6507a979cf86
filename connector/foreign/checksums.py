"""Checksums of the spool's files: damage, truncation and swapped files are noticed before Arrow parses anything.

An Arrow IPC file is followed by a manifest and 12 bytes. The manifest is JSON with the spool's id, the file's name, the size of
the IPC file and a CRC-32 of each of its blocks. The last 12 bytes are a mark, and the manifest's length and CRC-32. A task checks
the blocks that it reads. The offset contains a hash of the manifest. To change the manifest: raise `_VERSION`, and keep reading
the previous one.

CRC-32 detects every flipped bit and every damage of up to 32 bits in a row, and misses other damage once in 4 billion times. It
costs 0.25 ms for each MiB. It protects against accidents, not against a writer that computes it again.
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

BLOCK = 1 << 20  # with larger ones a task reads more rows of other tasks, with smaller ones the manifest grows
_MARK = b"PSUM"
_END, _END_SIZE = ">4sII", 12  # mark, length and CRC-32 of the manifest; a `struct.Struct` cannot travel to workers by value
_MOST = 1 << 20  # bytes of a manifest; 18 KiB for a file of 2 GiB
_HASH_BYTES = 8
_VERSION = 1
_LOSS = (
    "Nothing of it was delivered, and the broker may no longer have its messages. Put back an intact copy of the file and start"
    " the query again; or set failOnDataLoss=false, and the query continues without these messages"
)


class DamagedFile(StorageError):
    """The text names the difference."""


class Summing:
    """File for Arrow to write into: passes everything to `file`, which its owner closes, and computes the checksums."""

    closed = False

    def __init__(self, file: Any) -> None:
        self._file = file
        self._size = self._crc = 0
        self._blocks: list[int] = []

    def write(self, data: Any) -> int:
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
        return self._size

    def finish(self, spool: str, name: str) -> str:
        blocks = [*self._blocks, self._crc] if self._size % BLOCK else self._blocks
        crc32s = "".join(f"{block:08x}" for block in blocks)
        fields = {"v": _VERSION, "spool": spool, "file": name, "size": self._size, "crc32": crc32s}
        manifest = json.dumps(fields).encode()
        self._file.write(manifest + struct.pack(_END, _MARK, len(manifest), crc32(manifest)))
        return _hash(manifest)


def written(file: Any, spool: str, name: str, write: Callable[[Any], object]) -> str:
    """Append the manifest to the IPC file that `write` writes into an open file. Return the manifest's hash."""
    summing = Summing(file)
    write(summing)
    return summing.finish(spool, name)


class Checked:
    """File for Arrow to read: the IPC file in an open file, with each block checked before it is returned.

    `spool` and `manifest`: the expected id and hash; None: any. The constructor and reads raise DamagedFile.
    """

    closed = False

    def __init__(self, file: Any, name: str, *, spool: str | None = None, manifest: str | None = None) -> None:
        self._file = file
        self._place = 0
        self._first, self._last_read = 0, pa.py_buffer(b"")  # the last read, of whole blocks
        content = self._manifest()
        self.manifest = _hash(content)
        fields = json.loads(content)
        if fields.get("v") != _VERSION:
            raise StorageError(f"the file {name} of the spool has checksums of version {fields.get('v')}: use a newer connector")
        self._size, blocks = int(fields["size"]), str(fields["crc32"])
        self._blocks = [int(blocks[at : at + 8], 16) for at in range(0, len(blocks), 8)]
        if self._size + len(content) + _END_SIZE != self._length:
            raise DamagedFile(f"it has {self._length} octets instead of {self._size + len(content) + _END_SIZE}")
        if fields["file"] != name or spool not in (None, fields["spool"]):
            raise DamagedFile(f"it is {fields['file']} of spool {fields['spool']}")
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
        content = self._file.read_buffer(count)
        if len(content) != count:
            raise DamagedFile(f"it ends at octet {first + len(content)}")
        return content

    def read_buffer(self, count: int) -> pa.Buffer:
        """Does not copy the bytes of a mapped file."""
        begin, end = self._place, min(self._place + count, self._size)
        if begin < self._first or end > self._first + len(self._last_read):
            self._first = begin // BLOCK * BLOCK
            self._last_read = self._read(self._first, min(-(-end // BLOCK) * BLOCK, self._size) - self._first)
            view = memoryview(self._last_read)
            for at in range(0, len(view), BLOCK):
                number = (self._first + at) // BLOCK
                if crc32(view[at : at + BLOCK]) != self._blocks[number]:
                    raise DamagedFile(f"octets {number * BLOCK} to {min((number + 1) * BLOCK, self._size) - 1} are changed")
        self._place = max(begin, end)
        return self._last_read.slice(begin - self._first, max(0, end - begin))

    def read(self, count: int = -1) -> bytes:
        return bytes(self.read_buffer(self._size - self._place if count < 0 else count))

    def seek(self, place: int, whence: int = 0) -> int:
        self._place = place + (0, self._place, self._size)[whence]
        return self._place

    def tell(self) -> int:
        return self._place


def _hash(manifest: bytes) -> str:
    return blake2b(manifest, digest_size=_HASH_BYTES).hexdigest()


def missing(url: str, file: str) -> str:
    return f"{file} is not in the spool {url}: the folder was emptied, or this executor does not reach it. {_LOSS}"


def damaged(url: str, file: str, why: object) -> str:
    return f"{file} of the spool {url} is damaged: {why}. {_LOSS}"


def unrecognised(url: str, file: str, why: object) -> str:
    return (
        f"{file} of the spool {url} {why}. Nothing was delivered. The file is needed to recognise messages that the broker sends"
        " again. Put back an intact copy and start the query again; or set failOnDataLoss=false, and the query continues, but"
        " such messages may come twice"
    )
