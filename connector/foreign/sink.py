"""The sink for foreign brokers: tasks send their rows and wait until the broker has confirmed each.

At least once: rows stay at the broker when a task or the write fails, and a repeated task sends its rows again, with the same
message ids. If the broker refuses a row, the task fails with the broker's text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from ...broker_core import executor_modules
from ...broker_core.errors import InvalidOption, ResourceLimit, Unreachable
from ..access import BrokerAccess
from ..backoff import RECONNECT_S, answered
from ..options import Options
from ..reporting import reports_errors
from ..sink.routing import by_queue, named_in
from ..sink.writer import SinkWriter, without_query_id
from ..spark_versions import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from ..task import context
from ..task.batching import halved
from .attendant import Attendant
from .message_ids import named, prefix_of

MAX_LINKS = 256  # of one task whose rows name their queues


@dataclass(eq=False)
class SendReport(WriterCommitMessage):
    """The number of messages that the broker accepted."""

    messages: int


class _ForeignWriter(SinkWriter):
    """A commit has nothing to do, and an abort cannot take messages back."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if len(options.urls) > 1:
            raise InvalidOption(
                "option url names several brokers, and not each is a Penstock: a write spreads only over Penstock brokers, which"
                " publish it once. Write to each other broker separately"
            )
        super().__init__(options, schema, overwrite)
        for name, meant in (("exchange", None), ("operation", "settle")):
            if options[name] is not None and meant in (None, options[name]):
                raise InvalidOption(
                    f"option {name} is for a Penstock, and {options['url']} is another broker: name its address with the option"
                    " queue"
                )

    def _reached(self, access: BrokerAccess) -> BrokerAccess:
        return access

    def _send(self, batches: Iterator[pa.RecordBatch], *write: object) -> SendReport:
        """Wait until the broker has accepted each row of a task.

        Message ids begin with `write`. An empty task does not connect.
        """
        parts = self._parts(self._named(batches, prefix_of(*write, context.partition())))
        first = next(parts, None)
        if first is None:
            return SendReport(0)
        leaving = executor_modules.module("messages.encoding.leaving").leaving
        with executor_modules.own_errors(), self._connected() as connection, Attendant(connection) as attendant:
            links = _Links(connection)
            for queue, rows in chain((first,), parts):  # Spark's next rows may take minutes
                payloads = leaving(rows, 0, 0, {})
                with attendant.held():
                    links.send(queue, payloads)
            with attendant.held():
                return SendReport(links.finish())

    def _named(self, batches: Iterator[pa.RecordBatch], prefix: str) -> Iterator[tuple[pa.Array | None, pa.RecordBatch]]:
        count = 0
        for batch in batches:
            if batch.num_rows:
                queues, rows = self._prepared(batch)
                yield queues, named(rows, prefix, count, self._options["duplicateIdProperty"])
                count += batch.num_rows

    def _parts(self, prepared: Iterator[tuple[pa.Array | None, pa.RecordBatch]]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield rows with their queue, in order within each. Larger batches would not be faster."""
        chosen = self._options["queue"]
        for queues, rows in prepared:
            for queue, part in ((chosen[0], rows),) if chosen is not None else by_queue(named_in(queues), rows):
                yield from ((queue, half) for half in halved(part))

    def _connected(self) -> Any:
        def connect() -> Any:
            with executor_modules.own_errors():
                return self._access.amqp(self._options["sendTimeout"])

        return answered(connect, RECONNECT_S, lambda error: isinstance(error, Unreachable))


class _Links:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._senders: dict[str, Any] = {}

    def send(self, queue: str, payloads: list[bytes]) -> None:
        """Raises the broker's refusal of earlier messages of this link."""
        sender = self._senders.get(queue)
        if sender is None:
            if len(self._senders) >= MAX_LINKS:
                raise ResourceLimit(f"the rows of one task name more than {MAX_LINKS} queues: partition them by queue first")
            sender = self._senders[queue] = self._connection.sender(queue)
        sender.send(payloads)
        if sender.refused:
            sender.flush()

    def finish(self) -> int:
        for sender in self._senders.values():
            sender.flush()
        return sum(sender.accepted for sender in self._senders.values())


@reports_errors
class ForeignBatchWriter(_ForeignWriter, DataSourceArrowWriter):
    """Writer for `df.write` to a foreign broker. With `txnAppId` and `txnVersion` a repetition has the same message ids."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        app = self._options["txnAppId"]
        return self._send(iterator, self._write) if app is None else self._send(iterator, app, self._options["txnVersion"])


@reports_errors
class ForeignStreamWriter(_ForeignWriter, DataSourceStreamArrowWriter):
    """Writer for `df.writeStream` to a foreign broker."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch = context.spark_batch()
        if batch is None:
            raise without_query_id("have the message ids of the first")
        return self._send(iterator, batch.query, batch.number)
