"""The demo with a broker that is no Penstock: `./dev demo --broker artemis`. The flights go through ActiveMQ Artemis into Delta.

The same kills and the same comparison. Every flight has a message id, so what Artemis sends again is recognised: exactly once.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from penstock.connector.foreign import batches
from penstock.jobs import flights
from penstock.jobs.artemis import Artemis
from penstock.jobs.told import Told
from penstock.jobs.under_kills import QUEUE, Reader, compare, ingest, send, spark_of_demo

#: Arguments of `artemis create`: a journal that asks nothing of the disk before it begins, and nobody logs in on loopback.
INSTANCE = ("--user=demo", "--password=demo", "--allow-anonymous", "--no-autotune", "--nio")
JAVA = "-XX:+UseSerialGC -Xmx1g"
SPOOL = "spool"  # below the folder of the demo


def run(work: Path, home: Path, limit: int | None, told: Told) -> bool:
    """Send, ingest under kills, compare; return True when every check holds. Raises Unavailable."""
    told.step("An Artemis, and a Spark")
    broker = Artemis(home, work / "artemis", [QUEUE], *INSTANCE, java=JAVA)
    try:
        broker.start()
        told.fact(f"broker: ActiveMQ Artemis {broker.version}, process {broker.pid}, {broker.url}")
        with spark_of_demo() as spark:
            source = flights.table(limit)
            told.step(f"A DataFrame of {source.num_rows:,} flights becomes messages of Artemis")
            told.fact("each task sends its rows over AMQP, and waits until Artemis has confirmed them")
            sent = send(spark, broker.url, source, "confirmed by Artemis", told)
            told.step("The queue becomes a Delta table, while Spark and Artemis are killed")
            reader = Reader({"spool": work / SPOOL}, lambda: held(work))
            ingest(broker, broker.url, reader, work, source.num_rows, told)
            told.step("Is every flight in the table, once?")
            return compare(sent, spark.read.format("delta").load(str(work / "delta")), told)
    finally:
        broker.stop()


def held(work: Path) -> int:
    """Count the messages of the batch that Spark has begun and not committed, by its checkpoint and the spool; 0 between two."""
    begun, done = ({path.name for path in (work / "checkpoint" / log).glob("[0-9]*")} for log in ("offsets", "commits"))
    files = sorted((work / SPOOL).glob("batch-*.arrow"), key=lambda path: int(path.stem.partition("-")[2]))
    if not begun - done or not files:
        return 0
    try:
        with pa.memory_map(str(files[-1])) as file:
            return sum(batches.counts_of(batches.opened(file, files[-1].name).reader))
    except FileNotFoundError:  # committed and deleted meanwhile
        return 0
