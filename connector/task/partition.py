"""Spark's partitions, which the planner passes to tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...broker_core.archive.read.bounds import Bounds
from ...broker_core.archive.read.scan import FileShare
from ...broker_core.client.discovery import Endpoint
from ..spark_versions import InputPartition
from .context import query_name, spark_batch


@dataclass(kw_only=True, eq=False, repr=False)
class LeasePartition(InputPartition):
    """Sequence numbers `first` to `last`, included, of a leased batch; with `buckets`, only of message groups in `bucket`."""

    url: str = ""  # empty: the option's
    known: Endpoint | None
    broker: str
    queue: str
    lease: str
    run: str
    epoch: int
    batch: int
    first: int
    last: int
    bucket: int = 0
    buckets: int = 1

    def __repr__(self) -> str:
        groups = f", groups {self.bucket} of {self.buckets}" if self.buckets > 1 else ""
        return f"LeasePartition(batch {self.batch} of lease {self.lease!r}: {self.first}..{self.last}{groups})"

    def ticket(self, op: str, columns: Sequence[str], fail_on_data_loss: bool) -> dict[str, Any]:
        """Return the request for these messages."""
        names = ("lease", "run", "epoch", "batch", "first", "last", "bucket", "buckets")
        fields = {name: getattr(self, name) for name in names}
        query, number = spark_batch() or (None, None)
        fields |= {"query": query, "queryBatch": number}  # its write may be a repetition, which sends nothing
        fields |= {"queryName": query_name()}
        return {"op": op, **fields, "columns": list(columns), "failOnDataLoss": fail_on_data_loss}


@dataclass(eq=False, repr=False)
class BrowsePartition(InputPartition):
    """The ticket `op=browse` of a batch read."""

    known: Endpoint | None
    ticket: dict[str, Any]
    broker_url: str = ""  # empty: the option's

    def __repr__(self) -> str:
        return f"BrowsePartition({self.ticket})"


@dataclass(eq=False)
class RecordedPartition(InputPartition):
    """Shares of files of the archive's table, and the rows to read of them."""

    known: Endpoint | None
    queue: str
    url: str
    shares: Sequence[FileShare]
    bounds: Bounds
    columns: Sequence[str]
    selector: str | None = None
    broker_url: str = ""  # empty: the option's

    def __repr__(self) -> str:
        return f"RecordedPartition({self.shares} of {self.url})"
