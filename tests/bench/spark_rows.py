"""Rows about the connector: reads and writes of Spark, against sources and sinks with almost no work."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import both_forms
import spark_sources
from feeding import BATCH, QUEUE, batch_of, copied, filled
from harness import WARM_UPS, Bench, Line, Stopwatch, cpu_of_family
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming import StreamingQuery
from spark_sources import TRIGGERS, trigger_ms

from penstock import connector
from penstock.broker_core.client.flight import Client
from penstock.broker_core.messages.columns import DEFAULT_COLUMNS
from penstock.broker_core.server.child import Broker
from penstock.connector.options import DEFAULT_MESSAGES_PER_PARTITION
from penstock.jobs.session import builder

NARROW = ("sequenceNumber", "body")


@cache
def session() -> SparkSession:
    """One JVM for all rows, set up as the README recommends, Delta's jars included."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cloudpickle.register_pickle_by_value(spark_sources)
    spark = builder("penstock-bench", {"spark.driver.memory": "4g"}).getOrCreate()
    connector.register(spark)
    spark_sources.register(spark)
    return spark


# --- Draining --------------------------------------------------------------------------------------------------------------


def drain_noop(bench: Bench) -> Iterator[Line]:
    """Drain a freshly filled broker, then a broker that was started on such a directory."""
    messages = bench.count(10_000_000, 200_000)
    for columns in (DEFAULT_COLUMNS, NARROW):
        title = (
            f"fill with {messages:,} messages of 100 bytes, drain immediately, availableNow into noop, {_columns_text(columns)}"
        )
        yield _drain(bench, "drain-noop", title, partial(_drained_at_once, bench), messages, columns, "noop", (0.8, 0.9))
    with _filled(bench, messages) as origin:
        title = "the same after a restart of the broker, " + _columns_text(DEFAULT_COLUMNS)
        yield _drain(bench, "drain-noop", title, partial(drained, bench, origin), messages, DEFAULT_COLUMNS, "noop", (0.8, 0.9))


def drain_delta(bench: Bench) -> Iterator[Line]:
    messages = bench.count(2_000_000, 200_000)
    with _filled(bench, messages) as origin:
        title = f"the same with {messages:,} into Delta, " + _columns_text(DEFAULT_COLUMNS)
        yield _drain(
            bench, "drain-delta", title, partial(drained, bench, origin), messages, DEFAULT_COLUMNS, "delta", (0.7, 0.95)
        )


def two_brokers(bench: Bench) -> Iterator[Line]:
    """Cost of a second broker without a core of its own: ideally none."""
    # As many tasks for both (of at most `DEFAULT_MESSAGES_PER_PARTITION`): each costs Spark 50 ms.
    messages = bench.count(10_000_000, 1_040_000)
    spent: dict[str, list[float]] = {"two": [], "one": []}
    with _filled(bench, messages // 2) as first, _filled(bench, messages // 2) as second, _filled(bench, messages) as whole:

        def ours(_: int) -> float:
            return messages / _drained(bench, (first, second), messages, cpu=spent["two"])

        def theirs(_: int) -> float:
            return messages / _drained(bench, (whole,), messages, cpu=spent["one"])

        ours(0), theirs(0)
        for warm in spent.values():
            warm.clear()
        figures = bench.pairs("rows/s", ours, theirs)
    title = f"drain {messages:,} messages of 100 bytes from two brokers on one machine, availableNow into noop"
    more = {f"CPU of all processes with {name}, µs/row": costs for name, costs in spent.items()}
    bench.say("; ".join(f"{name}: {statistics.median(costs):.3g}" for name, costs in more.items()))
    yield Line("two-brokers", title, "the same rows from one broker", 1.0, None, True, "rows/s", *figures, more=more)


def drain_encoded(bench: Bench) -> Iterator[Line]:
    """Cost of decoding in Spark's tasks."""
    messages = bench.count(1_000_000, 200_000)
    origins = {form: bench.folder() for form in ("encoded", "columnar")}
    for form, origin in origins.items():
        with bench.doing(f"{messages:,} {form} messages"):
            both_forms.filled(origin, messages, form)

    def rate(form: str) -> float:
        return messages / drained(bench, origins[form], messages)

    rate("encoded"), rate("columnar")
    figures = bench.pairs("rows/s", lambda _: rate("encoded"), lambda _: rate("columnar"))
    for origin in origins.values():
        bench.remove(origin)
    title = f"drain {messages:,} messages that an AMQP client sent, with properties, availableNow into noop, the default columns"
    yield Line("drain-encoded", title, "the same rows sent by Spark", 0.4, 0.7, True, "rows/s", *figures)


@contextmanager
def _filled(bench: Bench, messages: int) -> Iterator[Path]:
    origin = bench.folder()
    with bench.doing(f"{messages:,} messages"):
        filled(origin, messages)
    yield origin
    bench.remove(origin)


def _columns_text(columns: tuple[str, ...]) -> str:
    return "the default columns" if columns == DEFAULT_COLUMNS else "only " + " and ".join(columns)


def _drain(
    bench: Bench,
    row: str,
    title: str,
    drain: Callable[[int, tuple[str, ...], str], float],
    messages: int,
    columns: tuple[str, ...],
    sink: str,
    marks: tuple[float, float],
) -> Line:
    partitions = -(-messages // DEFAULT_MESSAGES_PER_PARTITION)

    def ours(_: int) -> float:
        return messages / drain(messages, columns, sink)

    def theirs(_: int) -> float:
        return messages / _run(bench, _memory(columns, messages, partitions=partitions), sink, messages)

    for _ in range(WARM_UPS):
        ours(0), theirs(0)
    figures = bench.pairs("rows/s", ours, theirs, turned=True)
    against = "the same rows from a Python source that yields one prebuilt Arrow batch"
    return Line(row, title, against, *marks, True, "rows/s", *figures)


def drained(
    bench: Bench, origin: Path, messages: int, columns: tuple[str, ...] = DEFAULT_COLUMNS, sink: str = "noop", **options: str
) -> float:
    """Seconds to drain a broker on a copy of this directory."""
    return _drained(bench, (origin,), messages, columns, sink, **options)


def _drained(
    bench: Bench,
    origins: Sequence[Path],
    messages: int,
    columns: tuple[str, ...] = DEFAULT_COLUMNS,
    sink: str = "noop",
    cpu: list[float] | None = None,
    **options: str,
) -> float:
    """Seconds to drain brokers on copies of these directories; `cpu` gets the µs of all processes for a row."""
    folders = [copied(origin, bench.folder()) for origin in origins]
    with ExitStack() as stack:
        brokers = [stack.enter_context(Broker(folder, fsync="always")) for folder in folders]
        frame = _queue(",".join(broker.url for broker in brokers), columns, **options)
        before = 0.0 if cpu is None else cpu_of_family(os.getpid())
        seconds = _run(bench, frame, sink, messages)
        if cpu is not None:
            cpu.append((cpu_of_family(os.getpid()) - before) / messages * 1e6)
    for folder in folders:
        bench.remove(folder)
    return seconds


def _drained_at_once(bench: Bench, messages: int, columns: tuple[str, ...], sink: str) -> float:
    """Seconds to drain a broker that has just been filled, over Flight."""
    data, batch = bench.folder(), batch_of(BATCH, 100)
    with Broker(data, fsync="always") as broker, Client(broker.url) as client:
        broker.declare(QUEUE)
        client.put({"op": "enqueue", "queue": QUEUE}, batch.schema, (batch for _ in range(messages // BATCH)))
        seconds = _run(bench, _queue(broker.url, columns), sink, messages)
    bench.remove(data)
    return seconds


def _queue(url: str, columns: tuple[str, ...], source: str = "amqp", **options: Any) -> DataFrame:
    reader = session().readStream.format(source).options(url=url, queue=QUEUE, **options)
    if columns != DEFAULT_COLUMNS:
        from penstock.connector.schema import source_schema

        reader = reader.schema(source_schema(columns))
    return reader.load()


def _memory(columns: tuple[str, ...], rows: int, *, partitions: int = 1, limit: int | None = None) -> DataFrame:
    options = spark_sources.memory_options(columns, rows, limit=limit, partitions=partitions)
    return session().readStream.format(spark_sources.MEMORY).options(**options).load()


def _run(bench: Bench, frame: DataFrame, sink: str, messages: int) -> float:
    """Seconds from `start` to the end of an `availableNow` query."""
    with Stopwatch() as watch:
        query = _start(bench, frame, sink, availableNow=True)
        query.awaitTermination()
    seen = sum(progress["numInputRows"] for progress in query.recentProgress)
    assert seen == messages, f"{seen} rows came, {messages} were sent"
    return watch.seconds


def _start(bench: Bench, frame: DataFrame, sink: str, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(bench.folder())).trigger(**trigger)
    return writer.start(str(bench.folder())) if sink == "delta" else writer.start()


# --- Latency ---------------------------------------------------------------------------------------------------------------


def first_row(bench: Bench) -> Iterator[Line]:
    with _one_message(bench) as make:

        def timed(frame: DataFrame) -> float:
            asked = time.time()
            query = _start(bench, frame, "noop", availableNow=True)
            query.awaitTermination()
            first = next(progress for progress in query.recentProgress if progress["numInputRows"])
            begun = datetime.fromisoformat(first["timestamp"].replace("Z", "+00:00")).timestamp()
            return begun + first["durationMs"]["triggerExecution"] / 1000 - asked

        def ours(_: int) -> float:
            return timed(make(1))

        def theirs(_: int) -> float:
            return timed(_memory(DEFAULT_COLUMNS, 1))

        ours(0), theirs(0)
        figures = bench.pairs("s", ours, theirs)
    title = "start of a query to its first row"
    yield Line("first-row", title, "the in-memory Python source", 1.3, None, False, "s", *figures)


def _trigger_ms(bench: Bench, frame: DataFrame) -> float:
    return trigger_ms(_start(bench, frame, "noop", processingTime="0 seconds"))


def progress(bench: Bench) -> Iterator[Line]:
    with _one_message(bench) as make:

        def with_it(_: int) -> float:
            return _trigger_ms(bench, make(TRIGGERS, maxMessagesPerTrigger=1))

        def without(_: int) -> float:
            return _trigger_ms(bench, make(TRIGGERS, spark_sources.SILENT, maxMessagesPerTrigger=1))

        with_it(0), without(0)
        figures = bench.pairs("ms", with_it, without)
    title = "trigger of a stream with one row each, with the backlog in its progress (median)"
    yield Line("progress", title, "without it", 1.05, None, False, "ms", *figures)


def trigger(bench: Bench) -> Iterator[Line]:
    with _one_message(bench) as make:

        def ours(_: int) -> float:
            return _trigger_ms(bench, make(TRIGGERS, maxMessagesPerTrigger=1))

        def theirs(_: int) -> float:
            return _trigger_ms(bench, _memory(DEFAULT_COLUMNS, TRIGGERS, limit=1))

        ours(0), theirs(0)
        figures = bench.pairs("ms", ours, theirs)
    title = "trigger of a stream with one row each (median)"
    yield Line("trigger", title, "the in-memory Python source", 1.3, None, False, "ms", *figures)


@contextmanager
def _one_message(bench: Bench) -> Iterator[Callable[..., DataFrame]]:
    """Makes streams from a queue with so many messages."""
    import pyarrow as pa

    data = bench.folder()
    with Broker(data, fsync="always") as broker, Client(broker.url) as client:
        broker.declare(QUEUE)

        def make(messages: int, source: str = "amqp", **options: Any) -> DataFrame:
            client.call("queue.purge", queue=QUEUE)
            batch = pa.record_batch({"body": pa.array([b"x" * 100] * messages, pa.binary())})
            client.put({"op": "enqueue", "queue": QUEUE}, batch.schema, [batch])
            return _queue(broker.url, DEFAULT_COLUMNS, source, **options)

        yield make
    bench.remove(data)


# --- Writing ---------------------------------------------------------------------------------------------------------------


def write(bench: Bench) -> Iterator[Line]:
    messages = bench.count(1_000_000, 100_000)
    frame = session().range(0, messages, 1, 2).select(expr("cast(lpad(id, 100, 'x') as binary) as body"))
    data = bench.folder()

    def timed(writer: Any) -> float:
        with Stopwatch() as watch:
            writer.mode("append").save()
        return messages / watch.seconds

    with Broker(data, fsync="always") as broker, Client(broker.url) as client:
        broker.declare(QUEUE)

        def ours(_: int) -> float:
            before = client.call("queue.stat", queue=QUEUE)["enqueued"]
            rate = timed(frame.write.format("amqp").options(url=broker.url, queue=QUEUE))
            assert client.call("queue.stat", queue=QUEUE)["enqueued"] - before == messages
            return rate

        def theirs(_: int) -> float:
            folder = bench.folder()
            folder.mkdir()
            rate = timed(frame.write.format(spark_sources.FILE).option("folder", str(folder)))
            bench.remove(folder)
            return rate

        ours(0), theirs(0), ours(0), theirs(0)
        figures = bench.pairs("rows/s", ours, theirs)
    bench.remove(data)
    title = f"df.write of {messages:,} rows of 100 bytes, durable"
    against = "a Python sink whose tasks write and fdatasync the same batches to a file"
    yield Line("write", title, against, 0.6, 0.8, True, "rows/s", *figures)
