"""Files of the broker's journal, mapped by a task on the broker's host: those that are proven to be its own.

A path alone proves nothing: in another container, or where a data directory was copied to a second machine, the same path leads
to another file of the same name, with other messages in it. So three things are compared.

- Both processes run on one kernel (`discovery.this_host`): device and inode numbers mean the same to both. The broker compares
  this, and tells nobody else where its files are.
- The file that was opened, not the path, has the device and inode of the broker's: it is the same file, octet for octet.
- The broker has verified the checksums of what it names, in that file (`journal/payloads.py`).

What cannot be proven is asked for over Flight.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa

log = logging.getLogger("penstock")

REMEMBERED = 64  # brokers whose files this process does not reach; after that they are forgotten, and tried again
_unreachable: set[str] = set()


class Piece(NamedTuple):
    """Rows of one stored record batch, in order. The fields are the protocol's, in order."""

    file: str
    offset: int
    length: int
    columns: int
    row: int
    rows: int
    sequence: int
    time: int
    deliveryCount: int
    # Which rows of the record: 32-bit numbers, little-endian. None: those from `row` on, one after another.
    taken: bytes | None
    # Of the file.
    device: int
    inode: int

    def numbers(self) -> pa.Array:
        return pa.Array.from_buffers(pa.int32(), self.rows, [None, pa.py_buffer(self.taken or b"")])

    @property
    def end(self) -> int:
        """The sequence number after its last row's: those lie as far apart as the rows do."""
        if self.taken is None:
            return self.sequence + self.rows
        return self.sequence + int.from_bytes(self.taken[-4:], "little") - self.row + 1


def may_be_mapped(broker: str) -> bool:
    """False when a file of this broker was not reached by this process before: it need not ask again where they are."""
    return broker not in _unreachable


def mapped(pieces: Iterable[Piece], known: dict[str, pa.Buffer] | None, broker: str) -> dict[str, pa.Buffer] | None:
    """`known` and every file that the pieces name, mapped; None where one cannot be, or is not the broker's: this is logged once.
    A mapped file stays readable when it is unlinked."""
    files = dict(known or {})
    wanted: dict[str, tuple[int, int, int]] = {}
    for piece in pieces:
        end = piece.offset + piece.length
        wanted[piece.file] = (piece.device, piece.inode, max(end, wanted[piece.file][2] if piece.file in wanted else 0))
    for path, (device, inode, end) in wanted.items():
        if path in files and files[path].size >= end:
            continue
        try:
            files[path] = _opened(path, device, inode)
            if files[path].size < end:
                raise OSError(errno.ESTALE, "it is shorter than the broker says", path)
        except (OSError, pa.ArrowException) as error:
            # Where only the file is gone retention was quicker, which is no sign for the next one.
            if not isinstance(error, FileNotFoundError) or not os.path.isdir(os.path.dirname(path)):
                _remember(broker, error)
            return None
    return files


def _opened(path: str, device: int, inode: int) -> pa.Buffer:
    with pa.memory_map(path) as file:
        found = os.fstat(file.fileno())  # of what is mapped: whatever the path leads to by now
        if (found.st_dev, found.st_ino) != (device, inode):
            raise OSError(errno.ESTALE, "it is another file of the same name, such as a copy of the data directory", path)
        return file.read_buffer()


def _remember(broker: str, error: Exception) -> None:
    if len(_unreachable) >= REMEMBERED:
        _unreachable.clear()
    _unreachable.add(broker)
    log.warning(
        "a file of broker %s cannot be read in place by this process, so its messages come over Flight from now on: %s",
        broker,
        error,
    )
