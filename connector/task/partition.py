"""Spark's partitions: the values that the planner passes to each task, pickled."""

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
    """Sequence numbers `first` to `last`, both included, of a leased batch, and other values that a task needs.

    For a queue with message groups, only the messages whose groups fall into `bucket` of `buckets`.
    """

    url: str = ""  # of the broker; empty: the option's
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
        """Return the request for these messages, with the micro-batch that reads them."""
        names = ("lease", "run", "epoch", "batch", "first", "last", "bucket", "buckets")
        fields = {name: getattr(self, name) for name in names}
        query, number = spark_batch() or (None, None)
        fields |= {"query": query, "queryBatch": number}  # its write may be a repetition, which sends none of these messages
        fields |= {"queryName": query_name()}
        return {"op": op, **fields, "columns": list(columns), "failOnDataLoss": fail_on_data_loss}


@dataclass(eq=False, repr=False)
class BrowsePartition(InputPartition):
    """Partition of a batch read: the fields of the ticket `op=browse`."""

    known: Endpoint | None
    ticket: dict[str, Any]
    broker_url: str = ""  # empty: the option's

    def __repr__(self) -> str:
        return f"BrowsePartition({self.ticket})"


@dataclass(eq=False)
class RecordedPartition(InputPartition):
    """Files of the archive's table, or shares of them, and the rows to read of them."""

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
