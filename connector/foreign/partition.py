"""Partitions of batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..spark_versions import InputPartition


def file_of(batch: int) -> str:
    return f"batch-{batch}.arrow"


class Part(NamedTuple):
    """Rows of a batch; `end` is excluded. `manifest`: the hash of its file in the offset."""

    batch: int
    first: int
    end: int
    manifest: str | None = None

    @property
    def file(self) -> str:
        return file_of(self.batch)


@dataclass(kw_only=True, eq=False)
class SpoolPartition(InputPartition):
    """Parts of neighbouring files, in order."""

    spool: str
    parts: tuple[Part, ...]


def cut(
    spool: str, rows: Mapping[int, int], most: int, least: int, manifests: Mapping[int, str] | None = None
) -> list[SpoolPartition]:
    """Cut batches into partitions of at most `most` rows, and into at least `least` partitions if there are enough rows.

    Sizes differ by one row at most. A task costs Spark 50 ms, so small files share one. Two tasks read all of a record batch (4
    MiB or one message) in which a partition ends.
    """
    total = sum(rows.values())
    tasks = max(-(-total // most), min(least, total))
    made: list[list[Part]] = [[] for _ in range(tasks)]
    at = task = 0  # first row of the next part among all rows, and its task
    for batch, count in rows.items():
        first = 0
        while first < count:
            end = min(count, first + (task + 1) * total // tasks - at)
            made[task].append(Part(batch, first, end, (manifests or {}).get(batch)))
            at, first = at + end - first, end
            task += at == (task + 1) * total // tasks
    return [SpoolPartition(spool=spool, parts=tuple(parts)) for parts in made]
