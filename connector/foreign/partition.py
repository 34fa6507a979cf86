"""Partitions: which record batches of which files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition


def file_of(batch: int) -> str:
    """Return the name of a batch's file in the spool."""
    return f"batch-{batch}.arrow"


class Part(NamedTuple):
    """Record batches `first` to `last`, both included, of a batch's file; `row` is the number of its first row in the file."""

    batch: int
    first: int
    last: int
    row: int

    @property
    def file(self) -> str:
        """Name of the batch's file in the spool."""
        return file_of(self.batch)


@dataclass(kw_only=True, eq=False)
class SpoolPartition(InputPartition):
    """Parts of one file or of several neighbours, in order."""

    spool: str
    parts: tuple[Part, ...]


def cut(spool: str, counts: Mapping[int, Sequence[int]], most: int) -> list[SpoolPartition]:
    """Cut batches into partitions of at most `most` rows, or one record batch.

    `counts` has the rows of the record batches of each. A task costs Spark 50 ms, so small files share one.
    """
    found: list[SpoolPartition] = []
    parts: list[Part] = []
    rows = 0
    for batch, each in counts.items():
        first = row = at = 0  # of the part that grows; `at` is the row of the next record batch
        for number, count in enumerate(each):
            if rows and rows + count > most:
                if number > first:
                    parts.append(Part(batch, first, number - 1, row))
                found.append(SpoolPartition(spool=spool, parts=tuple(parts)))
                parts, rows, first, row = [], 0, number, at
            rows, at = rows + count, at + count
        if each:
            parts.append(Part(batch, first, len(each) - 1, row))
    if parts:
        found.append(SpoolPartition(spool=spool, parts=tuple(parts)))
    return found
