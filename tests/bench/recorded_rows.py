"""Rows about reading the archive: Spark's tasks read the table through the connector, and by Spark's own Delta source."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from feeding import QUEUE, RECORDED_LIMIT_S, filled, until_recorded
from harness import Bench, Line
from spark_rows import NARROW, session

import penstock
from penstock.broker_core.archive.table.layout import READABLE, table_url
from penstock.broker_core.client.flight import Client
from penstock.broker_core.messages.columns import DEFAULT_COLUMNS
from penstock.broker_core.server.child import Broker
from penstock.connector.schema import source_schema


def archive_read(bench: Bench) -> Iterator[Line]:
    """A batch read of recorded messages into noop: all of them are in the table, none comes from the broker."""
    messages = bench.count(10_000_000, 200_000)
    folder = bench.folder()
    with bench.doing(f"{messages:,} messages"):
        filled(folder, messages)
    with Broker(folder, archive_after_s=0.1) as broker, Client(broker.url) as client:
        with bench.doing("recording them"):
            client.call("queue.purge", queue=QUEUE, timeout_s=RECORDED_LIMIT_S)
            until_recorded(client)
        table = table_url(str(broker.data_dir / "archive"), QUEUE)
        for columns in (DEFAULT_COLUMNS, NARROW):

            def ours(_: int, columns: tuple[str, ...] = columns) -> float:
                read = session().read.format("amqp").schema(source_schema(columns))
                return messages / _seconds(read.options(url=broker.url, queue=QUEUE, states="archived").load())

            def theirs(_: int, columns: tuple[str, ...] = columns) -> float:
                return messages / _seconds(session().read.format("delta").load(table).select(*columns))

            ours(0), theirs(0)
            figures = bench.pairs("rows/s", ours, theirs)
            selection = "the default columns" if columns == DEFAULT_COLUMNS else "only " + " and ".join(columns)
            title = f"batch read of {messages:,} archived messages of 100 bytes into noop, {selection}"
            yield Line("archive-read", title, "Spark's own Delta source on the same table", 0.3, 0.5, True, "rows/s", *figures)

        def archive(_: int) -> float:
            return messages / _seconds(penstock.archive(session(), QUEUE, broker.url))

        def delta(_: int) -> float:
            return messages / _seconds(session().read.format("delta").load(table).select(*READABLE))

        archive(0), delta(0)
        figures = bench.pairs("rows/s", archive, delta)
        title = f"penstock.archive over {messages:,} messages of 100 bytes into noop"
        yield Line("archive-read", title, "Spark's Delta source, the same columns", 0.95, None, True, "rows/s", *figures)
    bench.remove(folder)


def _seconds(frame: Any) -> float:
    begun = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun
