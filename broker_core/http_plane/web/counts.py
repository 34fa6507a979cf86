"""Counts of all queues, for the page."""

from __future__ import annotations

import json
from array import array
from typing import Any

STATES = ("available", "acquired", "delayed", "deferred", "staged")


class CountColumns:
    """Columns of int64, one after another."""

    def __init__(self, header: dict[str, Any], table: bytes) -> None:
        self.names: list[str] = header["queues"]
        self.time: int = header["time"]  # microseconds since 1970
        numbers, count = array("q", table), len(self.names)
        self.columns = {name: numbers[at * count : (at + 1) * count] for at, name in enumerate(header["columns"])}

    def limited(self, most: int) -> tuple[list[str], dict[str, array[int]], int]:
        """Return at most `most` queues, by falling number of messages, and the number of the others, which are one sum named
        ""."""
        if len(self.names) <= most:
            return self.names, self.columns, 0
        depth = [sum(counts) for counts in zip(*(self.columns[state] for state in STATES), strict=True)]
        order = sorted(range(len(self.names)), key=lambda at: (-depth[at], self.names[at]))
        largest, rest = sorted(order[:most]), order[most:]
        columns = {
            name: array("q", [*(column[at] for at in largest), _summed(name, [column[at] for at in rest])])
            for name, column in self.columns.items()
        }
        return [*(self.names[at] for at in largest), ""], columns, len(rest)


def _summed(column: str, values: list[int]) -> int:
    if column == "oldest":
        return min(filter(None, values), default=0)
    return max(values) if column in ("fill", "collects") else sum(values)


class CountsText:
    """In JSON. Unchanged columns are reused from the previous request."""

    def __init__(self) -> None:
        self._formed: dict[str, tuple[list[str] | array[int], str]] = {}

    def form(self, columns: CountColumns) -> bytes:
        members = [f'"time": {columns.time}', self._member("queues", columns.names)]
        members += [self._member(name, column) for name, column in columns.columns.items()]
        return f"{{{', '.join(members)}}}".encode()

    def _member(self, name: str, values: list[str] | array[int]) -> str:
        former = self._formed.get(name)
        if former is not None and former[0] == values:
            return former[1]
        text = f"{json.dumps(name)}: {json.dumps(list(values))}"
        self._formed[name] = values, text
        return text
