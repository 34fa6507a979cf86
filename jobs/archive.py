r"""A queue's archive into a table elsewhere, or partitioned otherwise: what is new since the last run, each message exactly once.

    python -m penstock.jobs.archive --archive data/archive --queue orders \
        --table /lake/orders --checkpoint /lake/orders.checkpoint --partition-by day region \
        --decode --columns "*" "properties['region'] AS region" "to_date(enqueuedTime) AS day"

It reads the Delta table that the broker keeps of what was settled, not the broker. Start it again with the same checkpoint,
and it goes on; with --follow it waits for more until SIGTERM or Ctrl-C. What the broker's retention removes there stays in the
new table.
`python -m penstock.jobs.archive …` does the same with a Spark of its own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.broker_core.archive.table import layout as table
from penstock.broker_core.messages import assembly
from penstock.connector.explanation import causes
from penstock.connector.schema import TYPES, source_schema
from penstock.jobs import progress
from penstock.jobs.arguments import add_options
from penstock.jobs.ingest import stop_on_signal
from penstock.jobs.session import session

#: What --decode gives: what a batch read can have of a message that is settled.
DECODED = tuple(name for name in TYPES if name not in ("delivery", "ttl", "deliveryTime"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job until it has all, or with --follow until it is stopped; return the exit code."""
    args = _parser().parse_args(argv)
    spark = session(f"penstock archive {args.queue}")
    penstock.register(spark)  # its code goes to the executors, for --decode
    try:
        query = start(spark, args)
        if args.follow:
            stop_on_signal(query)
        total = progress.follow(query)
    except PySparkException as error:
        return progress.fail(_explained(error, args))
    progress.say(f"done: {total:,} messages of {args.queue}'s archive into {args.table}")
    return 0


def start(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Start the query that the arguments describe. Raises PySparkException."""
    writer = (
        archived(spark, args)
        .writeStream.format("delta")
        .queryName(f"archive-{args.queue}")
        .option("checkpointLocation", args.checkpoint)
        .option("mergeSchema", True)  # a newer broker may have one more column
        .outputMode("append")
    )
    if args.partition_by:
        writer = writer.partitionBy(*args.partition_by)
    when = {"processingTime": f"{args.interval:g} seconds"} if args.follow else {"availableNow": True}
    return writer.trigger(**when).start(args.table)


def archived(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """The archive as a stream of the chosen columns and rows."""
    # Retention removes whole files and adds none: such commits are passed over. One that also changed rows would be an error.
    reader = spark.readStream.format("delta").option("ignoreDeletes", True)
    for name, value in args.option:
        reader = reader.option(name, value)
    messages = reader.load(place(args))
    if args.decode:
        there = [name for name in table.needed(DECODED) if name in messages.columns]  # an older broker's has fewer
        messages = messages.select(*there).mapInArrow(decoder(args.queue), source_schema(DECODED))
    if args.where:
        messages = messages.where(args.where)
    return messages.selectExpr(*args.columns) if args.columns else messages


def place(args: argparse.Namespace) -> str:
    """Path or URL of the queue's table."""
    return f"{args.archive.rstrip('/')}/{table.folder_name(args.queue)}"


def decoder(queue: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that turns rows of the table into those of a batch read, in a task: bodies and properties of what AMQP
    clients sent stand in the column `message` alone. Where one cannot be read, `error` says why."""

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield assembly.converted(DECODED, table.rows_of_read(DECODED, batch, queue), queue, {})

    return decode


def _explained(error: PySparkException, args: argparse.Namespace) -> str:
    text = "\n".join(map(str, causes(error)))
    if "FILE_NOT_EXIST" in text:
        return (
            f"files of {args.queue!r}'s archive that this job has not read yet are gone: it has not run for longer than the"
            " broker's setting `archive_vacuum_after_s`, or somebody else has removed them. Begin again with a new checkpoint and"
            " a new table, then run the job more often, or raise the setting"
        )
    if "DELTA_SOURCE_TABLE_IGNORE_CHANGES" in text:
        return (
            f"another program has deleted or changed rows of {args.queue!r}'s archive: pass over such"
            " commits with --option skipChangeCommits=true. Rows that are in the new table already stay there"
        )
    if "DELTA_SCHEMA_CHANGED" in text:
        return (
            f"{args.queue!r}'s archive has a new column, as after an upgrade of the broker: start the job again with the same"
            " checkpoint, and it goes on"
        )
    if any(name in text for name in ("DELTA_SCHEMA_NOT_SET", "DELTA_TABLE_NOT_FOUND", "PATH_NOT_FOUND")):
        return (
            f"there is no archive of {args.queue!r} at {place(args)}: the broker makes it when the first messages are due"
            " (archive_after_s); is --archive the folder or URL that its setting `archive` names?"
        )
    return penstock.explain(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="archive", description="A queue's archive into another table, incrementally.")
    parser.add_argument("--archive", required=True, metavar="PATH", help="the broker's archive, such as data/archive or s3a://…")
    parser.add_argument("--queue", required=True, help="the queue whose archive is read")
    parser.add_argument("--table", required=True, metavar="PATH", help="the new Delta table; made when it is not there")
    parser.add_argument("--checkpoint", required=True, metavar="PATH", help="where Spark keeps its place; one for each job")
    parser.add_argument("--partition-by", nargs="+", default=[], metavar="COLUMN", help="partitions of the new table")
    parser.add_argument(
        "--columns",
        nargs="+",
        default=[],
        metavar="SQL",
        help='columns or expressions, such as subject "cast(body as string) AS text"; default: all as they are',
    )
    parser.add_argument("--where", metavar="SQL", help="""only rows for which this holds, such as "outcome = 'rejected'" """)
    parser.add_argument(
        "--decode",
        action="store_true",
        help="columns as a batch read gives them, also of what AMQP clients sent; otherwise they stand in the column message",
    )
    parser.add_argument("--follow", action="store_true", help="go on until stopped; otherwise end when all is there")
    parser.add_argument(
        "--interval", type=float, default=60.0, metavar="S", help="with --follow, seconds between two looks; default: 60"
    )
    add_options(parser, "Delta's source", "maxFilesPerTrigger=100")
    return parser


if __name__ == "__main__":
    sys.exit(main())
