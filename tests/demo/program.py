"""The demo from start to end: 336,776 flights go through a durable queue into Delta, exactly once, under kills.

Spark and DuckDB then read the archive without a broker, messages are replayed at their pace, and a broker that has lost its
machine is restored. With `--broker artemis`, the flights go through ActiveMQ Artemis instead, without the later steps.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import penstock
from penstock.broker_core.archive.table.layout import folder_name
from penstock.broker_core.client.flight import Client
from penstock.broker_core.errors import PenstockError
from penstock.broker_core.server.child import Broker
from penstock.jobs import flights

from .. import artemis
from . import foreign_broker, lost_machine
from .kills import QUEUE, Reader, compare, demo_spark, ingest, send
from .output import Output

#: Seconds until a settled message is recorded. The default of a minute would be a long pause in a demo.
ARCHIVE_AFTER_S = 1.0
#: The replay: number of messages, seconds between two messages, and the factor by which the replay is faster.
PACED, PAUSE_S, PACE = 100, 0.03, 2
#: A file that marks a folder as created by the demo, which may therefore delete it.
MARK = "made-by-penstock-demo"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 if every check holds."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.broker == "artemis" and arguments.artemis is None:
        parser.error("--broker artemis needs --artemis DIR, an unpacked Artemis; `./dev demo --broker artemis` fetches it")
    work = arguments.work.absolute()
    output = Output(4 if arguments.broker == "artemis" else 8)
    _clear(work)
    with _redirected(work / "spark.log"):
        try:
            if arguments.broker == "artemis":
                ok = foreign_broker.run(work, arguments.artemis, arguments.flights, output)
            else:
                ok = run(work, arguments.day, arguments.flights, output) and lost_machine.run(
                    work / "lost-machine", arguments.s3_server, output
                )
        except artemis.Unavailable as error:
            output.bad(str(error))
            return 1
        except (PySparkException, PenstockError, subprocess.SubprocessError, OSError, RuntimeError) as error:
            traceback.print_exc()  # into the log
            output.bad(penstock.explain(error))
            ok = False
    if ok:
        (_artemis_farewell if arguments.broker == "artemis" else _farewell)(work, output)
    else:
        output.text(f"\nThis is a bug in Penstock. Spark's output is in {work}/spark.log and {work}/ingest.log\n")
    return 0 if ok else 1


def run(work: Path, day: str, limit: int | None, output: Output) -> bool:
    """Send, ingest under kills, compare, replay; return True if every check holds."""
    output.step("A broker, and a Spark")
    with Broker(work / "broker", archive_after_s=ARCHIVE_AFTER_S) as broker:
        output.fact(f"broker: process {broker.pid}, {broker.url}, journal in {_short(broker.data_dir)}, fsync always")
        with demo_spark(limit, output) as (spark, source):
            output.step(f"A DataFrame of {source.num_rows:,} flights becomes a durable queue")
            broker.declare(QUEUE)
            sent = send(spark, broker.url, source, "on the disk, all in one step,", output)
            output.step("The queue becomes a Delta table, while Spark and the broker are killed")
            with Client(broker.url) as client:
                ingest(
                    broker,
                    broker.url,
                    Reader({"lease": "demo"}, lambda: messages_in_progress(client)),
                    work,
                    source.num_rows,
                    output,
                )
            output.step("Is every flight in the table, once?")
            got = spark.read.format("delta").load(str(work / "delta"))
            if not (compare(sent, got, output) and replay(spark, broker, source, got, day, output)):
                return False
            output.step("The archive is a table: Spark and DuckDB read it, without the broker")
            with output.busy("the broker records the last messages"):
                await_archive(broker)
            broker.stop()
            output.fact("the broker is stopped")
            if not read_archive(spark, broker.data_dir / "archive" / folder_name(QUEUE), source.num_rows, output):
                return False
            output.step("Recorded messages are replayed at their pace")
            broker.start()
            return at_pace(spark, broker, work, output)


def messages_in_progress(client: Client) -> int:
    """Count the messages of the batch that Spark's tasks read; 0 between two batches."""
    leases = client.call("lease.list")["leases"]
    return next((int(lease["messages"]) for lease in leases if lease["stage"] == "read"), 0)


def replay(spark: SparkSession, broker: Broker, source: pa.Table, got: DataFrame, day: str, output: Output) -> bool:
    """Read one day from the queue's archive, and compare it with the table."""
    output.step(f"Settled messages stay readable: {day}, from the queue's archive")
    first, last, expected = got.where(F.col("subject") == day).select(
        F.min("sequenceNumber"), F.max("sequenceNumber"), F.count(F.lit(1))
    ).first() or (None, None, 0)
    if first is None:
        output.bad(f"no flight departed on {day}; choose another day with --day")
        return False
    archived = (
        spark.read.format("amqp")
        .option("url", broker.url)
        .option("queue", QUEUE)
        .option("states", "archived")
        .option("startingSequence", first)
        .option("endingSequence", last)
        .load()
    )
    flown = archived.select(F.from_json(F.col("body").cast("string"), flights.RECORD).alias("flight")).select("flight.*").cache()
    with output.busy("Spark reads the messages of the day"):
        number = flown.count()
    if number != expected:
        output.bad(f"the archive has {number:,} messages of this day; {expected:,} were expected")
        return False
    output.good(f"{number:,} messages, sequence numbers {first:,} to {last:,}; no other message was read")
    busiest = (
        flown.groupBy("origin").agg(F.count(F.lit(1)).alias("n"), F.avg("dep_delay").alias("late")).orderBy("origin").collect()
    )
    for row in busiest:
        output.fact(f"{row.origin}: {row.n:>4,} departures, {row.late:5.1f} minutes late on average")
    return True


def await_archive(broker: Broker, limit_s: float = 120) -> None:
    """Wait until every settled message is recorded."""
    deadline = time.monotonic() + limit_s
    with Client(broker.url) as client:
        while waiting := client.call("archive.status")["queues"]:
            if time.monotonic() > deadline:
                raise SystemExit(f"messages are not recorded: {waiting[0]}")
            time.sleep(0.1)


def read_archive(spark: SparkSession, table: Path, total: int, output: Output) -> bool:
    """Count the table's messages with Spark's Delta source and with DuckDB; return True if each message is there once."""
    import deltalake
    import duckdb

    output.fact(f"spark.read.format('delta').load('{_short(table)}')")
    archived = spark.read.format("delta").load(str(table))
    with output.busy("Spark counts the messages"):
        counts = archived.select(F.count(F.lit(1)), F.count_distinct("sequenceNumber"), F.count_distinct("messageId")).first()
    (output.good if counts == (total,) * 3 else output.bad)(
        f"Spark: {counts[0] if counts else 0:,} messages, each once; outcomes: "
        + ", ".join(row.outcome for row in archived.select("outcome").distinct().collect())
    )
    question = "SELECT properties['origin'] AS origin, count(*), count(DISTINCT messageId) FROM archive GROUP BY origin"
    output.fact(question)
    with duckdb.connect() as database:
        database.register("archive", deltalake.DeltaTable(table).to_pyarrow_dataset())
        rows = database.execute(f"{question} ORDER BY origin").fetchall()
    once = sum(number for _, number, _ in rows) == total and all(number == different for _, number, different in rows)
    (output.good if once else output.bad)("DuckDB: " + ", ".join(f"{origin} {number:,}" for origin, number, _ in rows))
    return counts == (total,) * 3 and once


def at_pace(spark: SparkSession, broker: Broker, work: Path, output: Output) -> bool:
    """Send messages with pauses, and replay them faster; return True if all arrive in order and not too early."""
    first, second = "departures", "departures-again"
    broker.declare(first)
    broker.declare(second)
    with penstock.connect(broker.amqp_url) as connection:
        producer = connection.session().producer(first)
        with output.busy(f"{PACED} messages are sent, one every {PAUSE_S} s"):
            for number in range(PACED):
                producer.send(f"departure {number}")
                time.sleep(PAUSE_S)
        consumer = connection.session().consumer(first)
        for _ in range(PACED):
            if consumer.receive(60) is None:
                output.bad(f"{first} has less than {PACED} messages")
                return False
    await_archive(broker)

    archive = spark.read.format("delta").load(str(broker.data_dir / "archive" / folder_name(first)))
    originals = _in_order(archive.withColumn("message", F.expr("coalesce(message, concat(envelope, body))")))
    duration = (originals[-1].us - originals[0].us) / 1e6
    output.fact(f"between the first and the last of {len(originals)} messages {duration:.1f} s passed")
    output.fact(f"spark.readStream, mode=replay, pace={PACE}: the replay is {PACE} times as fast")
    stream = spark.readStream.schema("message binary, priority smallint, durable boolean").format("amqp")
    stream = stream.options(url=broker.url, queue=first, mode="replay", pace=PACE)
    writer = stream.load().writeStream.format("amqp").options(url=broker.url, queue=second)
    writer = writer.option("checkpointLocation", str(work / "replay-checkpoint")).trigger(availableNow=True)
    with output.busy("the messages are replayed"):
        writer.start().awaitTermination()

    columns = "sequenceNumber bigint, enqueuedTime timestamp, message binary"
    replayed = _in_order(spark.read.schema(columns).format("amqp").options(url=broker.url, queue=second).load())
    seconds = (replayed[-1].us - replayed[0].us) / 1e6 if replayed else 0.0
    is_same = [bytes(row.message) for row in originals] == [bytes(row.message) for row in replayed]
    least = duration / PACE
    if len(originals) != PACED or not is_same or seconds < least:
        text = f"{len(replayed)} of {len(originals)} messages were replayed, the last one {seconds:.1f} s after the first"
        output.bad(f"{text}, {'in' if is_same else 'not in'} their order; the pace prescribes at least {least:.1f} s")
        return False
    output.good(
        f"{len(replayed)} messages were replayed in their order, the last one {seconds:.1f} s after the first; with this pace"
        f" it may not come before {least:.1f} s"
    )
    return True


def _in_order(messages: DataFrame) -> list[Row]:
    return messages.orderBy("sequenceNumber").select("message", F.unix_micros("enqueuedTime").alias("us")).collect()


def _farewell(work: Path, output: Output) -> None:
    output.text(
        f"""
Done in {output.seconds():.0f} s. All data are still there:

   .venv/bin/penstock serve --data {_short(work / "broker")} &     # the broker of this demo, at grpc://127.0.0.1:8815
   .venv/bin/penstock queue stat {QUEUE}                           # all messages are archived
   .venv/bin/penstock queue peek {QUEUE} --states archived         # and still readable
   .venv/bin/penstock lease list

The archive needs no broker: spark.read.format("delta").load("{_short(work / "broker" / "archive" / folder_name(QUEUE))}")
Next: your own queue (README.md, "Five minutes"), notebooks/flights.ipynb (with a plot), or notebooks/replay_a_day.ipynb.
"""
    )


def _artemis_farewell(work: Path, output: Output) -> None:
    output.text(
        f"""
Done in {output.seconds():.0f} s. All data are still there:

   {_short(work / "artemis" / "bin" / "artemis")} run                # the broker of this demo, its queue empty
   spark.read.format("delta").load("{_short(work / "delta")}")

Next: a queue of your own broker (docs/foreign.md), or the demo with a Penstock broker: ./dev demo
"""
    )


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _clear(work: Path) -> None:
    if work.exists() and any(work.iterdir()):
        if not (work / MARK).exists():
            raise SystemExit(f"{work} is not empty and was not created by the demo; name another folder with --work")
        shutil.rmtree(work)
    work.mkdir(parents=True, exist_ok=True)
    (work / MARK).touch()


@contextmanager
def _redirected(path: Path) -> Iterator[None]:
    """Redirect stdout and stderr, to which Spark's JVM and Ivy write, into a file until the end of the block."""
    saved = os.dup(1), os.dup(2)
    with open(path, "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(saved[0], 1)
        os.dup2(saved[1], 2)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./dev demo", description="Flights through a queue into Delta, exactly once, under kills."
    )
    parser.add_argument(
        "--work", type=Path, default=Path("build/demo"), metavar="DIR", help="the folder of all data; default: build/demo"
    )
    parser.add_argument("--day", default="2013-07-04", metavar="YYYY-MM-DD", help="the day to replay; default: 2013-07-04")
    parser.add_argument(
        "--s3-server",
        type=Path,
        metavar="FILE",
        default=shutil.which("versitygw"),
        help="VersityGW, an S3 server for the copy of the last step; default: the one on PATH, otherwise a folder",
    )
    parser.add_argument(
        "--broker",
        choices=["penstock", "artemis"],
        default="penstock",
        help="the broker between the DataFrame and Delta: Penstock, or ActiveMQ Artemis; default: penstock",
    )
    parser.add_argument(
        "--artemis",
        type=Path,
        metavar="DIR",
        help="the folder of an unpacked ActiveMQ Artemis; `./dev demo --broker artemis` fetches one",
    )
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N flights; default: all")
    return parser
