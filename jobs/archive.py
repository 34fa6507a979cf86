r"""A queue's archive into another table, with other columns or partitions, each row exactly once.

    python -m penstock.jobs.archive --archive data/archive --queue orders \
        --table /lake/orders --checkpoint /lake/orders.checkpoint --partition-by day region \
        --columns "*" "properties['region'] AS region" "to_date(enqueuedTime) AS day"

The job reads the Delta table of the queue's settled messages, without the broker. With the same checkpoint, the next run
continues. With --follow it runs until SIGTERM or Ctrl-C. The broker's retention does not affect the new table.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock.broker_core.archive.table import layout as table
from penstock.connector.explanation import causes
from penstock.jobs import progress
from penstock.jobs.arguments import add_options
from penstock.jobs.ingest import stop_on_signal
from penstock.jobs.session import session


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    spark = session(f"penstock archive {args.queue}")
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
    writer = (
        archived(spark, args)
        .writeStream.format("delta")
        .queryName(f"archive-{args.queue}")
        .option("checkpointLocation", args.checkpoint)
        .option("mergeSchema", True)  # a newer broker may have more columns
        .outputMode("append")
    )
    if args.partition_by:
        writer = writer.partitionBy(*args.partition_by)
    when = {"processingTime": f"{args.interval:g} seconds"} if args.follow else {"availableNow": True}
    return writer.trigger(**when).start(args.table)


def archived(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    # Commits of retention are skipped, since they only remove files. A commit that changes rows is an error.
    reader = spark.readStream.format("delta").option("ignoreDeletes", True).options(**dict(args.option))
    messages = reader.load(place(args))
    if args.where:
        messages = messages.where(args.where)
    return messages.selectExpr(*args.columns) if args.columns else messages


def place(args: argparse.Namespace) -> str:
    return f"{args.archive.rstrip('/')}/{table.folder_name(args.queue)}"


def _explained(error: PySparkException, args: argparse.Namespace) -> str:
    text = "\n".join(map(str, causes(error)))
    if "FILE_NOT_EXIST" in text:
        return (
            f"files of {args.queue!r}'s archive that this job has not read yet were deleted: it has not run for longer than the"
            " broker's setting `archive_vacuum_after_s`, or another program has deleted them. Start over with a new checkpoint"
            " and a new table, then run the job more often, or raise the setting"
        )
    if "DELTA_SOURCE_TABLE_IGNORE_CHANGES" in text:
        return (
            f"another program has deleted or changed rows of {args.queue!r}'s archive: skip such"
            " commits with --option skipChangeCommits=true. Rows that are already in the new table stay there"
        )
    if "DELTA_SCHEMA_CHANGED" in text:
        return (
            f"{args.queue!r}'s archive has a new column, as after an upgrade of the broker: start the job again with the same"
            " checkpoint, and it continues"
        )
    if any(name in text for name in ("DELTA_SCHEMA_NOT_SET", "DELTA_TABLE_NOT_FOUND", "PATH_NOT_FOUND")):
        return (
            f"there is no archive of {args.queue!r} at {place(args)}: the broker creates it when the first messages are due"
            " (archive_after_s); is --archive the folder or URL of its setting `archive`?"
        )
    return penstock.explain(error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="archive", description="A queue's archive into another table, incrementally.")
    parser.add_argument("--archive", required=True, metavar="PATH", help="the broker's archive, such as data/archive or s3a://…")
    parser.add_argument("--queue", required=True, help="the queue whose archive is read")
    parser.add_argument("--table", required=True, metavar="PATH", help="the new Delta table, which is created if necessary")
    parser.add_argument("--checkpoint", required=True, metavar="PATH", help="the folder of Spark's checkpoint; one for each job")
    parser.add_argument("--partition-by", nargs="+", default=[], metavar="COLUMN", help="partitions of the new table")
    parser.add_argument(
        "--columns",
        nargs="+",
        default=[],
        metavar="SQL",
        help='columns or expressions, such as subject "cast(body as string) AS text"; default: all columns',
    )
    parser.add_argument("--where", metavar="SQL", help="""only rows that satisfy a condition, such as "outcome = 'rejected'" """)
    parser.add_argument("--follow", action="store_true", help="run until stopped; otherwise end when all rows are copied")
    parser.add_argument(
        "--interval", type=float, default=60.0, metavar="S", help="with --follow, seconds between two batches; default: 60"
    )
    add_options(parser, "Delta's source", "maxFilesPerTrigger=100")
    return parser


if __name__ == "__main__":
    sys.exit(main())
