"""Overlays: annotations that *modified* or a dead-lettering added to messages after they arrived.

An entry is an encoded AMQP map, which the engine does not decode. The plane that sends the message merges its entries in order;
the later entry wins.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

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

    def most(self, rows: Rows, entry: bytes) -> int:
        """Return the largest number of entries of a row after `entry` is added."""
        if not self._rows:
            return 1
        return 1 + max((len(self.get(row)) - (entry in self.get(row)) for row in _numbers(rows)), default=0)

    def add(self, rows: Rows, entry: bytes) -> int:
        """An equal entry is replaced, so a client that repeats it uses no more space. Returns by how much `bytes` grew."""
        before = self.bytes
        for row in _numbers(rows):
            known = self._rows.get(row, ())
            if entry in known:
                self._rows[row] = (*(overlay for overlay in known if overlay != entry), entry)
            else:
                self._rows[row] = (*known, entry)
                self.bytes += len(entry) + ROW_BYTES
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
            overlays.bytes += sum(len(entries[number]) + ROW_BYTES for number in numbers)
        return overlays


def _numbers(rows: Rows) -> Iterator[int]:
    return iter(range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist())
