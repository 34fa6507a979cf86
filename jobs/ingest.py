r"""A queue into a Delta table or Parquet files, each message exactly once.

    python -m penstock.jobs.ingest \
        --url grpc://127.0.0.1:8815 --queue orders --table /data/orders --checkpoint /data/orders.checkpoint

The job runs until SIGTERM or Ctrl-C, or with --available-now until the queue is empty. With the same checkpoint, the next run
continues.

Tables of --format parquet must be read with Spark, which lists the valid files in `_spark_metadata`. Other readers also read the
files of killed tasks.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.jobs import progress
from penstock.jobs.arguments import add_options
from penstock.jobs.session import session


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    spark = session(f"penstock ingest {args.queue}")
    penstock.register(spark)
    try:
        query = start(spark, args)
        stop_on_signal(query)
        total = progress.follow(query)
    except PySparkException as error:
        return progress.fail(penstock.explain(error))
    progress.say(f"done: {total:,} messages of {args.queue} into {args.table}")
    return 0


def start(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    named = {"url": args.url, "queue": args.queue, "lease": args.lease}
    reader = spark.readStream.format("amqp").options(**{name: value for name, value in named.items() if value})
    if args.schema:
        reader = reader.schema(args.schema)
    writer = (
        reader.options(**dict(args.option))
        .load()
        .writeStream.format(args.format)
        .queryName(f"ingest-{args.queue}")
        .option("checkpointLocation", args.checkpoint)
        .outputMode("append")
    )
    when = {"availableNow": True} if args.available_now else {"processingTime": f"{args.interval:g} seconds"}
    return writer.trigger(**when).start(args.table)


def stop_on_signal(query: StreamingQuery) -> None:
    """Another thread calls query.stop(): the handler may interrupt a call over the same connection to the JVM."""
    stopping = threading.Event()

    def stop() -> None:
        stopping.wait()
        query.stop()

    threading.Thread(target=stop, daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ingest", description="Copies a queue into a table, each message exactly once.")
    parser.add_argument("--url", help="the broker, such as amqp://HOST:5672; omit it with the option connectionString")
    parser.add_argument("--queue", required=True, help="the queue to read")
    parser.add_argument("--table", required=True, metavar="PATH", help="the table's folder, which is created if necessary")
    parser.add_argument("--format", default="delta", choices=["delta", "parquet"], help="of the table; default: delta")
    parser.add_argument("--checkpoint", required=True, metavar="PATH", help="the folder of Spark's checkpoint; one for each job")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--available-now", action="store_true", help="read the messages that wait now, then end")
    when.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between two batches; default: 1")
    parser.add_argument(
        "--lease",
        "--consumer",
        metavar="NAME",
        help="the name of the query's lease, as `penstock lease list` shows it; default: random",
    )
    parser.add_argument(
        "--schema", metavar="DDL", help='only these columns, such as "sequenceNumber long, body binary"; default: all'
    )
    add_options(parser, "the source", "maxMessagesPerTrigger=50000, or spool=FOLDER for a foreign broker")
    return parser


if __name__ == "__main__":
    sys.exit(main())
