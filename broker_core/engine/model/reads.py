"""Reads of a leased batch: the micro-batches of Spark that it was read for, and whether their rows were sent.

Spark passes rows to a sink before the sink can ask whether it has sent them already. So a publish marks the batch as sent, and a
publish that only repeats an earlier one marks it as dropped. A batch that was dropped and never sent returns when it is finished.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

MAX_READS = 100  # micro-batches and writes of one leased batch: nearly always one


class SparkBatch(NamedTuple):
    """A micro-batch of Spark."""

    query: str
    number: int


@dataclass
class Reads:
    """The reads of one batch."""

    by: list[SparkBatch] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    unknown: bool = False  # some are not known, or there were too many

    @property
    def queries(self) -> list[str]:
        return sorted({read.query for read in self.by})

    def knows(self, reader: SparkBatch | None) -> bool:
        """Return True if `note` would change nothing."""
        return self.unknown or reader in self.by

    def note(self, reader: SparkBatch | None) -> None:
        """`reader`: None for an unknown micro-batch."""
        if reader is None or (reader not in self.by and len(self.by) >= MAX_READS):
            self.unknown = True
        elif reader not in self.by:
            self.by.append(reader)

    def note_write(self, series: str, *, sent: bool) -> None:
        names = self.sent if sent else self.dropped
        if series not in names:
            names.append(series)
        if len(names) > MAX_READS:
            self.unknown = True

    @property
    def lost(self) -> bool:
        """True if a write dropped the rows and never sent them."""
        return not self.unknown and any(series not in self.sent for series in self.dropped)

    def to_json(self) -> dict[str, Any]:
        return {"by": [list(read) for read in self.by], "sent": self.sent, "dropped": self.dropped, "unknown": self.unknown}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Reads:
        return cls([SparkBatch(*read) for read in data["by"]], data["sent"], data["dropped"], data["unknown"])


def series_of(kind: str, name: str) -> str:
    return f"{kind} {name}"
