"""The sink: stage, then publish once.

Each `write()` stages its batches under a random id of its own and tells the driver in its commit message. The driver's commit
publishes exactly those stages, in partition order, as one event of the broker: visible all at once or never. A task that fails
discards its stage. What zombie and killed attempts staged is published by nobody, and the broker drops it after a day.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from broker_core import message
from broker_core.client import Client
from broker_core.errors import InvalidRequest, PenstockError
from connector import settle
from connector.options import MAX_NAME, WRITE, Options
from connector.read import BATCH_BYTES, BATCH_ROWS, coalesce, halved
from connector.schema import settle_columns, sink_columns

# Rows kept back over all queues of a task while they are being routed.
MOST_ROUTED_ROWS, MOST_ROUTED_BYTES = 4 * BATCH_ROWS, 8 * BATCH_BYTES

# Seconds for a broker to be told of a write that failed: it may have failed for its silence.
FORGET_S = 5.0

# Where Spark's MicroBatchExecution tells its tasks whose they are.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class Staged(WriterCommitMessage):
    """What one `write()` staged: stage ids in order, and the query and batch it did so for (None in a batch write)."""

    def __init__(self, stages: list[str], query: str | None = None, batch: int | None = None) -> None:
        self.stages = stages
        self.query = query
        self.batch = batch


class _Writer:
    """What both sinks share."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        options.check_for(WRITE)
        if overwrite:
            raise InvalidRequest(
                "a queue cannot be overwritten: use mode('append') or outputMode('append');"
                " to empty a queue, use `penstock queue purge NAME`"
            )
        self._options = options
        unknown = options["ignoreUnknownColumns"]
        if options["operation"] == "settle":
            self._columns = settle_columns(schema, ignore_unknown=unknown)
        else:
            place = options["queue"][0] if options["queue"] else options["exchange"][0] if options["exchange"] else None
            self._columns = sink_columns(schema, queue=place, ignore_unknown=unknown)
        self._access = options.access.found()  # once, for all tasks; only an AMQP url is asked for anything

    def _stage(self, batches: Iterator[pa.RecordBatch]) -> list[str]:
        stage = secrets.token_hex(16)
        try:
            return [stage] if self._fill(stage, batches) else []
        except BaseException:
            # Nobody will ever publish it, and as long as it is there it takes room in its queues.
            self._forget([stage])
            raise

    def _fill(self, stage: str, batches: Iterator[pa.RecordBatch]) -> int:
        """How many messages the stage holds, or how many rows said what became of one. With none there is no stage."""
        target = self._target()
        with self._access.client() as client:
            if self._options["operation"] == "settle":
                outcomes = (settle.prepared(batch, self._columns) for batch in batches)
                return settle.stage(client, stage, (batch for batch in outcomes if batch.num_rows))
            prepared = (self._prepared(batch) for batch in batches if batch.num_rows)
            if target is None:
                return _Router(client, stage).route(prepared)
            return _send(client, stage, target, (rows for _, rows in prepared))

    def _target(self) -> dict[str, Any] | None:
        """Where all rows go, as the broker is told; None where each row names its queue."""
        if self._options["exchange"] is not None:
            name, key = self._options["exchange"]
            return {"exchange": name, "routingKey": key}
        queues = self._options["queue"]
        return None if queues is None else {"queue": queues[0]}

    def _prepared(self, batch: pa.RecordBatch) -> tuple[pa.Array | None, pa.RecordBatch]:
        """The column `queue` if it routes, and the messages of a batch as the broker takes them."""
        names = [name for name in self._columns if name != "queue"]
        chosen = pa.RecordBatch.from_arrays([batch.column(self._columns[name]) for name in names], names=names)
        routed = batch.column(self._columns["queue"]) if "queue" in self._columns else None
        return routed, message.validate(chosen)

    def _publish(self, stages: list[str], key: dict[str, Any] | None) -> None:
        with self._access.client() as client:
            client.call("stage.publish", stages=stages, key=key)

    def _discard(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        stages = _stages(messages)
        if stages:
            self._forget(stages)

    def _forget(self, stages: list[str]) -> None:
        # The write has failed already; the user must see why, not that the broker could not be told. It forgets them itself.
        with suppress(PenstockError), self._access.client() as client:
            client.call("stage.discard", stages=stages, timeout_s=FORGET_S)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`df.write.format("amqp")`: all of the DataFrame or nothing. With `txnAppId` and `txnVersion` a repetition is a no-op."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Staged(self._stage(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        stages, app = _stages(messages), self._options["txnAppId"]
        key = None if app is None else {"kind": "txn", "id": self._written_as(app), "number": self._options["txnVersion"]}
        if stages or key:
            self._publish(stages, key)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._discard(messages)

    def _written_as(self, app: str) -> str:
        """A name for writes of this application to this target: in Delta too each table keeps versions of its own, and one
        `foreachBatch` may write to several."""
        target = self._options["operation"] if self._options["operation"] == "settle" else self._target()
        name = json.dumps([app, target], ensure_ascii=False)
        return name if len(name) <= MAX_NAME else hashlib.sha256(name.encode()).hexdigest()


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`df.writeStream.format("amqp")`: publishing the same (query id, batch id) again, or a lower one, is a no-op."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        if options["txnAppId"] is not None:
            raise InvalidRequest("options txnAppId and txnVersion are for df.write; a stream has its query id and batch id")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID) if context else None
        if not query or context is None:
            raise InvalidRequest(
                "this stream has no query id, without which a repeated batch could not be recognised: start it with"
                " df.writeStream…start() in Spark's micro-batch mode"
            )
        batch = context.getLocalProperty(BATCH_ID)
        return Staged(self._stage(iterator), query, int(batch) if batch else None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        tasks = [staged for staged in messages if isinstance(staged, Staged)]
        for staged in tasks:
            if staged.query != tasks[0].query or staged.batch not in (None, batchId):
                raise InvalidRequest(
                    f"a task wrote for batch {staged.batch} of query {staged.query}, the commit is for batch {batchId}"
                    f" of query {tasks[0].query}: nothing was published; start the query again"
                )
        # An empty batch is published too where its query is known: the number must count as done.
        if tasks:
            self._publish(_stages(messages), {"kind": "stream", "id": tasks[0].query, "number": batchId})

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._discard(messages)


def _stages(messages: Sequence[WriterCommitMessage | None]) -> list[str]:
    return [stage for staged in messages if isinstance(staged, Staged) for stage in staged.stages]


# --- Sending ---------------------------------------------------------------------------------------------------------------


def _send(client: Client, stage: str, target: dict[str, Any], batches: Iterable[pa.RecordBatch]) -> int:
    """Stage batches for one queue or exchange, in order; return how many messages it holds: not those that an exchange drops.
    Nothing is sent when there are none."""
    ready = (part for batch in coalesce(batches) for part in halved(batch))
    first = next(ready, None)
    if first is None:
        return 0

    def all_of_them() -> Iterator[pa.RecordBatch]:
        yield first
        yield from ready

    said = client.put({"op": "stage", "stage": stage, **target}, first.schema, all_of_them())
    return int(said["messages"]) - int(said.get("dropped", 0))


class _Router:
    """Rows to the queues that they name. The order within a queue is the order of the rows."""

    def __init__(self, client: Client, stage: str) -> None:
        self._client = client
        self._stage = stage
        self._waiting: dict[str, list[pa.RecordBatch]] = {}
        self._rows = self._bytes = 0

    def route(self, prepared: Iterable[tuple[pa.Array | None, pa.RecordBatch]]) -> int:
        count = 0
        for queues, rows in prepared:
            for queue, part in by_queue(queues, rows):
                self._waiting.setdefault(queue, []).append(part)
            self._rows += rows.num_rows
            self._bytes += rows.nbytes
            if self._rows >= MOST_ROUTED_ROWS or self._bytes >= MOST_ROUTED_BYTES:
                count += self._flush()
        return count + self._flush()

    def _flush(self) -> int:
        count = sum(_send(self._client, self._stage, {"queue": queue}, batches) for queue, batches in self._waiting.items())
        self._waiting, self._rows, self._bytes = {}, 0, 0
        return count


def by_queue(queues: pa.Array, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each queue, in their order. Sorted once by queue, so the cost does not grow with the number of queues."""
    import pyarrow.compute as pc

    if queues.null_count:
        row = pc.index(pc.is_null(queues), True).as_py()
        raise InvalidRequest(f"column 'queue' is null in row {row}: name a queue in each row, or set the option queue")
    coded = queues.dictionary_encode()
    if len(coded.dictionary) == 1:
        yield coded.dictionary[0].as_py(), rows
        return
    order = pc.sort_indices(coded.indices)  # stable
    ordered = rows.take(order)
    begin = 0
    for count in sorted(pc.value_counts(coded.indices).to_pylist(), key=lambda entry: entry["values"]):
        yield coded.dictionary[count["values"]].as_py(), ordered.slice(begin, count["counts"])
        begin += count["counts"]
