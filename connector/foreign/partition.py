"""Partitions: which record batches of which file."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition


@dataclass(kw_only=True, eq=False)
class SpoolPartition(InputPartition):
    """Record batches `first` to `last`, both included, of a batch's file; `row` is the number of its first row in the file."""

    spool: str
    file: str
    batch: int
    first: int
    last: int
    row: int
