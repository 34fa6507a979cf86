"""Reads of a leased batch: for which of Spark's batches, and what became of what was read.

Spark hands rows to a sink before the sink can ask whether it has sent them already. So the broker remembers for which batch of
which query a leased batch was read. A publish marks it as sent. A publish that is recognised as a repetition, while what was
read for it was never sent, marks it as dropped: then it is given back, not settled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

MAX_READS = 100  # batches of Spark's, and writes, remembered of one leased batch: nearly always one of each


class SparkBatch(NamedTuple):
    """A micro-batch, as Spark tells its tasks."""

    query: str
    number: int


@dataclass
class Reads:
    """Reads of one batch."""

    by: list[SparkBatch] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)  # by which series of writes: see `series_of`
    dropped: list[str] = field(default_factory=list)
    unknown: bool = False  # somebody read it who did not say for what, or there were too many

    @property
    def queries(self) -> list[str]:
        """The queries that are known to have read it, by their ids of Spark."""
        return sorted({read.query for read in self.by})

    def knows(self, reader: SparkBatch | None) -> bool:
        """Say whether to note this reader would change nothing."""
        return self.unknown or reader in self.by

    def note(self, reader: SparkBatch | None) -> None:
        """Note for which of Spark's batches it is read; None: the reader did not say."""
        if reader is None or (reader not in self.by and len(self.by) >= MAX_READS):
            self.unknown = True
        elif reader not in self.by:
            self.by.append(reader)

    def note_sent(self, series: str) -> None:
        """Note that a series of writes has sent what was read."""
        self._add(self.sent, series)

    def note_dropped(self, series: str) -> None:
        """Note that a series of writes has dropped what was read, as a repetition."""
        self._add(self.dropped, series)

    def _add(self, names: list[str], series: str) -> None:
        if series not in names:
            names.append(series)
        if len(names) > MAX_READS:
            self.unknown = True

    @property
    def lost(self) -> bool:
        """Say whether a write dropped what was read and had never sent it."""
        return not self.unknown and any(series not in self.sent for series in self.dropped)

    def to_json(self) -> dict[str, Any]:
        """Return the form of snapshots."""
        return {"by": [list(each) for each in self.by], "sent": self.sent, "dropped": self.dropped, "unknown": self.unknown}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Reads:
        """Read the form of snapshots."""
        return cls([SparkBatch(*each) for each in data["by"]], data["sent"], data["dropped"], data["unknown"])


def series_of(kind: str, name: str) -> str:
    """One text for the writes that a publish key numbers."""
    return f"{kind} {name}"
