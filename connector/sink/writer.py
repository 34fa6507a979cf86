"""The sink: stage, then publish once.

A write has a random id. Each attempt of a task stages its batches under this id and its own number, which it reports to the
driver. The driver's commit publishes exactly the reported stages, in partition order, as one event of the broker, so that all
messages become visible together. The commit or the abort discards the stages of zombie and killed attempts, and later stages are
refused. The stages of a killed driver stay for a day (`penstock stage list`).

A write that can be repeated has a key. Before it reads a row, the sink asks the broker whether the write was published. The
publish reports this again, because Spark may have pulled rows from a stream by then. The broker gives back messages that a
repetition has read and no earlier write has sent (`broker_core.engine.model.reads`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from ...broker_core.client.flight import Client
from ...broker_core.errors import DataLoss, InvalidColumn, InvalidOption, InvalidRequest, PeerError, PenstockError, StorageError
from ...broker_core.messages import batch_checks
from ..access import BrokerAccess
from ..backoff import PUBLISH_S, RECONNECT_S, Patience
from ..brokers.publishing import Publishing, check_finished, relative
from ..brokers.spread import Spread
from ..options import FOREIGN_ONLY, MAX_NAME, WRITE, Options
from ..reporting import reports_errors
from ..schema import settle_columns, sink_columns
from ..spark_versions import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from ..task.context import attempt, spark_batch
from . import settlement
from .routing import coalesced, routed, sent

log = logging.getLogger("penstock")

FORGET_S = 5.0  # to discard a failed write, whose broker may not answer

_UNSURE = (
    "no broker has confirmed this write, which may have been sent: look into its queue before you write the data again (with"
    " txnAppId and txnVersion a repetition sends nothing twice)"
)
_UNSURE_ONCE = "no broker has confirmed this write, which may have been sent: write it again, and it is not sent twice"


@dataclass(eq=False)
class StageReport(WriterCommitMessage):
    """One attempt of a task. `query` and `batch` are None in a batch write. `brokers`: which of several have its stage."""

    write: str
    attempt: int | None = None  # None without a stage
    query: str | None = None
    batch: int | None = None
    published: bool = False  # before this attempt
    brokers: tuple[str, ...] = ()


class SinkWriter:
    """Base of batch and stream."""

    _patience_s = 0.0  # of the constructor, for a missing broker of several

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
        self._write = secrets.token_hex(16)
        self._spread = Spread(options, self._columns, self._patience_s) if len(options.urls) > 1 else None
        if self._spread is None:
            self._access = self._reached(options.access)
        if isinstance(self, DataSourceStreamArrowWriter) and options["txnAppId"] is not None:
            raise InvalidOption("options txnAppId and txnVersion are for df.write; a stream has its query id and batch id")

    @property
    def _has_key(self) -> bool:
        """True if a repetition is recognised.

        Outcomes at several brokers are published again instead, since the last one of a message counts. A missing part could not
        be published after the query has taken up its leases again.
        """
        return self._spread is None or self._options["operation"] != "settle"

    def _reached(self, access: BrokerAccess) -> BrokerAccess:
        """Discover the endpoint once for all tasks. Raises NoPenstock for a foreign broker."""
        discovered = access.discovered()
        for name in FOREIGN_ONLY:
            if name in self._options.given:
                raise InvalidOption(f"option {name} is for other brokers than Penstock: leave it out")
        self._options.check_names()
        return discovered

    def _stage(self, batches: Iterator[pa.RecordBatch], write: str, key: dict[str, Any] | None) -> StageReport:
        mine, batch = attempt(), spark_batch()
        report = StageReport(write, None, batch and batch.query, batch and batch.number)
        stage = {"write": write, "attempt": mine}
        try:
            if (spread := self._spread) is not None:
                report.published = key is not None and spread.is_published(key)
                if not report.published:
                    home = spread.home(write, report.batch)
                    report.brokers = spread.stage(batches, home, lambda client, part: self._fill(client, stage, part))
                    report.attempt = mine if report.brokers else None
                return report
            with self._access.client() as client:
                if key is not None and client.call("stage.published", **key)["published"]:
                    report.published = True
                elif self._fill(client, stage, batches):
                    report.attempt = mine
        except BaseException:
            # It will never be published, and it takes capacity of its queues.
            self._forget(write, [mine])
            raise
        return report

    def _fill(self, client: Client, stage: dict[str, Any], batches: Iterator[pa.RecordBatch]) -> int:
        """Return the number of messages or outcomes; with 0 there is no stage."""
        target = self._target()
        if self._options["operation"] == "settle":
            outcomes = (settlement.prepared(batch, self._columns) for batch in batches)
            return settlement.stage(client, stage, (batch for batch in outcomes if batch.num_rows))
        prepared = (self._prepared(batch) for batch in batches if batch.num_rows)
        if target is None:
            return sent(client, {**stage, "routed": True}, routed(prepared))
        return sent(client, {**stage, **target}, coalesced(rows for _, rows in prepared))

    def _target(self) -> dict[str, Any] | None:
        """None: each row names its queue."""
        if self._options["exchange"] is not None:
            name, key = self._options["exchange"]
            return {"exchange": name, "routingKey": key}
        queues = self._options["queue"]
        return None if queues is None else {"queue": queues[0]}

    def _prepared(self, batch: pa.RecordBatch) -> tuple[pa.Array | None, pa.RecordBatch]:
        """Return the column `queue` if it routes, and validated messages."""
        names = [name for name in self._columns if name != "queue"]
        chosen = pa.RecordBatch.from_arrays([batch.column(self._columns[name]) for name in names], names=names)
        if "priority" in names and "message" not in names:
            _check_priorities(chosen.column("priority"))
        routed = batch.column(self._columns["queue"]) if "queue" in self._columns else None
        return routed, batch_checks.validate(chosen, now=time.time_ns() // 1_000_000)

    def _publish(self, tasks: Sequence[StageReport], write: str, key: dict[str, Any] | None) -> bool:
        """Discard other attempts of the write. True if it is a repetition."""
        query, batch = next(((task.query, task.batch) for task in tasks if task.batch is not None), (None, None))
        was_published, fail_on_data_loss = any(task.published for task in tasks), self._options["failOnDataLoss"]
        if self._spread is not None:
            _check_brokers(tasks, self._spread.ids)
            parts = {
                broker: [task.attempt for task in tasks if task.attempt is not None and broker in task.brokers]
                for broker in self._spread.ids
            }
            publishing = Publishing(self._spread, key, query, batch, fail_on_data_loss=fail_on_data_loss)
            publishing.publish(write, parts, is_repetition=was_published)
            return was_published
        attempts = [task.attempt for task in tasks if task.attempt is not None]
        request = {"write": write, **relative(attempts), "key": key, "query": query, "queryBatch": batch}
        patience, again = Patience(PUBLISH_S), False
        while True:
            try:
                with self._access.client() as client:
                    if key and was_published:
                        known = client.call("stage.published", **key)
                        if not known["published"]:
                            raise DataLoss(
                                "the broker has answered that this write was published before, and has no record of it now: its"
                                " data directory was restored from an older state. Nothing was published; write the data again"
                            )
                        check_finished(client, known["elsewhere"], fail_on_data_loss=fail_on_data_loss)
                    done = client.call("stage.publish", **request)
                    if key and done["repeated"] and not was_published:
                        known = client.call("stage.published", **key)
                        check_finished(client, known["elsewhere"], fail_on_data_loss=fail_on_data_loss)
                    return was_published or (key is not None and bool(done["repeated"]) and not again)
            except (PeerError, StorageError) as error:
                again = True  # the publish may have succeeded: a repetition is then this write itself
                try:
                    patience.wait(error)
                except PenstockError:
                    raise type(error)(f"{_UNSURE if key is None else _UNSURE_ONCE}: {error}") from error

    def _forget(self, write: str, attempts: Sequence[int] = ()) -> None:
        """Errors are ignored: the user sees why the write failed, and the broker discards old stages on its own."""
        if self._spread is not None:
            for broker in self._spread.ids:
                self._spread.discard_at(broker, write, attempts, FORGET_S)
            return
        with suppress(PenstockError), self._access.client() as client:
            client.call("stage.discard", write=write, attempts=list(attempts), timeout_s=FORGET_S)

    def _give_up(self, write: str, key: dict[str, Any] | None) -> None:
        """Discard a write after Spark's abort, which also follows a commit that failed half-way.

        Published parts stay, and so do stages that a repetition needs.
        """
        if self._spread is None or key is None:
            self._forget(write)
        else:
            Publishing(self._spread, key, None, None).give_up(write, FORGET_S)


@reports_errors
class BatchWriter(SinkWriter, DataSourceArrowWriter):
    """All or nothing. With `txnAppId` and `txnVersion` a repetition is a no-op."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._stage(iterator, self._write, self._key)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """With `txnAppId`, an empty write is also published: its version counts as done."""
        tasks = _staged(messages)
        if not self._key and all(task.attempt is None for task in tasks):
            self._forget(self._write)
        elif self._publish(tasks, self._write, self._key):
            self._warn_of_repetition(tasks)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._give_up(self._write, self._key)

    def _warn_of_repetition(self, tasks: Sequence[StageReport]) -> None:
        """A repetition in a `foreachBatch` affects other sinks.

        Whether its rows come from the batch is unknown: they may be from a DataFrame that was cached in another execution.
        """
        task = next((task for task in tasks if task.batch is not None), None)
        if task is not None:
            log.warning(
                "a write of batch %d of query %s was published before, by its txnAppId %r and txnVersion %d: it sent nothing."
                " Messages of this broker that the batch has read without a write of this txnAppId come again in a later"
                " batch, also to other sinks of the foreachBatch. Give the write a txnVersion that rises with the batch",
                task.batch, task.query, self._options["txnAppId"], self._options["txnVersion"],
            )  # fmt: skip

    @property
    def _key(self) -> dict[str, Any] | None:
        app = self._options["txnAppId"]
        if app is None or not self._has_key:
            return None
        place = "settle" if self._options["operation"] == "settle" else self._target()
        return {"kind": "txn", "id": written_as(app, place), "number": self._options["txnVersion"]}


def written_as(app: str, place: Any) -> str:
    """Name the writes of an application to one target: a `foreachBatch` may write to several. Delta separates them by table."""
    name = json.dumps([app, place], ensure_ascii=False)
    return name if len(name) <= MAX_NAME else hashlib.sha256(name.encode()).hexdigest()


@reports_errors
class StreamWriter(SinkWriter, DataSourceStreamArrowWriter):
    """Publishing the same batch id of a query again, or a lower one, is a no-op."""

    _patience_s = RECONNECT_S  # Spark makes one before each batch, and another for its commit

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batch = spark_batch()
        if batch is None:
            raise without_query_id("be recognised")
        return self._stage(iterator, self._write_of(batch.number), self._key(*batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Spark commits with another writer than that of the tasks, whose reports name the write."""
        tasks = _staged(messages)
        for task in tasks:
            if task.query != tasks[0].query or task.batch != batchId or task.write != tasks[0].write:
                raise InvalidRequest(
                    f"a task wrote for batch {task.batch} of query {task.query}, the commit is for batch {batchId}"
                    f" of query {tasks[0].query}: nothing was published; start the query again"
                )
        # An empty batch of a known query is also published: its number must count as done.
        if tasks and tasks[0].query is not None:
            self._publish(tasks, tasks[0].write, self._key(tasks[0].query, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for write, query in {(task.write, task.query) for task in _staged(messages)}:
            self._give_up(write, None if query is None else self._key(query, batchId))

    def _write_of(self, batch: int) -> str:
        return f"{self._write}-{batch}"

    def _key(self, query: str, batch: int) -> dict[str, Any] | None:
        return {"kind": "stream", "id": query, "number": batch} if self._has_key else None


def without_query_id(purpose: str) -> InvalidRequest:
    return InvalidRequest(
        f"this stream has no query id, without which a repeated batch could not {purpose}: start it with df.writeStream…start()"
        " in Spark's micro-batch mode"
    )


def _check_brokers(tasks: Sequence[StageReport], brokers: Sequence[str]) -> None:
    strange = sorted({broker for task in tasks for broker in task.brokers} - set(brokers))
    if strange:
        raise InvalidOption(
            f"rows of this write were staged at broker {strange[0]}, to which the option url does not lead any more: nothing was"
            " published; see where its names lead, and write the data again"
        )


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StageReport]:
    return [staged for staged in messages if isinstance(staged, StageReport)]


def _check_priorities(priorities: pa.Array) -> None:
    """A row with `message` may have up to 255, as in AMQP."""
    import pyarrow.compute as pc

    row = pc.index(pc.or_(pc.less(priorities, 0), pc.greater(priorities, 9)), True).as_py()
    if row >= 0:
        raise InvalidColumn(
            f"column 'priority' is {priorities[row]} in row {row}; it takes 0 to 9, of which 9 is the most urgent"
        )
