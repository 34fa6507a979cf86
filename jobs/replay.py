r"""Replay of archived messages into a table or a queue.

    python -m penstock.jobs.replay --url grpc://127.0.0.1:8815 --queue orders \
        --since yesterday --until today --outcome rejected --to-queue orders

Messages are selected by time of arrival, sequence number, outcome, or a condition in SQL. The source does not change.

`--pace 60 --checkpoint PATH` sends the recorded messages as a stream, sixty times as fast as they arrived. A second run with the
same checkpoint continues. `--follow` runs until SIGTERM or Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, StringType

import penstock
from penstock.broker_core import moments
from penstock.broker_core.errors import PenstockError
from penstock.connector.options import Options
from penstock.connector.sink.writer import written_as
from penstock.jobs import progress
from penstock.jobs.arguments import LOGIN, add_options, fix_times
from penstock.jobs.ingest import stop_on_signal
from penstock.jobs.session import session

SETTLED = ("state", "outcome")
#: The message byte for byte, so that AMQP clients get the original types, and two fields of its header. The column `queue` would
#: return each message to its source.
SENT = ("message", "priority", "durable")
ONCE = 1


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    try:
        # The times of a stream are fixed in its checkpoint, also for later runs.
        times = "" if as_stream(args) else fix_times(args, datetime.now(timezone.utc))
        if args.to_queue and args.once_as and sent_before(args):
            progress.say(f"done: nothing was sent, because {args.once_as} was sent to {args.to_queue} before")
            return 0
    except PenstockError as error:
        return progress.fail(str(error))
    if as_stream(args) and (refusal := refused(args)) is not None:
        return progress.fail(refusal)
    spark = session(f"penstock replay {args.queue}")
    penstock.register(spark)
    started = time.monotonic()
    try:
        count = stream(spark, args) if as_stream(args) else send(archive(spark, args), args)
    except PySparkException as error:
        return progress.fail(penstock.explain(error))
    done = progress.in_seconds(count, time.monotonic() - started)
    progress.say(f"done: {done} from {args.queue}{times} into {args.to_queue or args.to}")
    return 0


def archive(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """The broker evaluates the options, and Spark evaluates `where`."""
    return _selected(spark.read.format("amqp"), args, {"states": args.states})


def replayed(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    return _selected(spark.readStream.format("amqp"), args, {"mode": "replay", "pace": args.pace or 0})


def _selected(reader: Any, args: argparse.Namespace, more: dict[str, Any]) -> DataFrame:
    options = {
        **more,
        "startingSequence": args.from_sequence,
        "endingSequence": args.to_sequence,
        "startingTimestamp": args.since,
        "endingTimestamp": args.until,
        "outcome": args.outcome,
    }
    reader = reader.options(url=args.url, queue=args.queue)
    reader = reader.options(**{name: value for name, value in options.items() if value is not None}).options(**dict(args.option))
    schema = reader.load().schema
    for name in SETTLED:
        if name not in schema.names:
            schema = schema.add(name, StringType())
    if args.to_queue:
        schema = schema.add("message", BinaryType())
    messages: DataFrame = reader.schema(schema).load()
    if args.where:
        messages = messages.where(args.where)
    return messages


def as_stream(args: argparse.Namespace) -> bool:
    return args.pace is not None or args.follow


def refused(args: argparse.Namespace) -> str | None:
    if args.checkpoint is None:
        return "--pace and --follow need --checkpoint PATH, by which a second run continues where the first one ended"
    if args.states != "archived" or args.once_as or args.mode != "append":
        return "--states, --once-as and --mode have no meaning with --pace or --follow: the checkpoint contains the progress"
    return None


def stream(spark: SparkSession, args: argparse.Namespace) -> int:
    query = start(spark, args)
    if args.follow:
        stop_on_signal(query)
    return progress.follow(query)


def start(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    messages = replayed(spark, args)
    if args.to_queue:
        writer = messages.select(*SENT).writeStream.format("amqp").options(**target(args))
    else:
        writer = messages.writeStream.format(args.format).option("path", args.to)
    writer = writer.option("checkpointLocation", args.checkpoint)
    return (writer if args.follow else writer.trigger(availableNow=True)).start()


def target(args: argparse.Namespace) -> dict[str, str]:
    """The login of the source is used only for the same broker."""
    own = dict(args.to_option)
    if args.to_url is None and "connectionString" not in own:
        login = {name: value for name, value in args.option if name.lower() in map(str.lower, LOGIN)}
        return {"url": args.url, "queue": args.to_queue, **login, **own}
    return {**({} if args.to_url is None else {"url": args.to_url}), "queue": args.to_queue, **own}


def sent_before(args: argparse.Namespace) -> bool:
    options = Options(target(args))
    name = written_as(args.once_as, {"queue": options["queue"][0]})
    for broker in options.per_broker():
        with broker.access.client() as client:
            if not client.call("stage.published", kind="txn", id=name, number=ONCE)["published"]:
                return False  # the write finishes the brokers that are missing
    return True


def send(messages: DataFrame, args: argparse.Namespace) -> int:
    seen = Observation("replay")
    counted = messages.observe(seen, F.count(F.lit(1)).alias("messages"))
    if args.to_queue:
        writer = counted.select(*SENT).write.format("amqp").mode("append").options(**target(args))
        if args.once_as:
            writer = writer.option("txnAppId", args.once_as).option("txnVersion", ONCE)
        writer.save()
    else:
        counted.write.format(args.format).mode(args.mode).save(args.to)
    return int(seen.get["messages"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="replay", description="The archive of a queue into a table or a queue.")
    parser.add_argument("--url", required=True, help="the broker, such as amqp://HOST:5672")
    parser.add_argument("--queue", required=True, help="the queue whose archive is read")
    parser.add_argument(
        "--states",
        default="archived",
        metavar="LIST",
        help="of available, acquired, delayed, deferred, archived; default: archived",
    )
    moments.add_flags(parser, "time of arrival")
    parser.add_argument("--from-sequence", type=int, metavar="N", help="first sequence number")
    parser.add_argument("--to-sequence", type=int, metavar="N", help="last sequence number")
    parser.add_argument("--outcome", metavar="NAME", help="only messages with this outcome, such as accepted or rejected")
    parser.add_argument("--where", metavar="SQL", help="""a condition on the columns, such as "subject = 'eu'" """)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", metavar="PATH", help="a table to write")
    target.add_argument("--to-queue", metavar="NAME", help="a queue to send to")
    parser.add_argument("--format", default="delta", choices=["delta", "parquet"], help="of the table; default: delta")
    parser.add_argument(
        "--mode", default="append", choices=["append", "overwrite", "errorifexists"], help="of the table; default: append"
    )
    parser.add_argument("--to-url", metavar="URL", help="another broker for --to-queue; default: the same")
    parser.add_argument("--once-as", metavar="NAME", help="with --to-queue: a second run under the same name sends nothing")
    parser.add_argument(
        "--pace", type=float, metavar="P", help="as a stream: 1 at the original pace, 10 ten times as fast, 0 without a limit"
    )
    parser.add_argument("--follow", action="store_true", help="as a stream that continues with later messages")
    parser.add_argument("--checkpoint", metavar="PATH", help="with --pace or --follow: the folder of the checkpoint")
    add_options(parser, "the source, and of the same broker's login for --to-queue", "userName=alice")
    add_options(parser, "the sink of --to-queue", "userName=bob at another broker", "to-option")
    return parser


if __name__ == "__main__":
    sys.exit(main())
