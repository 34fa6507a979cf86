"""Mapped files of the broker's journal, for a task on the broker's host.

In another container, or with a copy of the data directory, a path may lead to another file. So each file is proven to be the
broker's, or the messages are read over Flight:

- Both processes run on one kernel (`discovery.this_host`), so device and inode numbers mean the same to both. The broker compares
  this, and returns the paths of its files to no other process.
- The opened file, not the path, has the device and inode of the broker's file.
- The broker has verified the checksums of the named payloads in that file (`journal/payloads.py`).
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa

from ...broker_core.messages import assembly
from ...broker_core.messages.columns import is_encoded, unpack
from .batching import BATCH_BYTES, BATCH_ROWS

log = logging.getLogger("penstock")

REMEMBERED = 64  # brokers whose files this process cannot reach, until it forgets all of them
_unreachable: set[str] = set()
LARGE_ROWS = 1 << 12  # of one record, which become a separate batch, without a copy


class Location(NamedTuple):
    """Location of some rows of a stored record batch: the fields of the protocol, in its order."""

    file: str
    offset: int
    length: int
    columns: int
    row: int
    rows: int
    sequence: int
    time: int
    deliveryCount: int
    # Rows of the record: 32-bit numbers, little-endian. None: consecutive rows from `row` on.
    taken: bytes | None
    device: int
    inode: int

    def numbers(self) -> pa.Array:
        return pa.Array.from_buffers(pa.int32(), self.rows, [None, pa.py_buffer(self.taken or b"")])

    @property
    def end(self) -> int:
        """The sequence number after the last row. Sequence numbers are as far apart as rows."""
        if self.taken is None:
            return self.sequence + self.rows
        return self.sequence + int.from_bytes(self.taken[-4:], "little") - self.row + 1


def may_be_mapped(broker: str) -> bool:
    """False if this process has failed to reach a file of this broker."""
    return broker not in _unreachable


def map_files(locations: Iterable[Location], known: dict[str, pa.Buffer] | None, broker: str) -> dict[str, pa.Buffer] | None:
    """Return mapped files by path, the `known` ones and those of the locations.

    None if one cannot be mapped or is not the broker's. A mapped file stays readable when it is unlinked.
    """
    files = dict(known or {})
    wanted: dict[str, tuple[int, int, int]] = {}
    for location in locations:
        before = wanted[location.file][2] if location.file in wanted else 0
        wanted[location.file] = location.device, location.inode, max(before, location.offset + location.length)
    for path, (device, inode, end) in wanted.items():
        if path in files and files[path].size >= end:
            continue
        try:
            files[path] = _opened(path, device, inode)
            if files[path].size < end:
                raise OSError(errno.ESTALE, "it is shorter than in the broker's answer", path)
        except (OSError, pa.ArrowException) as error:
            # If only the file is missing, retention has removed it. The next file may be reachable.
            if not isinstance(error, FileNotFoundError) or not os.path.isdir(os.path.dirname(path)):
                _remember(broker, error)
            return None
    return files


def _opened(path: str, device: int, inode: int) -> pa.Buffer:
    with pa.memory_map(path) as file:
        status = os.fstat(file.fileno())  # the path may lead to another file by now
        if (status.st_dev, status.st_ino) != (device, inode):
            raise OSError(errno.ESTALE, "it is another file of the same name, such as a copy of the data directory", path)
        return file.read_buffer()


def _remember(broker: str, error: Exception) -> None:
    if len(_unreachable) >= REMEMBERED:
        _unreachable.clear()
    _unreachable.add(broker)
    log.warning(
        "a file of broker %s cannot be read in place by this process, so its messages come over Flight from now on: %s",
        broker, error,
    )  # fmt: skip


# --- From locations to messages -----------------------------------------------------------------------------------------------


def has_locations(batch: pa.RecordBatch) -> bool:
    """False for a batch of messages, which the broker sends if their locations are too many."""
    return tuple(batch.schema.names[:1]) == Location._fields[:1]


def locations_of(batch: pa.RecordBatch) -> list[Location]:
    return [Location(*row) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def assembled(
    locations: Iterable[Location],
    files: dict[str, pa.Buffer],
    columns: Sequence[str],
    queue: str,
    aside: Callable[[Mapping[int, str]], None],
) -> Iterator[pa.RecordBatch]:
    """Yield batches of about `BATCH_ROWS` rows or `BATCH_BYTES` bytes.

    Messages of invalid AMQP are left out and passed to `aside`, as sequence number → reason.
    """
    measured = ((p, p.rows, p.length, is_encoded(p.columns), p.rows >= LARGE_ROWS) for p in locations)
    for group in assembly.grouped(measured, BATCH_ROWS, BATCH_BYTES):
        malformed: dict[int, str] = {}
        owners = _owners(group)
        sequence = _sequences(group, owners)
        messages = assembly.assemble(
            columns,
            assembly.joined([_payload(location, files) for location in group]),
            {
                "queue": queue,
                "sequenceNumber": sequence,
                "enqueuedTime": _each([p.time for p in group], owners),
                "deliveryCount": _each([p.deliveryCount for p in group], owners),
            },
            malformed=malformed,
        )
        if malformed:
            aside(malformed)
            messages = assembly.readable(messages, sequence, malformed)
        yield messages


def _payload(location: Location, files: dict[str, pa.Buffer]) -> pa.RecordBatch:
    stored = unpack(location.columns, files[location.file].slice(location.offset, location.length))
    return stored.slice(location.row, location.rows) if location.taken is None else stored.take(location.numbers())


# Without numpy, which executors may lack, and without a Python object for each row.


def _owners(locations: list[Location]) -> pa.Array:
    """Return for each row the index of its location; nothing for a single location."""
    import pyarrow.compute as pc

    if len(locations) == 1:
        return pa.nulls(0)
    ends = pa.array([0, *accumulate(p.rows for p in locations)], pa.int32())
    return pc.list_parent_indices(pa.ListArray.from_arrays(ends, pa.nulls(ends[-1].as_py())))


def _each(values: list[int], owners: pa.Array) -> int | pa.Array:
    """Repeat the value of each location for its rows. Equal values stay a single number."""
    return values[0] if values.count(values[0]) == len(values) else pa.array(values, pa.int64()).take(owners)


def _sequences(locations: list[Location], owners: pa.Array) -> int | pa.Array:
    import pyarrow.compute as pc

    if any(location.taken is not None for location in locations):
        return pa.concat_arrays([_apart(location) for location in locations])
    before = accumulate((p.rows for p in locations), initial=0)
    bases = _each([p.sequence - rows for p, rows in zip(locations, before, strict=False)], owners)
    return bases if isinstance(bases, int) else pc.add(bases, assembly.rising(0, len(owners)))


def _apart(location: Location) -> pa.Array:
    import pyarrow.compute as pc

    if location.taken is None:
        return assembly.rising(location.sequence, location.rows)
    return pc.add(location.numbers().cast(pa.int64()), location.sequence - location.row)
