"""The demo with a foreign broker, ActiveMQ Artemis: the same flights, the same kills and the same comparison.

Every flight has a message id. The spool recognises messages that Artemis delivers again, so the result is exactly once.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock.connector.foreign import batches

from ..artemis import Artemis
from .kills import QUEUE, Reader, compare, demo_spark, ingest, send
from .output import Output

#: Arguments of `artemis create`: a journal that does not measure the disk first, and no login on loopback.
INSTANCE = ("--user=demo", "--password=demo", "--allow-anonymous", "--no-autotune", "--nio")
JAVA = "-XX:+UseSerialGC -Xmx1g"
SPOOL = "spool"  # below the demo's folder


def run(work: Path, home: Path, limit: int | None, output: Output) -> bool:
    """Send, ingest under kills, compare; return True if every check holds. Raises Unavailable."""
    output.step("An Artemis, and a Spark")
    broker = Artemis(home, work / "artemis", [QUEUE], *INSTANCE, java=JAVA)
    try:
        broker.start()
        output.fact(f"broker: ActiveMQ Artemis {broker.version}, process {broker.pid}, {broker.url}")
        with demo_spark(limit, output) as (spark, source):
            output.step(f"A DataFrame of {source.num_rows:,} flights becomes messages of Artemis")
            output.fact("each task sends its rows over AMQP, and waits until Artemis has confirmed them")
            sent = send(spark, broker.url, source, "confirmed by Artemis", output)
            output.step("The queue becomes a Delta table, while Spark and Artemis are killed")
            reader = Reader({"spool": work / SPOOL}, lambda: messages_in_progress(work))
            ingest(broker, broker.url, reader, work, source.num_rows, output)
            output.step("Is every flight in the table, once?")
            return compare(sent, spark.read.format("delta").load(str(work / "delta")), output)
    finally:
        broker.stop()


def messages_in_progress(work: Path) -> int:
    """Count the messages of the batch that Spark has begun and not committed; 0 between two batches.

    The checkpoint shows whether there is such a batch, and the spool's newest file is its content.
    """
    begun, committed = ({path.name for path in (work / "checkpoint" / log).glob("[0-9]*")} for log in ("offsets", "commits"))
    files = sorted((work / SPOOL).glob("batch-*.arrow"), key=lambda path: int(path.stem.partition("-")[2]))
    if not begun - committed or not files:
        return 0
    try:
        with pa.memory_map(str(files[-1])) as file:
            return sum(batches.counts_of(batches.opened(file, files[-1].name).reader))
    except FileNotFoundError:  # committed and deleted meanwhile
        return 0
