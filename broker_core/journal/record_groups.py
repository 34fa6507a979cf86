"""A group of records while it is filled. Records get their positions immediately; the group gets its header at the end.

A payload above `INLINE_BYTES` is kept by reference, and the writer computes its checksum (`zlib.crc32` lets other threads run).
So an append, under the broker's lock, neither copies nor reads it.
"""

from __future__ import annotations

from collections.abc import Sequence

from zlib_ng.zlib_ng import crc32

from ..errors import InvalidRequest
from .disk import Buffer
from .records import END_BYTES, GROUP_BYTES, MASK, META_MAX, RECORD_BYTES, Format, GroupHeader, pack_group, pack_record, padded

INLINE_BYTES = 1 << 14  # up to this size a copy takes some 2 µs, less than a reference costs

_PADDING = [b"\0" * n for n in range(8)]


class RecordGroup:
    """Records from `start` on. `end` is the LSN after the last one, before the end mark. `form` is of `segments.VERSION`."""

    __slots__ = ("_form", "_large", "_pieces", "_sealed", "_small", "end", "records", "start")

    def __init__(self, start: int, form: Format) -> None:
        self._form = form
        self.start = start
        self.end = start + GROUP_BYTES
        self.records = 0
        self._sealed: list[Buffer] | None = None
        self._small: list[bytes] = [b""]  # the run being filled; the very first item becomes the header
        self._pieces: list[list[bytes] | memoryview] = [self._small]
        self._large: list[tuple[list[bytes], int, bytes, list[memoryview], int]] = []  # run, index in it, meta, payload, position

    @property
    def after(self) -> int:
        """LSN after the end mark."""
        return self.end + END_BYTES

    def append(self, meta: bytes, payload: Sequence[Buffer]) -> int:
        position = self.end
        seed = (position ^ self._form.record_seed) & MASK
        if payload:
            views = [memoryview(b) for b in payload]
            size = sum(view.nbytes for view in views)
            if size > INLINE_BYTES:
                return self._append_large(meta, [view.cast("B") for view in views], size)
            data = b"".join(payload)
            head = pack_record(seed, meta, crc32(data, seed), size)
            self._small.append(head + data + _PADDING[-size & 7])
            self.end = position + len(head) + ((size + 7) & ~7)
        else:
            head = pack_record(seed, meta, seed, 0)  # the checksum of no bytes is its seed
            self._small.append(head)
            self.end = position + len(head)
        self.records += 1
        return position

    def _append_large(self, meta: bytes, views: list[memoryview], size: int) -> int:
        position = self.end
        end = position + record_bytes(len(meta), size)
        self._small.append(b"")  # for header and meta
        self._large.append((self._small, len(self._small) - 1, meta, views, position))
        self._pieces.extend(view for view in views if view.nbytes)
        self._small = [_PADDING[-size & 7]]
        self._pieces.append(self._small)
        self.end = end
        self.records += 1
        return position

    def seal(self, synced: int) -> list[Buffer]:
        """Return the group's bytes in order, the same at each call. No record may be added afterwards."""
        if self._sealed is not None:
            return self._sealed
        for run, index, meta, views, position in self._large:
            seed = checksum = self._form.seed(position)
            for view in views:
                checksum = crc32(view, checksum)
            run[index] = pack_record(seed, meta, checksum, sum(view.nbytes for view in views))
        head, mark = pack_group(self._form, GroupHeader(self.start, self.after - self.start, self.records, synced))
        first = self._pieces[0]
        assert isinstance(first, list)
        first[0] = head
        self._small.append(mark)
        self._sealed = [b"".join(piece) if isinstance(piece, list) else piece for piece in self._pieces]
        return self._sealed


def record_bytes(meta_bytes: int, payload_bytes: int) -> int:
    if meta_bytes > META_MAX:
        raise InvalidRequest(f"the meta of a record has {meta_bytes} bytes; at most {META_MAX} are possible")
    return RECORD_BYTES + padded(meta_bytes) + padded(payload_bytes)
