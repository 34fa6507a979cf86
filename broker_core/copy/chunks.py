"""The format of a chunk, one link of a copy's chain.

    chunk = magic 8s | version u32 | header bytes u32 | crc32 of the header u32 | header, JSON in UTF-8 | body

The body is the bytes of the parts. To change the format: raise `VERSION`, and keep reading the former ones.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zlib_ng.zlib_ng import crc32

from ..errors import DamagedJournal
from ..journal.disk import Buffer
from ..journal.versions import check_version
from .contents import Contents

FOLDER = "chunks/"
VERSION = 1
MAGIC = b"PENSTCHK"
HEAD_GUESS = 16 << 10  # bytes; most headers have some hundred

_HEAD = struct.Struct("<8sIII")


class ChunkPart(NamedTuple):
    """Bytes of a file in a chunk."""

    file: str
    offset: int  # in the file
    length: int
    crc: int


@dataclass
class Chunk:
    """The header of a chunk, and its parts."""

    number: int
    broker: str  # id of the data directory
    writer: str  # name of a broker's life
    owner: str  # its process and host, for people
    kind: str  # "copy" or "backup"
    time_ms: int
    base: int  # of the latest contents, or 0
    position: int  # LSN up to which the log is complete with it
    lag: int = 0  # bytes of the log that were confirmed, but not copied then
    fence: bool = False  # put by a start, or by `penstock restore --take-over`
    parts: list[ChunkPart] = field(default_factory=list)
    contents: Contents | None = None  # before its parts are added

    @property
    def name(self) -> str:
        return name_of(self.number)


def name_of(number: int) -> str:
    return f"{FOLDER}{number:020d}"


def number_of(name: str) -> int:
    """Return 0 if the name is not that of a chunk."""
    text = name.removeprefix(FOLDER)
    return int(text) if len(text) == 20 and text.isdecimal() else 0


def pack(chunk: Chunk, body: list[Buffer]) -> list[Buffer]:
    fields: dict[str, Any] = {name: value for name, value in vars(chunk).items() if name not in ("parts", "contents")}
    fields["parts"] = [list(part) for part in chunk.parts]
    if chunk.contents is not None:
        fields["contents"] = chunk.contents.to_json()
    header = json.dumps(fields, ensure_ascii=False).encode()
    return [_HEAD.pack(MAGIC, VERSION, len(header), crc32(header)) + header, *body]


def header_bytes(data: bytes, where: str) -> int:
    """Return the offset of the body. Raises DamagedJournal, StorageError."""
    if len(data) < _HEAD.size or data[:8] != MAGIC:
        raise DamagedJournal(f"{where}, offset 0: this is not a chunk of a copy")
    _, version, length, _ = _HEAD.unpack_from(data)
    check_version(where, version, VERSION)
    return _HEAD.size + int(length)


def unpack(data: bytes, where: str) -> tuple[Chunk, int]:
    """Return the chunk, and the offset of the body. Raises DamagedJournal, StorageError."""
    stop = header_bytes(data, where)
    header = data[_HEAD.size : stop]
    if len(data) < stop or crc32(header) != _HEAD.unpack_from(data)[3]:
        raise DamagedJournal(f"{where}, offset {_HEAD.size}: the header of the chunk does not match its checksum")
    fields = json.loads(header)
    fields["parts"] = [ChunkPart(*part) for part in fields["parts"]]
    contents = fields.pop("contents", None)
    return Chunk(**fields, contents=None if contents is None else Contents.from_json(contents)), stop
