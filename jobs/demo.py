"""`./dev demo`: 336,776 flights go through a durable queue into Delta, exactly once, while Spark and the broker are killed.

`under_kills` is its heart. In the end the archive is read as the table that it is, by Spark and by DuckDB, without a broker. Then
messages come again, at a pace, and a broker's machine is lost with all that is on it. `--broker artemis` is the same heart with a
broker that is no Penstock (`artemis_demo`).
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
from penstock.broker_core.archive.table import folder_name
from penstock.broker_core.client.flight import Client
from penstock.broker_core.errors import PenstockError
from penstock.broker_core.server.process import Broker
from penstock.jobs import artemis, artemis_demo, flights, lost_machine
from penstock.jobs.told import Told
from penstock.jobs.under_kills import QUEUE, Reader, compare, ingest, send, spark_of_demo

#: Seconds that a settled message waits until it is recorded; a minute by default, which nobody should have to watch.
ARCHIVE_AFTER_S = 1.0
#: What comes again at a pace: so many messages, with so many seconds between them, then so many times as fast.
PACED, PAUSE_S, PACE = 100, 0.06, 2
#: The mark of a folder that this demo made, and may remove.
MARK = "made-by-penstock-demo"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return 0 when every check holds."""
    parser = _parser()
    given = parser.parse_args(argv)
    if given.broker == "artemis" and given.artemis is None:
        parser.error("--broker artemis needs --artemis DIR, an unpacked Artemis; `./dev demo --broker artemis` fetches it")
    work = given.work.absolute()
    told = Told()
    _clear(work)
    with _noise_into(work / "spark.log"):
        try:
            if given.broker == "artemis":
                ok = artemis_demo.run(work, given.artemis, given.flights, told)
            else:
                ok = run(work, given.day, given.flights, told) and lost_machine.run(work / "lost-machine", given.s3_server, told)
        except artemis.Unavailable as error:
            told.bad(str(error))
            return 1
        except (PySparkException, PenstockError, subprocess.SubprocessError, OSError, RuntimeError) as error:
            traceback.print_exc()  # into the log
            told.bad(penstock.explain(error))
            ok = False
    if ok:
        (_farewell_of_artemis if given.broker == "artemis" else _farewell)(work, told)
    else:
        told.plain(f"\nThis is a bug. What Spark said: {work}/spark.log, {work}/ingest.log\n")
    return 0 if ok else 1


def run(work: Path, day: str, limit: int | None, told: Told) -> bool:
    """Send, ingest under kills, compare, replay; return True when every check holds."""
    told.step("A broker, and a Spark")
    with Broker(work / "broker", archive_after_s=ARCHIVE_AFTER_S) as broker:
        told.fact(f"broker: process {broker.pid}, {broker.url}, journal in {_short(broker.data_dir)}, fsync always")
        with spark_of_demo() as spark:
            source = flights.table(limit)
            told.step(f"A DataFrame of {source.num_rows:,} flights becomes a durable queue")
            broker.declare(QUEUE)
            sent = send(spark, broker.url, source, "on the disk, visible all at once,", told)
            told.step("The queue becomes a Delta table, while Spark and the broker are killed")
            with Client(broker.url) as client:
                ingest(broker, broker.url, Reader({"lease": "demo"}, lambda: held(client)), work, source.num_rows, told)
            told.step("Is every flight in the table, once?")
            got = spark.read.format("delta").load(str(work / "delta"))
            if not (compare(sent, got, told) and replay(spark, broker, source, got, day, told)):
                return False
            told.step("The archive is a table: Spark and DuckDB read it, without the broker")
            await_archive(broker)
            broker.stop()
            told.fact("the broker is stopped")
            if not read_archive(spark, broker.data_dir / "archive" / folder_name(QUEUE), source.num_rows, told):
                return False
            told.step("What came slowly comes again, at a pace")
            broker.start()
            return at_pace(spark, broker, work, told)


def held(client: Client) -> int:
    """Count the messages of a batch that Spark's tasks read; 0 where they read none."""
    return next((int(each["messages"]) for each in client.call("lease.list")["leases"] if each["stage"] == "read"), 0)


def replay(spark: SparkSession, broker: Broker, source: pa.Table, got: DataFrame, day: str, told: Told) -> bool:
    """Read one day out of the queue's archive, and compare it with the table."""
    told.step(f"Settled is not gone: {day}, out of the queue's archive")
    first, last, expected = got.where(F.col("subject") == day).select(
        F.min("sequenceNumber"), F.max("sequenceNumber"), F.count(F.lit(1))
    ).first() or (None, None, 0)
    if first is None:
        told.bad(f"no flight left on {day}; choose another day with --day")
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
    number = flown.count()
    if number != expected:
        told.bad(f"{number:,} messages came back, {expected:,} were expected")
        return False
    told.good(f"{number:,} messages, sequence numbers {first:,} to {last:,}; no other was read")
    busiest = (
        flown.groupBy("origin").agg(F.count(F.lit(1)).alias("n"), F.avg("dep_delay").alias("late")).orderBy("origin").collect()
    )
    for row in busiest:
        told.fact(f"{row.origin}: {row.n:>4,} departures, {row.late:5.1f} minutes late on average")
    return True


def await_archive(broker: Broker, limit_s: float = 120) -> None:
    """Return once every settled message is recorded."""
    deadline = time.monotonic() + limit_s
    with Client(broker.url) as client:
        while waiting := client.call("archive.status")["queues"]:
            if time.monotonic() > deadline:
                raise SystemExit(f"messages are not recorded: {waiting[0]}")
            time.sleep(0.1)


def read_archive(spark: SparkSession, table: Path, total: int, told: Told) -> bool:
    """Count the table's messages with Spark's own Delta source and with DuckDB; return True when it has each once."""
    import deltalake
    import duckdb

    told.fact(f"spark.read.format('delta').load('{_short(table)}')")
    archived = spark.read.format("delta").load(str(table))
    counts = archived.select(F.count(F.lit(1)), F.count_distinct("sequenceNumber"), F.count_distinct("messageId")).first()
    (told.good if counts == (total,) * 3 else told.bad)(
        f"Spark: {counts[0] if counts else 0:,} messages, each once; outcomes: "
        + ", ".join(row.outcome for row in archived.select("outcome").distinct().collect())
    )
    question = "SELECT properties['origin'] AS origin, count(*), count(DISTINCT messageId) FROM archive GROUP BY origin"
    told.fact(question)
    with duckdb.connect() as database:
        database.register("archive", deltalake.DeltaTable(table).to_pyarrow_dataset())
        rows = database.execute(f"{question} ORDER BY origin").fetchall()
    once = sum(number for _, number, _ in rows) == total and all(number == different for _, number, different in rows)
    (told.good if once else told.bad)("DuckDB: " + ", ".join(f"{origin} {number:,}" for origin, number, _ in rows))
    return counts == (total,) * 3 and once


def at_pace(spark: SparkSession, broker: Broker, work: Path, told: Told) -> bool:
    """Send messages with pauses, and replay them faster; return True when all came again in order, and not too fast."""
    first, second = "departures", "departures-again"
    broker.declare(first)
    broker.declare(second)
    with penstock.connect(broker.amqp_url) as connection:
        producer = connection.session().producer(first)
        for number in range(PACED):
            producer.send(f"departure {number}")
            time.sleep(PAUSE_S)
        consumer = connection.session().consumer(first)
        for _ in range(PACED):
            if consumer.receive(60) is None:
                told.bad(f"{first} has less than {PACED} messages")
                return False
    await_archive(broker)

    archive = spark.read.format("delta").load(str(broker.data_dir / "archive" / folder_name(first)))
    came = _in_order(archive)
    took = (came[-1].us - came[0].us) / 1e6
    told.fact(f"{len(came)} messages came in {took:.1f} s; spark.readStream, mode=replay, pace={PACE}")
    stream = spark.readStream.schema("message binary, priority smallint, durable boolean").format("amqp")
    stream = stream.options(url=broker.url, queue=first, mode="replay", pace=PACE)
    writer = stream.load().writeStream.format("amqp").options(url=broker.url, queue=second)
    writer = writer.option("checkpointLocation", str(work / "replay-checkpoint")).trigger(availableNow=True)
    started = time.monotonic()
    writer.start().awaitTermination()
    seconds = time.monotonic() - started

    columns = "sequenceNumber bigint, enqueuedTime timestamp, message binary"
    again = _in_order(spark.read.schema(columns).format("amqp").options(url=broker.url, queue=second).load())
    same = [bytes(row.message) for row in came] == [bytes(row.message) for row in again]
    if len(came) != PACED or not same or seconds < took / PACE:
        told.bad(f"{len(again)} of {len(came)} messages came again in {seconds:.1f} s, {'in' if same else 'not in'} their order")
        return False
    told.good(f"{len(again)} messages came again in {seconds:.1f} s, in their order; at this pace it takes {took / PACE:.1f} s")
    return True


def _in_order(messages: DataFrame) -> list[Row]:
    return messages.orderBy("sequenceNumber").select("message", F.unix_micros("enqueuedTime").alias("us")).collect()


def _farewell(work: Path, told: Told) -> None:
    told.plain(
        f"""
Done in {told.seconds():.0f} s. Everything is still there:

   .venv/bin/penstock serve --data {_short(work / "broker")} &     # the broker of this demo, at grpc://127.0.0.1:8815
   .venv/bin/penstock queue stat {QUEUE}                           # all archived
   .venv/bin/penstock queue peek {QUEUE} --states archived         # still readable
   .venv/bin/penstock lease list

The archive needs no broker: spark.read.format("delta").load("{_short(work / "broker" / "archive" / folder_name(QUEUE))}")
Next: a queue of your own (README.md, "Five minutes"), or notebooks/flights.ipynb for a look with a plot;
notebooks/replay_a_day.ipynb for a day that comes again.
"""
    )


def _farewell_of_artemis(work: Path, told: Told) -> None:
    told.plain(
        f"""
Done in {told.seconds():.0f} s. Everything is still there:

   {_short(work / "artemis" / "bin" / "artemis")} run                # the broker of this demo, its queue empty
   spark.read.format("delta").load("{_short(work / "delta")}")

Next: a queue of your own broker (docs/foreign.md), or what only a Penstock does: ./dev demo
"""
    )


def _short(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _clear(work: Path) -> None:
    if work.exists() and any(work.iterdir()):
        if not (work / MARK).exists():
            raise SystemExit(f"{work} is not empty and not from an earlier demo; name another folder with --work")
        shutil.rmtree(work)
    work.mkdir(parents=True, exist_ok=True)
    (work / MARK).touch()


@contextmanager
def _noise_into(path: Path) -> Iterator[None]:
    """Send what Spark's JVM and Ivy write to stdout and stderr into a file; errors of ours come back out by themselves."""
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
        prog="./dev demo", description="Flights through a queue into Delta, exactly once, under fire."
    )
    parser.add_argument(
        "--work", type=Path, default=Path("build/demo"), metavar="DIR", help="where everything goes; default: build/demo"
    )
    parser.add_argument("--day", default="2013-07-04", metavar="YYYY-MM-DD", help="the day to replay; default: 2013-07-04")
    parser.add_argument(
        "--s3-server",
        type=Path,
        metavar="FILE",
        default=shutil.which("versitygw"),
        help="VersityGW, for the machine that is lost; default: the one on PATH. `./dev demo` builds it, where Go is",
    )
    parser.add_argument(
        "--broker",
        choices=["penstock", "artemis"],
        default="penstock",
        help="the broker between the DataFrame and Delta: Penstock, or ActiveMQ Artemis; default: penstock",
    )
    parser.add_argument(
        "--artemis", type=Path, metavar="DIR", help="an unpacked ActiveMQ Artemis; `./dev demo --broker artemis` fetches one"
    )
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N flights; default: all")
    return parser


if __name__ == "__main__":
    sys.exit(main())
