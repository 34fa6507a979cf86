"""The batch reader: a read of queues and their archives that acquires nothing and can be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from ...broker_core.archive.read.files import Table, tasks
from ...broker_core.client.flight import Client
from ..identity import connected
from ..options import READ, Options
from ..reporting import reports_errors
from ..schema import check_source
from ..spark_versions import DataSourceReader, Filter, InputPartition
from ..suggestions import SelectorHints
from ..task.archive import bounds_of, read_recorded, version_of
from ..task.declared import DeclaredRows
from ..task.partition import BrowsePartition, RecordedPartition
from ..task.reading import read_browsed
from .filters import narrowed


@reports_errors
class BatchReader(DataSourceReader):
    """Reader of current messages within the options' bounds. Planning fixes the range."""

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_for(READ)
        check_source(schema, stream=False)
        self._options = options
        self._declared = DeclaredRows.of(schema, options)
        self._bounds = bounds_of(options)
        self._hints = SelectorHints()

    def partitions(self) -> list[InputPartition]:
        self._hints.log_of(self._options["selector"])
        queues = self._options["queue"]
        least = -(-self._options["minPartitions"] // (len(queues) * len(self._options.urls)))
        sizes = {"minPartitions": least, "maxMessages": self._options["maxMessagesPerPartition"]}
        more = {"selector": self._options["selector"], "columns": list(self._declared.columns)}
        plan = "archive.plan" if "archived" in self._options["states"] else "browse.plan"
        partitions: list[InputPartition] = []
        with ExitStack() as stack:
            clients = connected(self._options, stack)
            # All ranges before any message is read.
            plans = [(client, queue, client.call(plan, **self._asked(queue), **sizes)) for client in clients for queue in queues]
            for client, queue, answer in plans:
                table = Table.of_fields(answer["table"]) if answer.get("table") else None
                if table is not None:
                    partitions += self._recorded(client, queue, table, least)
                recorded = table.last_recording if table is not None else 0
                rest = {"op": "browse", **self._asked(queue), **more, "recordedAfter": recorded}
                partitions += [
                    BrowsePartition(client.endpoint, {**rest, "first": a, "last": b}, client.url) for a, b in answer["parts"]
                ]
        return partitions

    def _recorded(self, client: Client, queue: str, known: Table, least: int) -> Iterator[InputPartition]:
        bounds = self._bounds._replace(queue_id=known.queue_id, lineages=known.lineages, after=self._options["recordedAfter"])
        listed = version_of(client, queue, known, bounds).files
        where, selector = (client.endpoint, queue, known.url), self._options["selector"]
        for shares in tasks(listed, self._options["maxMessagesPerPartition"], least):
            yield RecordedPartition(*where, shares, bounds, self._declared.columns, selector, client.url)

    def _asked(self, queue: str) -> dict[str, Any]:
        bounds = {name: getattr(self._bounds, name) for name in ("first", "last", "since", "until", "outcome")}
        return {"queue": queue, "states": list(self._options["states"]), **bounds}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        messages: Iterator[pa.RecordBatch] = iter(())  # without partitions, Spark makes an empty one
        if isinstance(partition, BrowsePartition):
            messages = read_browsed(partition, self._options.access.of(partition.broker_url))
        elif isinstance(partition, RecordedPartition):
            messages = read_recorded(partition, self._options.access.of(partition.broker_url))
        return self._declared.rows(messages)


@reports_errors
class PushdownBatchReader(BatchReader):
    """Reader that also narrows the range by the query's filters, to save transfers. Spark applies them again.

    If `spark.sql.python.filterPushdown.enabled` is off, Spark fails every read of a source that takes filters. A reader cannot
    see that setting, so the option `pushdown=true` chooses this class.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for filter_ in filters:
            self._bounds = narrowed(self._bounds, filter_)
        return filters
