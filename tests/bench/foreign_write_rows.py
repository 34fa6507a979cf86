"""Rows at another broker: Artemis, as `artemis_rows` has it."""

from __future__ import annotations

from collections.abc import Iterator

from feeding import QUEUE
from harness import Bench, Line, Stopwatch
from pyspark.sql.functions import expr
from spark_rows import session

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.broker_core.client.amqp import connect
from tests.artemis import VERSION, artemis

USER = {"userName": "bench", "password": "bench"}
OCTETS = 1024


def write(bench: Bench) -> Iterator[Line]:
    """Measure a task that writes to Artemis, against our client sending the same messages, encoded before."""
    count = bench.count(100_000, 5000)
    frame = session().range(0, count, 1, 1).select(expr(f"cast(lpad(id, {OCTETS}, 'x') as binary) as body")).cache()
    frame.count()  # rows are made before, as the other side's messages are
    payloads = [
        Message(
            header=Header(durable=True),
            properties=Properties(message_id=f"{'0' * 32}/0/{number}"),
            data=[b"%0*d" % (OCTETS, number)],
        ).encode()
        for number in range(count)
    ]
    home = bench.folder()
    with artemis(home, QUEUE) as url:

        def emptied() -> None:  # or Artemis would keep more and more of them, and page
            with connect(url, "bench", "bench") as connection:
                receiver, left = connection.receiver(QUEUE, presettled=True), count
                while left:
                    left -= len(receiver.receive(timeout_s=30)) or left

        def ours(_: int) -> float:
            with Stopwatch() as watch:
                frame.write.format("amqp").options(url=url, queue=QUEUE, **USER).mode("append").save()
            emptied()
            return count / watch.seconds

        def theirs(_: int) -> float:
            with Stopwatch() as watch, connect(url, "bench", "bench") as connection:
                sender = connection.sender(QUEUE)
                sender.send(payloads)
                sender.flush()
            emptied()
            return count / watch.seconds

        ours(0), theirs(0), theirs(0)
        figures = bench.pairs("rows/s", ours, theirs)
    bench.remove(home)
    title = f"df.write of {count:,} rows of 1 KiB, held in memory, to ActiveMQ Artemis {VERSION}, one task, durable and confirmed"
    yield Line("foreign-write", title, "our client's bare sends of the same, encoded before", 0.6, None, True, "rows/s", *figures)
