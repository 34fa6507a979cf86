r"""Dead letters that a condition selects return to their queues, each once, also after an interruption.

    python -m penstock.jobs.redrive --url grpc://127.0.0.1:8815 --queue orders-dead \
        --reason rejected --origin orders --where "deathError LIKE '%no such customer%'" --dry-run

Without --dry-run the job moves them. A second run continues with the remaining dead letters.
"""

from __future__ import annotations

import argparse
import functools
import operator
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import penstock
from penstock.broker_core import moments
from penstock.broker_core.client.flight.redriving import RedriveTotals, ranges_of, redrive
from penstock.broker_core.errors import InvalidOption, PenstockError
from penstock.broker_core.messages.annotations import DEATH_ERROR, DEATH_QUEUE, DEATH_REASON, DEATH_SEQUENCE
from penstock.connector.options import Options
from penstock.connector.schema import default_schema, source_schema
from penstock.jobs import progress
from penstock.jobs.arguments import add_options, fix_times
from penstock.jobs.session import session

DEATH = {"deathReason": DEATH_REASON, "deathQueue": DEATH_QUEUE, "deathSequence": DEATH_SEQUENCE, "deathError": DEATH_ERROR}
NARROW = source_schema(("sequenceNumber", "enqueuedTime", "annotations"))
WIDE = default_schema().add("annotations", NARROW["annotations"].dataType)


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        times = fix_times(args, datetime.now(timezone.utc))
    except PenstockError as error:
        return progress.fail(str(error))
    spark = session(f"penstock redrive {args.queue}")
    penstock.register(spark)
    try:
        options = Options(_options_of(args))
        if len(options.urls) > 1:
            raise InvalidOption("option url names several brokers, and dead letters are moved within one: run the job for each")
        with options.access.client() as client:
            stayed = client.call("queue.stat", queue=args.queue)["stayed"] > 0
            chosen = choose(spark, args, stayed=stayed)
            progress.say(f"chosen{times}: {described(chosen)}")
            if args.dry_run or not chosen.num_rows:
                progress.say("done: nothing was sent" + (", this is a dry run" if args.dry_run else ""))
                return 0
            started, done = time.monotonic(), RedriveTotals(0, 0)
            for done in redrive(client, args.queue, ranges_of(chosen["sequenceNumber"].combine_chunks())):
                progress.say(f"{done.messages:,} of {chosen.num_rows:,} are back in their queues")
    except PySparkException as error:
        return progress.fail(penstock.explain(error))
    except PenstockError as error:
        return progress.fail(f"{error}. Run the same command again to continue")
    moved = progress.in_seconds(done.messages, time.monotonic() - started)
    progress.say(f"done: {moved} of {args.queue} are back in their queues")
    if done.stayed:
        progress.say(f"{done.stayed:,} stay: their queue was deleted, is full, or has a newer value")
    if gone := chosen.num_rows - done.messages - done.stayed:
        progress.say(f"{gone:,} were meanwhile taken or returned by another client")
    return 0


def choose(spark: SparkSession, args: argparse.Namespace, *, stayed: bool) -> pa.Table:
    """Return `sequenceNumber`, `deathQueue` and `deathReason`. `stayed`: also of dead letters that stayed in their own queue."""
    try:
        chosen = _matching(dead_letters(spark, args, NARROW, stayed=stayed), args)
    except AnalysisException:  # the condition needs other columns
        chosen = _matching(dead_letters(spark, args, WIDE, stayed=stayed), args)
    selection = chosen.select("sequenceNumber", "deathQueue", "deathReason").toArrow().sort_by("sequenceNumber")
    return selection if args.limit is None else selection.slice(0, args.limit)


def dead_letters(spark: SparkSession, args: argparse.Namespace, schema: StructType, *, stayed: bool) -> DataFrame:
    reader = spark.read.format("amqp").schema(schema).options(**_options_of(args))
    bounds = {"startingTimestamp": args.since, "endingTimestamp": args.until}
    if args.sequence:
        bounds["startingSequence"] = min(first for first, _ in args.sequence)
        bounds["endingSequence"] = max(last for _, last in args.sequence)
    messages = reader.options(**{name: value for name, value in bounds.items() if value is not None}).load()
    if stayed:
        messages = messages.union(reader.options(states="archived", outcome="dead-lettered").load())
    for name, annotation in DEATH.items():
        messages = messages.withColumn(name, F.col("annotations")[annotation])
    return messages.where("deathReason IS NOT NULL").withColumn("deathSequence", F.col("deathSequence").cast("long"))


def _matching(messages: DataFrame, args: argparse.Namespace) -> DataFrame:
    if args.reason:
        messages = messages.where(F.col("deathReason").isin(args.reason))
    if args.origin:
        messages = messages.where(F.col("deathQueue").isin(args.origin))
    if args.sequence:
        named = [F.col("sequenceNumber").between(first, last) for first, last in args.sequence]
        messages = messages.where(functools.reduce(operator.or_, named))
    return messages.where(args.where) if args.where else messages


def described(selection: pa.Table) -> str:
    groups = selection.group_by(["deathQueue", "deathReason"]).aggregate([([], "count_all")]).sort_by("count_all").to_pylist()
    parts = [f"{group['count_all']:,} {group['deathReason']} of {group['deathQueue']}" for group in reversed(groups)]
    return f"{selection.num_rows:,} dead letters" + (f": {', '.join(parts)}" if parts else "")


def _options_of(args: argparse.Namespace) -> dict[str, str]:
    return {"url": args.url, "queue": args.queue, **dict(args.option)}


def _range(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    return int(first), int(last if dash else first)


_range.__name__ = "sequence number or range"  # for the errors of argparse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="redrive", description="Returns selected dead letters to their queues.")
    parser.add_argument("--url", required=True, help="the broker: grpc://HOST:PORT, or its amqp:// address")
    parser.add_argument("--queue", required=True, help="the queue with the dead letters")
    parser.add_argument(
        "--reason", action="append", metavar="NAME", help="their reason, such as rejected or expired; may be repeated"
    )
    parser.add_argument("--origin", action="append", metavar="QUEUE", help="the queue of the first failure; may be repeated")
    moments.add_flags(parser, "time of dead-lettering")
    parser.add_argument(
        "--sequence", type=_range, action="append", metavar="N[-M]", help="sequence numbers in this queue; may be repeated"
    )
    parser.add_argument(
        "--where",
        metavar="SQL",
        help="a condition on the columns of a batch read, annotations, deathReason, deathQueue, deathSequence and deathError",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="at most N messages, the oldest first")
    parser.add_argument("--dry-run", action="store_true", help="print the number of dead letters, and move none")
    add_options(parser, "the source", "userName=alice")
    return parser


if __name__ == "__main__":
    sys.exit(main())
