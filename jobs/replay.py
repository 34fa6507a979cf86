r"""Replay: what passed through a queue, out of its archive, into a table or into a queue.

    python -m penstock.jobs.replay --url grpc://127.0.0.1:8815 --queue orders \
        --since 2026-03-01T00:00:00Z --until 2026-03-02T00:00:00Z --outcome rejected --to-queue orders

`--pace 60 --checkpoint PATH` sends them as a stream, sixty times as fast as they came: what is recorded in the archive when it
begins. A second run with the same checkpoint goes on with what is recorded since; `--follow` does so until SIGTERM or Ctrl-C.

Choose by time of arrival, by sequence number, by outcome, or by any condition in SQL; what stays in the queue stays
untouched. `python -m penstock.jobs.replay …` does the same with a Spark of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, StringType

import penstock
from penstock.broker_core.errors import PenstockError
from penstock.connector.options import Options
from penstock.connector.sink.writer import written_as
from penstock.jobs import progress
from penstock.jobs.arguments import LOGIN, add_options
from penstock.jobs.ingest import stop_on_signal
from penstock.jobs.session import session

#: What the archive knows of a message beyond the message itself.
SETTLED = ("state", "outcome")
#: What is sent again: the message to the octet, so that an AMQP client gets the types and the kind of body that another one sent,
#: or no body; and of its header what is its own. Without the column `queue`, which would send each to where it came from.
SENT = ("message", "priority", "durable")
#: The version under which `--once-as` sends: there is one.
ONCE = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; return the exit code."""
    args = _parser().parse_args(argv)
    try:
        if args.to_queue and args.once_as and sent_before(args):
            progress.say(f"done: nothing was sent, since {args.once_as} has been sent to {args.to_queue} before")
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
    progress.say(f"done: {done} from {args.queue} into {args.to_queue or args.to}")
    return 0


def archive(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """Read the chosen messages, with their `outcome`. Options narrow what is moved; `where` what is kept of that."""
    return _chosen(spark.read.format("amqp"), args, {"states": args.states})


def replayed(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    """Read the chosen messages as a stream, at a pace."""
    return _chosen(spark.readStream.format("amqp"), args, {"mode": "replay", "pace": args.pace or 0})


def _chosen(reader: Any, args: argparse.Namespace, more: dict[str, Any]) -> DataFrame:
    options = {
        **more,
        "startingSequence": args.from_sequence,
        "endingSequence": args.to_sequence,
        "startingTimestamp": args.since,
        "endingTimestamp": args.until,
        "outcome": args.outcome,
    }
    reader = reader.options(url=args.url, queue=args.queue)
    for name, value in [*options.items(), *args.option]:
        if value is not None:
            reader = reader.option(name, value)
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
    """Say whether the messages go as a stream: at a pace, or with those that are recorded later."""
    return args.pace is not None or args.follow


def refused(args: argparse.Namespace) -> str | None:
    """Say what a stream cannot do of what is asked for; None: nothing."""
    if args.checkpoint is None:
        return "--pace and --follow need --checkpoint PATH: by it a second run goes on where the first one ended"
    if args.states != "archived" or args.once_as or args.mode != "append":
        return "--states, --once-as and --mode have no meaning with --pace or --follow: a checkpoint says what was sent"
    return None


def stream(spark: SparkSession, args: argparse.Namespace) -> int:
    """Send the chosen messages as a stream, and return how many. With `--follow` it ends by SIGTERM or Ctrl-C."""
    query = start(spark, args)
    if args.follow:
        stop_on_signal(query)
    return progress.follow(query)


def start(spark: SparkSession, args: argparse.Namespace) -> StreamingQuery:
    """Start the query that sends the chosen messages as a stream."""
    messages = replayed(spark, args)
    if args.to_queue:
        writer = messages.select(*SENT).writeStream.format("amqp").options(**target(args))
    else:
        writer = messages.writeStream.format(args.format).option("path", args.to)
    writer = writer.option("checkpointLocation", args.checkpoint)
    return (writer if args.follow else writer.trigger(availableNow=True)).start()


def target(args: argparse.Namespace) -> dict[str, str]:
    """Return the options of the sink. The login is that of the source where the broker is the same: no other one hears of it."""
    own = dict(args.to_option)
    if args.to_url is None and "connectionString" not in own:
        login = {name: value for name, value in args.option if name.lower() in map(str.lower, LOGIN)}
        return {"url": args.url, "queue": args.to_queue, **login, **own}
    return {**({} if args.to_url is None else {"url": args.to_url}), "queue": args.to_queue, **own}


def sent_before(args: argparse.Namespace) -> bool:
    """Ask the broker for a run that has sent under this name: a second one reads nothing, and says so."""
    options = Options(target(args))
    name = written_as(args.once_as, {"queue": options["queue"][0]})
    for each in options.each():
        with each.access.client() as client:
            if not client.call("stage.published", kind="txn", id=name, number=ONCE)["published"]:
                return False  # of several brokers, the write finishes what is missing
    return True


def send(messages: DataFrame, args: argparse.Namespace) -> int:
    """Write them; return how many. They are counted on their way, not by a second read."""
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
        "--states", default="archived", metavar="LIST", help="of available, acquired, archived; default: archived"
    )
    parser.add_argument("--since", metavar="TIME", help="first time of arrival, such as 2026-03-01T00:00:00Z")
    parser.add_argument("--until", metavar="TIME", help="time of arrival to stop before")
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
        "--pace", type=float, metavar="P", help="as a stream: 1 as fast as they came, 10 ten times as fast, 0 as it goes"
    )
    parser.add_argument("--follow", action="store_true", help="as a stream that goes on with what is recorded later")
    parser.add_argument("--checkpoint", metavar="PATH", help="with --pace or --follow: where the stream notes how far it is")
    add_options(parser, "the source, and of the same broker's login for --to-queue", "userName=alice")
    add_options(parser, "the sink of --to-queue", "userName=bob at another broker", "to-option")
    return parser


if __name__ == "__main__":
    sys.exit(main())
