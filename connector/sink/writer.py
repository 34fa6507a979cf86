"""The sink: stage, then publish once.

A write has a random id. Each attempt of each of its tasks stages its batches under this id and a number of its own, which its
commit message tells the driver. The driver's commit publishes exactly these stages, in partition order, as one event of the
broker: all messages become visible at once, or none. The commit or the abort discards the stages of zombie and killed
attempts, and later ones are refused. The stages of a killed driver stay for a day (`penstock stage list`).

A write that can be repeated has a key. Before it looks at a row, the sink asks the broker whether the write was published; the
publish tells it again. By then Spark has pulled rows from the source: the broker knows for which batch of Spark's they were read,
and gives back what a repetition has read and no earlier write has sent (`broker_core.engine.model.reads`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ...broker_core.client.flight import Client
from ...broker_core.errors import DataLoss, InvalidColumn, InvalidOption, InvalidRequest, PeerError, PenstockError, StorageError
from ...broker_core.messages import batch_checks
from ..access import BrokerAccess
from ..backoff import RECONNECT_S, Patience
from ..brokers.publishing import Publishing, check_finished
from ..brokers.spread import Spread
from ..options import FOREIGN_ONLY, MAX_NAME, WRITE, Options
from ..reporting import reports_errors
from ..schema import settle_columns, sink_columns
from ..task.context import attempt, spark_batch
from . import settlement
from .routing import coalesced, routed, sent

log = logging.getLogger("penstock")

# Seconds for a broker to be told of a write that failed: it may have failed for its silence.
FORGET_S = 5.0

PUBLISH_S = 120.0  # how long a publish is asked for again: all tasks' work hangs on it, and it is answered once a broker is back

_UNSURE = (
    "no broker has confirmed this write, which may have been sent: look into its queue before you write the data again (with"
    " txnAppId and txnVersion a repetition sends nothing twice)"
)
_UNSURE_ONCE = "no broker has confirmed this write, which may have been sent: write it again, and it is not sent twice"


class StageReport(WriterCommitMessage):
    """Report of one attempt of a task: the stage that it filled, and for which query and batch (None in a batch write).

    Of several brokers, `brokers` names those at which there is such a stage.
    """

    def __init__(
        self,
        write: str,
        attempt: int | None = None,
        query: str | None = None,
        batch: int | None = None,
        *,
        published: bool = False,
    ) -> None:
        self.write = write
        self.attempt = attempt  # None: nothing was staged
        self.query = query
        self.batch = batch
        self.published = published  # the broker said so before a row was looked at
        self.brokers: tuple[str, ...] = ()  # ids


class SinkWriter:
    """Writer of one DataFrame: what both sinks have in common."""

    _patience_s = 0.0  # for one of several brokers that is away when the writer is made

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
        self._spread: Spread | None = None
        if len(options.urls) > 1:
            self._spread = Spread(options, self._columns, self._patience_s)
        else:
            self._access = self._reached(options.access)

    @property
    def _has_key(self) -> bool:
        """Say whether a repetition is recognised. Outcomes at several brokers are published again instead: the last one of a
        message counts, and a part that is missing could not be published later, when the query has taken up its leases anew."""
        return self._spread is None or self._options["operation"] != "settle"

    def _reached(self, access: BrokerAccess) -> BrokerAccess:
        """Find the broker once, for all tasks; only an AMQP url is asked for anything. Raises NoPenstock for another broker."""
        found = access.found()
        for name in FOREIGN_ONLY:
            if name in self._options.given:
                raise InvalidOption(f"option {name} is for brokers that are no Penstock: leave it out")
        self._options.check_names()
        return found

    def _stage(self, batches: Iterator[pa.RecordBatch], write: str, key: dict[str, Any] | None) -> StageReport:
        """Stage the rows of one attempt of a task, unless the write is a repetition."""
        mine, batch = attempt(), spark_batch()
        report = StageReport(write, None, batch and batch.query, batch and batch.number)
        try:
            if self._spread is not None:
                return self._stage_spread(self._spread, batches, report, mine, key)
            with self._access.client() as client:
                if key is not None and client.call("stage.published", **key)["published"]:
                    report.published = True
                elif self._fill(client, {"write": write, "attempt": mine}, batches):
                    report.attempt = mine
        except BaseException:
            # Nobody will ever publish it, and as long as it is there it takes capacity of its queues.
            self._forget(write, [mine])
            raise
        return report

    def _stage_spread(
        self, spread: Spread, batches: Iterator[pa.RecordBatch], report: StageReport, mine: int, key: dict[str, Any] | None
    ) -> StageReport:
        """Stage the rows of one attempt of a task at the brokers that they go to."""
        report.published = key is not None and spread.is_published(key)
        if not report.published:
            stage = {"write": report.write, "attempt": mine}
            report.brokers = spread.stage(batches, spread.home(report.write, report.batch), lambda c, b: self._fill(c, stage, b))
            report.attempt = mine if report.brokers else None
        return report

    def _fill(self, client: Client, stage: dict[str, Any], batches: Iterator[pa.RecordBatch]) -> int:
        """Fill a stage; return how many messages or outcomes it holds. With 0 there is no stage."""
        target = self._target()
        if self._options["operation"] == "settle":
            outcomes = (settlement.prepared(batch, self._columns) for batch in batches)
            return settlement.stage(client, stage, (batch for batch in outcomes if batch.num_rows))
        prepared = (self._prepared(batch) for batch in batches if batch.num_rows)
        if target is None:
            return sent(client, {**stage, "routed": True}, routed(prepared))
        return sent(client, {**stage, **target}, coalesced(rows for _, rows in prepared))

    def _target(self) -> dict[str, Any] | None:
        """Return the one queue or exchange of all rows; None if each row names its queue."""
        if self._options["exchange"] is not None:
            name, key = self._options["exchange"]
            return {"exchange": name, "routingKey": key}
        queues = self._options["queue"]
        return None if queues is None else {"queue": queues[0]}

    def _prepared(self, batch: pa.RecordBatch) -> tuple[pa.Array | None, pa.RecordBatch]:
        """Return the column `queue` if it routes, and the messages of a batch as the broker takes them."""
        names = [name for name in self._columns if name != "queue"]
        chosen = pa.RecordBatch.from_arrays([batch.column(self._columns[name]) for name in names], names=names)
        if "priority" in names and "message" not in names:
            _check_priorities(chosen.column("priority"))
        routed = batch.column(self._columns["queue"]) if "queue" in self._columns else None
        return routed, batch_checks.validate(chosen, now=time.time_ns() // 1_000_000)

    def _publish(self, tasks: Sequence[StageReport], write: str, key: dict[str, Any] | None) -> bool:
        """Publish the stages of these attempts, in this order, and discard those of other attempts of the write. Return whether
        the write is known to be a repetition.

        The request is repeated while no answer comes: the broker knows the writes that it has published.
        """
        query, batch = next(((task.query, task.batch) for task in tasks if task.batch is not None), (None, None))
        told, fails = any(task.published for task in tasks), self._options["failOnDataLoss"]
        if self._spread is not None:
            _check_there(tasks, self._spread.ids)
            parts = {
                broker: [task.attempt for task in tasks if task.attempt is not None and broker in task.brokers]
                for broker in self._spread.ids
            }
            Publishing(self._spread, key, query, batch, fails=fails).publish(write, parts, told=told)
            return told
        attempts = [task.attempt for task in tasks if task.attempt is not None]
        base = min(attempts, default=0)
        request: dict[str, Any] = {"write": write, "base": base, "attempts": [each - base for each in attempts], "key": key}
        patience, again = Patience(PUBLISH_S), False
        while True:
            try:
                with self._access.client() as client:
                    if key and told:
                        known = client.call("stage.published", **key)
                        if not known["published"]:
                            raise DataLoss(
                                "the broker has answered that this write was published before, and does not know it now: its data"
                                " directory was restored from an older state. Nothing was published; write the data again"
                            )
                        check_finished(client, known["elsewhere"], fails=fails)
                    done = client.call("stage.publish", **request, query=query, queryBatch=batch)
                    if key and done["repeated"] and not told:
                        check_finished(client, client.call("stage.published", **key)["elsewhere"], fails=fails)
                    return told or (key is not None and bool(done["repeated"]) and not again)
            except (PeerError, StorageError) as error:
                again = True  # the publish may have been done: then what is repeated is this write itself
                try:
                    patience.wait(error)
                except PenstockError:
                    raise type(error)(f"{_UNSURE if key is None else _UNSURE_ONCE}: {error}") from error

    def _forget(self, write: str, attempts: Sequence[int] = ()) -> None:
        """Discard these attempts, or the whole write. Errors are ignored: the user must see why the write failed, and the broker
        discards stages by itself in time."""
        if self._spread is not None:
            self._spread.discard(write, attempts, FORGET_S)
            return
        with suppress(PenstockError), self._access.client() as client:
            client.call("stage.discard", write=write, attempts=list(attempts), timeout_s=FORGET_S)

    def _give_up(self, write: str, key: dict[str, Any] | None) -> None:
        """Discard a write after Spark's abort, which follows a commit that failed half-way, too: what is published stays, and so
        does what its repetition needs. Errors are ignored."""
        if self._spread is None or key is None:
            self._forget(write)
        else:
            Publishing(self._spread, key, None, None).give_up(write, FORGET_S)


@reports_errors
class BatchWriter(SinkWriter, DataSourceArrowWriter):
    """Writer for `df.write.format("amqp")`: all or nothing. With `txnAppId` and `txnVersion` a repetition is a no-op."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        return self._stage(iterator, self._write, self._key)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all stages at once; with `txnAppId` also an empty write, since its version counts as done."""
        tasks = _staged(messages)
        if self._key or any(task.attempt is not None for task in tasks):
            if self._publish(tasks, self._write, self._key):
                self._say_repeated(tasks)
        else:
            self._forget(self._write)  # what killed attempts may have left

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Discard the stages of the write that no repetition needs."""
        self._give_up(self._write, self._key)

    def _say_repeated(self, tasks: Sequence[StageReport]) -> None:
        """Warn of a repetition in a `foreachBatch`, for what it does to the other sinks: whether its rows come from the batch,
        nobody knows. A DataFrame that was kept in memory is read by another of Spark's executions than the one that writes it."""
        for task in tasks:
            if task.batch is not None:
                log.warning(
                    "a write of batch %d of query %s was published before, by its txnAppId %r and txnVersion %d: it sent nothing."
                    " Messages of this broker that the batch has read, and that no write of this txnAppId has sent, come again in"
                    " a later batch, also to other sinks of the foreachBatch: give the write a txnVersion that rises with the"
                    " batch",
                    task.batch, task.query, self._options["txnAppId"], self._options["txnVersion"],
                )  # fmt: skip
                return

    @property
    def _key(self) -> dict[str, Any] | None:
        app = self._options["txnAppId"]
        if app is None or not self._has_key:
            return None
        return {"kind": "txn", "id": written_as(app, self._place), "number": self._options["txnVersion"]}

    @property
    def _place(self) -> Any:
        return self._options["operation"] if self._options["operation"] == "settle" else self._target()


def written_as(app: str, place: Any) -> str:
    """Return the name for writes of this application to this target, since one `foreachBatch` may write to several.

    Delta does the same: each table keeps the versions of its own writes.
    """
    name = json.dumps([app, place], ensure_ascii=False)
    return name if len(name) <= MAX_NAME else hashlib.sha256(name.encode()).hexdigest()


@reports_errors
class StreamWriter(SinkWriter, DataSourceStreamArrowWriter):
    """Writer for `df.writeStream.format("amqp")`: publishing the same (query id, batch id) again, or a lower one, is a no-op."""

    _patience_s = RECONNECT_S  # Spark makes one before each batch, and another for its commit

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        if options["txnAppId"] is not None:
            raise InvalidOption("options txnAppId and txnVersion are for df.write; a stream has its query id and batch id")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task of a micro-batch. Raises InvalidRequest if Spark names no query."""
        batch = spark_batch()
        if batch is None:
            raise InvalidRequest(
                "this stream has no query id, without which a repeated batch could not be recognised: start it with"
                " df.writeStream…start() in Spark's micro-batch mode"
            )
        return self._stage(iterator, self._write_of(batch.number), self._key(*batch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish all stages of a micro-batch at once. Raises InvalidRequest if tasks wrote for another one."""
        # Spark commits with another writer than the one that its tasks have: what they tell names the write.
        tasks = _staged(messages)
        for task in tasks:
            if task.query != tasks[0].query or task.batch != batchId or task.write != tasks[0].write:
                raise InvalidRequest(
                    f"a task wrote for batch {task.batch} of query {task.query}, the commit is for batch {batchId}"
                    f" of query {tasks[0].query}: nothing was published; start the query again"
                )
        # An empty batch is published too where its query is known: the number must count as done.
        if tasks and tasks[0].query is not None:
            self._publish(tasks, tasks[0].write, self._key(tasks[0].query, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Discard the stages of a micro-batch that no repetition needs."""
        for write, query in {(task.write, task.query) for task in _staged(messages)}:
            self._give_up(write, None if query is None else self._key(query, batchId))

    def _write_of(self, batch: int) -> str:
        return f"{self._write}-{batch}"

    def _key(self, query: str, batch: int) -> dict[str, Any] | None:
        return {"kind": "stream", "id": query, "number": batch} if self._has_key else None


def _check_there(tasks: Sequence[StageReport], brokers: Sequence[str]) -> None:
    """Raise InvalidOption for rows at a broker that is none of these: nobody would publish them."""
    strange = sorted({broker for task in tasks for broker in task.brokers} - set(brokers))
    if strange:
        raise InvalidOption(
            f"rows of this write were staged at broker {strange[0]}, to which the option url does not lead any more: nothing was"
            " published; see where its names lead, and write the data again"
        )


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[StageReport]:
    return [staged for staged in messages if isinstance(staged, StageReport)]


def _check_priorities(found: pa.Array) -> None:
    """Raise InvalidColumn unless all are 0 to 9, as for every client. AMQP takes up to 255, and so does a row with `message`."""
    import pyarrow.compute as pc

    row = pc.index(pc.or_(pc.less(found, 0), pc.greater(found, 9)), True).as_py()
    if row >= 0:
        raise InvalidColumn(f"column 'priority' is {found[row]} in row {row}; it takes 0 to 9, of which 9 is the most urgent")
