"""The batch reader: a read of a queue and its archive that acquires nothing and can be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ...broker_core.archive.read.bounds import Bounds
from ...broker_core.archive.read.files import Table, tasks
from ...broker_core.client.flight import Client
from ..identity import connected
from ..options import READ, Options
from ..reporting import reports_errors
from ..schema import check_source
from ..suggestions import SelectorHints
from ..task.archive import read_recorded, version_of
from ..task.batching import as_declared
from ..task.partition import BrowsePartition, RecordedPartition
from ..task.reading import read_browsed


@reports_errors
class BatchReader(DataSourceReader):
    """Reader of the current messages of one queue or several, within the options' bounds. Planning fixes the range."""

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_for(READ)
        check_source(schema, stream=False)
        self._options = options
        self._columns = [field.name for field in schema.fields]
        self._nullable = [field.nullable for field in schema.fields]
        self._first: int = options["startingSequence"] or 0
        self._last: int | None = options["endingSequence"]
        self._since: int | None = options["startingTimestamp"]
        self._until: int | None = options["endingTimestamp"]
        self._outcome: str | None = options["outcome"]
        self._hints = SelectorHints()
        # Only for the archive's table. Requests to the broker do not contain it.
        self._settled_since: int | None = None
        self._settled_until: int | None = None

    def partitions(self) -> list[InputPartition]:
        """Plan the ranges of all queues, and one partition for each range. Raises PenstockError."""
        self._hints.log_of(self._options["selector"])
        queues = self._options["queue"]
        least = -(-self._options["minPartitions"] // (len(queues) * len(self._options.urls)))
        sizes = {"minPartitions": least, "maxMessages": self._options["maxMessagesPerPartition"]}
        more = {"selector": self._options["selector"], "columns": self._columns}
        plan = "archive.plan" if "archived" in self._options["states"] else "browse.plan"
        partitions: list[InputPartition] = []
        with ExitStack() as stack:
            clients = connected(self._options, stack)
            # All ranges before any message is read. The bounds apply to each queue.
            plans = [(client, queue, client.call(plan, **self._asked(queue), **sizes)) for client in clients for queue in queues]
            for client, queue, answer in plans:
                table = Table.of_fields(answer["table"]) if answer.get("table") else None
                if table is not None:
                    partitions += self._recorded(client, queue, table, least)
                rest = {
                    "op": "browse",
                    **self._asked(queue),
                    **more,
                    "recordedAfter": table.last_recording if table is not None else 0,
                }
                partitions += [
                    BrowsePartition(client.endpoint, {**rest, "first": a, "last": b}, client.url) for a, b in answer["parts"]
                ]
        return partitions

    def _recorded(self, client: Client, queue: str, known: Table, least: int) -> Iterator[InputPartition]:
        """Plan the rows of the archive's table, in recordings that the broker then leaves out."""
        came, settled = (self._since, self._until), (self._settled_since, self._settled_until)
        bounds = Bounds(known.queue_id, known.lineages, 0, self._first, self._last, *came, *settled, self._outcome)
        listed = version_of(client, queue, known, bounds).files
        for shares in tasks(listed, self._options["maxMessagesPerPartition"], least):
            part = RecordedPartition(client.endpoint, queue, known.url, shares, bounds, self._columns, self._options["selector"])
            part.broker_url = client.url
            yield part

    def _asked(self, queue: str) -> dict[str, Any]:
        """Return the fields that name the messages to read, in the plan and in tickets."""
        return {
            "queue": queue,
            "states": list(self._options["states"]),
            "first": self._first,
            "last": self._last,
            "since": self._since,
            "until": self._until,
            "outcome": self._outcome,
        }

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition's messages, in a task."""
        messages: Iterator[pa.RecordBatch] = iter(())  # without partitions Spark makes an empty one of its own
        if isinstance(partition, BrowsePartition):
            messages = read_browsed(partition, self._options.access.of(partition.broker_url))
        elif isinstance(partition, RecordedPartition):
            messages = read_recorded(partition, self._options.access.of(partition.broker_url))
        return as_declared(messages, self._nullable)
