"""Overlays: annotations that *modified* or a dead-lettering added to messages after they arrived.

An entry is an encoded AMQP map, whose values the engine does not decode. The plane that sends the message merges its entries in
order; the later entry wins. The engine merges the entries of a message that has many, so that a client can add annotations at
each of any number of attempts.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from .encoded_maps import merged
from .limits import MAX_OVERLAYS, MAX_ROW_OVERLAYS
from .series import Rows

ROW_BYTES = 64  # memory of an entry besides its bytes, roughly


class Overlays:
    """The overlays of one block: row → entries."""

    __slots__ = ("_rows", "bytes")

    def __init__(self) -> None:
        self._rows: dict[int, tuple[bytes, ...]] = {}
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._rows)

    def get(self, row: int) -> tuple[bytes, ...]:
        return self._rows.get(row, ())

    def after(self, row: int, entry: bytes) -> tuple[bytes, ...]:
        """Return the entries of a row after `entry` is added. An equal one is replaced, so to repeat it uses no more space.

        Raises ValueError if many entries are not maps.
        """
        entries = (*(overlay for overlay in self.get(row) if overlay != entry), entry)
        is_small = len(entries) <= MAX_OVERLAYS and sum(map(len, entries)) <= MAX_ROW_OVERLAYS
        return entries if is_small else (merged(entries),)

    def most(self, rows: Rows, entry: bytes) -> int:
        """Return the most bytes that a row has after `entry` is added. Raises ValueError."""
        if not self._rows:
            return len(entry)
        return max((sum(map(len, self.after(row, entry))) for row in _numbers(rows)), default=0)

    def add(self, rows: Rows, entry: bytes) -> int:
        """Add an entry to rows. Returns by how much `bytes` grew; less than 0 if entries were merged."""
        before = self.bytes
        for row in _numbers(rows):
            self.bytes -= _size(self.get(row))
            self._rows[row] = self.after(row, entry)
            self.bytes += _size(self._rows[row])
        return self.bytes - before

    def among(self, rows: Rows) -> dict[int, list[bytes]]:
        """Return index within `rows` → entries."""
        if not self._rows:
            return {}
        if isinstance(rows, slice) and rows.stop - rows.start > len(self._rows):
            return {row - rows.start: list(had) for row, had in sorted(self._rows.items()) if rows.start <= row < rows.stop}
        return {i: list(self._rows[row]) for i, row in enumerate(_numbers(rows)) if row in self._rows}

    def persisted(self) -> dict[str, Any]:
        texts: dict[bytes, int] = {}
        rows = {str(row): [texts.setdefault(entry, len(texts)) for entry in entries] for row, entries in self._rows.items()}
        return {"entries": [base64.b64encode(entry).decode() for entry in texts], "rows": rows}

    @classmethod
    def restored(cls, data: dict[str, Any]) -> Overlays:
        overlays = cls()
        entries = [base64.b64decode(text) for text in data["entries"]]
        for row, numbers in data["rows"].items():
            overlays._rows[int(row)] = tuple(entries[number] for number in numbers)
            overlays.bytes += _size(overlays._rows[int(row)])
        return overlays


def _numbers(rows: Rows) -> Iterator[int]:
    return iter(range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist())


def _size(entries: tuple[bytes, ...]) -> int:
    return sum(map(len, entries)) + ROW_BYTES * len(entries)
