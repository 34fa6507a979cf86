"""The promises of the connector, on any Spark. `pytest tests/spark_versions/scenarios.py` tests the Spark of that Python.

test_versions.py runs this file in environments with other versions. docs/spark.md has a table of the results.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import deltalake
import pyspark
import pytest
from pyarrow import parquet
from pyspark.sql import datasource

import penstock
from penstock.broker_core.client.amqp.address import parse
from penstock.connector.spark_settings import LATEST_WITH_DELTA, delta_settings
from penstock.connector.spark_versions import HAS_READ_LIMITS

from ..foreign.hidden import Hidden
from .pipelines import run_pipelines
from .processes import FREE_PORT, environment, installed_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from ..spark.conftest import Rig

SPARK = pyspark.__version__
FILTERS = "spark.sql.python.filterPushdown.enabled"
LIMIT_S = 600  # of another program, on a busy machine
pytestmark = [pytest.mark.spark, pytest.mark.timeout(2 * LIMIT_S)]
needs_delta = pytest.mark.skipif(not delta_settings(SPARK), reason=f"Delta has no jar for Spark {SPARK}")


# --- Streams into a table of Parquet files, which every Spark can write exactly once ---------------------------------------


def writer_of(rig: Rig, queue: str, **options: str) -> DataStreamWriter:
    """Return a stream of the numbers in a queue."""
    reader = rig.spark.readStream.format("amqp").options(**{"url": rig.broker.url, "queue": queue, **options})
    frame = reader.load().selectExpr("cast(body as string) body", "queue")
    return frame.writeStream.format("parquet").option("checkpointLocation", rig.path("checkpoint"))


def start(rig: Rig, queue: str, **options: str) -> StreamingQuery:
    return writer_of(rig, queue, **options).trigger(processingTime="0 seconds").start(rig.path("table"))


def numbers(rig: Rig) -> list[int]:
    """Return the numbers in the table, in order, with duplicates. Its log lists the files, as for Spark's own reader."""
    logs = Path(rig.path("table", "_spark_metadata")).glob("[0-9]*")
    entries = [json.loads(line) for log in logs for line in log.read_text().splitlines()[1:]]
    files = {unquote(urlsplit(entry["path"]).path) for entry in entries}
    return sorted(int(body) for file in files for body in parquet.read_table(file).column("body").to_pylist())


def run_until(rig: Rig, query: StreamingQuery, count: int) -> None:
    """Run the query until the table has this number of rows, and stop it."""

    def is_complete() -> bool:
        assert query.isActive, penstock.explain(query.exception())  # type: ignore[arg-type]
        return len(numbers(rig)) >= count

    rig.until(is_complete, f"{count} rows are in the table")
    query.stop()


# --- Batches ---------------------------------------------------------------------------------------------------------------


def test_write_and_batch_read(rig: Rig) -> None:
    rig.declare("orders", "again")
    columns = ("subject", "priority", "properties", "creationTime", "durable")
    frame = rig.spark.range(0, 200, 1, 2).selectExpr(
        "concat('order ', id) body",
        "concat('shop-', id % 3) subject",
        "cast(id % 10 as smallint) priority",
        "map('n', cast(id as string)) properties",
        "timestamp_millis(1772323200000 + id) creationTime",
        "id % 2 = 0 durable",
    )
    rig.write(frame, "orders")
    read = rig.look("orders").orderBy("sequenceNumber")
    assert read.select(read.body.cast("string"), *columns).collect() == frame.collect()
    narrow = rig.spark.read.schema("sequenceNumber long, message binary").format("amqp")
    exact = narrow.options(url=rig.broker.url, queue="orders", minPartitions=3).load()
    rig.write(exact.select("message"), "again")
    assert rig.bodies("again") == rig.bodies("orders")
    assert rig.look("orders", selector="JMSPriority > 7").count() == 40


def test_a_write_that_fails_sends_nothing(rig: Rig) -> None:
    rig.declare("orders")
    broken = rig.spark.range(0, 100, 1, 4).selectExpr("if(id = 99, raise_error('row 99'), string(id)) body")
    with pytest.raises(Exception, match="row 99"):
        rig.write(broken, "orders")
    assert rig.counts("orders") == (0, 0, 0)


def test_a_repeated_write_sends_nothing(rig: Rig) -> None:
    rig.declare("orders")
    for _ in range(2):
        rig.write(rig.spark.range(7).selectExpr("string(id) body"), "orders", txnAppId="import", txnVersion="1")
    assert rig.counts("orders") == (7, 0, 0)


def test_sql_views(rig: Rig) -> None:
    rig.declare("orders")
    options = f"OPTIONS (url '{rig.broker.url}', queue 'orders')"
    rig.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW sent (body STRING, subject STRING) USING amqp {options}")
    rig.spark.sql("INSERT INTO sent VALUES ('order 1', 'shop-1'), ('order 2', 'shop-2')")
    rig.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW waiting USING amqp {options}")
    rows = rig.spark.sql("SELECT string(body), subject FROM waiting ORDER BY sequenceNumber").collect()
    assert [tuple(row) for row in rows] == [("order 1", "shop-1"), ("order 2", "shop-2")]


def test_filters_that_narrow_a_batch_read(rig: Rig) -> None:
    """On Spark 4.0, the option has no effect: the tasks divide all messages, and Spark filters their rows."""
    rig.declare("orders")
    rig.send("orders", 0, 30)
    rig.spark.conf.set(FILTERS, "true")
    try:
        frame = rig.look("orders", pushdown="true", minPartitions="2").where("sequenceNumber >= 20").select("sequenceNumber")
        tasks = frame.rdd.glom().collect()
    finally:
        rig.spark.conf.unset(FILTERS)
    assert [len(rows) for rows in tasks] == ([5, 5] if hasattr(datasource, "EqualTo") else [0, 10])


def test_an_error_in_one_sentence(rig: Rig) -> None:
    with pytest.raises(Exception) as refused:
        rig.look("no-such-queue").count()
    assert penstock.explain(refused.value).startswith("there is no queue 'no-such-queue'")


# --- Streams ---------------------------------------------------------------------------------------------------------------


def test_a_stream_with_restarts(rig: Rig) -> None:
    rig.declare("orders")
    for run in range(3):
        rig.send("orders", run * 100, 100)
        run_until(rig, start(rig, "orders", maxMessagesPerTrigger="30"), run * 100 + 100)
    assert numbers(rig) == list(range(300))


def test_a_stream_of_several_queues(rig: Rig) -> None:
    rig.declare("left", "right")
    rig.send("left", 0, 50)
    rig.send("right", 50, 50)
    run_until(rig, start(rig, "left, right", maxMessagesPerTrigger="30"), 100)
    assert numbers(rig) == list(range(100))


def test_several_brokers(rig: Rig) -> None:
    rig.declare("orders")
    with penstock.Broker(rig.folder / "second") as second:
        second.declare("orders")
        urls = f"{rig.broker.url},{second.url}"
        for run in range(2):
            rows = rig.spark.range(run * 100, run * 100 + 100, 1, 4).selectExpr("string(id) body", "concat('g', id % 40) groupId")
            rows.write.format("amqp").options(url=urls, queue="orders").mode("append").save()
            assert 0 < rig.counts("orders")[0] < 100  # the second broker has the rest
            run_until(rig, start(rig, "orders", url=urls, maxMessagesPerTrigger="30"), run * 100 + 100)
        assert numbers(rig) == list(range(200))


def test_another_broker(rig: Rig) -> None:
    """Penstock behind a relay that hides its name: Spark writes with ids, and reads into a spool."""
    rig.declare("orders")
    with closing(Hidden(parse(rig.broker.amqp_url).port)) as other:
        for run in range(2):
            rows = rig.spark.range(run * 100, run * 100 + 100, 1, 2).selectExpr("string(id) body", "concat('id-', id) messageId")
            rows.write.format("amqp").options(url=other.url, queue="orders").mode("append").save()
            query = start(rig, "orders", url=other.url, spool=rig.path("spool"), maxMessagesPerTrigger="30")
            run_until(rig, query, run * 100 + 100)
    assert numbers(rig) == list(range(200))


def test_a_stream_with_a_selector(rig: Rig) -> None:
    rig.declare("orders")
    rig.write(rig.spark.range(60).selectExpr("string(id) body", "if(id % 2 = 0, 'even', 'odd') subject"), "orders")
    run_until(rig, start(rig, "orders", selector="JMSType = 'even'", maxMessagesPerTrigger="20"), 30)
    assert numbers(rig) == list(range(0, 60, 2))


def test_available_now(rig: Rig) -> None:
    """All batches in one run since Spark 4.2. Spark 4.0 and 4.1 run one batch."""
    rig.declare("orders")
    rig.send("orders", 0, 90)
    for rows in (90, 90, 90) if HAS_READ_LIMITS else (30, 60, 90):
        writer = writer_of(rig, "orders", maxMessagesPerTrigger="30").trigger(availableNow=True)
        writer.start(rig.path("table")).awaitTermination()
        assert numbers(rig) == list(range(rows))


def test_the_backlog_in_the_progress(rig: Rig) -> None:
    """Spark 4.0 and 4.1 show only the offset."""
    rig.declare("orders")
    rig.send("orders", 0, 90)
    query = writer_of(rig, "orders", maxMessagesPerTrigger="30").trigger(availableNow=True).start(rig.path("table"))
    query.awaitTermination()
    shown = json.loads(query.recentProgress[0].json)["sources"][0]["latestOffset"]
    waiting = {name: counts["available"] for name, counts in shown.get("queues", {}).items()}
    assert waiting == ({"orders": 60} if HAS_READ_LIMITS else {})


def test_replay(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 40)
    settle_all(rig)
    frame = rig.stream("orders", mode="replay", endingSequence="29").selectExpr("cast(body as string) body")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", rig.path("checkpoint"))
    run_until(rig, writer.start(rig.path("table")), 30)
    assert numbers(rig) == list(range(30))


def settle_all(rig: Rig) -> None:
    """Settle the messages of `orders`, and wait until they are recorded."""
    rig.client.call("queue.purge", queue="orders")
    rig.until(lambda: not rig.client.call("archive.status")["unrecorded"], "all messages are recorded")


# --- Stream writes and foreachBatch ----------------------------------------------------------------------------------------


def test_a_named_stream_write(rig: Rig) -> None:
    """Spark repeats the last batch, as after a crash before its commit; the broker recognizes the repetition."""
    rig.declare("orders")
    source = Path(rig.path("source"))
    for run in range(2):
        rig.spark.range(run * 10, run * 10 + 10, 1, 1).selectExpr("string(id) body").write.mode("append").json(str(source))
        frame = rig.spark.readStream.schema("body string").json(str(source))
        writer = frame.writeStream.queryName("orders-again").format("amqp").options(url=rig.broker.url, queue="orders")
        writer.option("checkpointLocation", rig.path("checkpoint")).trigger(availableNow=True).start().awaitTermination()
        for commit in Path(rig.path("checkpoint", "commits")).glob(f"*{run}*"):
            commit.unlink()
    assert sorted(map(int, rig.bodies("orders"))) == list(range(20))


def test_from_queue_to_queue(rig: Rig) -> None:
    rig.declare("orders", "again")
    rig.send("orders", 0, 100)
    frame = rig.stream("orders", maxMessagesPerTrigger="30")
    writer = frame.writeStream.format("amqp").options(url=rig.broker.url, queue="again")
    query = writer.option("checkpointLocation", rig.path("checkpoint")).trigger(processingTime="0 seconds").start()
    rig.until(lambda: rig.counts("again")[0] >= 100, "all messages are in the other queue")
    query.stop()
    assert rig.bodies("again") == [str(i) for i in range(100)]


def test_foreach_batch(rig: Rig) -> None:
    """Each batch is written to a queue once, and gives its messages outcomes."""
    rig.declare("orders", "again")
    rig.send("orders", 0, 60)
    frame = rig.spark.readStream.schema("body binary, delivery binary").format("amqp")
    frame = frame.options(url=rig.broker.url, queue="orders", maxMessagesPerTrigger="20")

    def check(batch: DataFrame, number: int) -> None:
        rig.write(batch.select("body"), "again", txnAppId="check", txnVersion=str(number))
        outcomes = batch.selectExpr("delivery", "if(string(body) like '%7', 'rejected', null) outcome", "'seven' error")
        outcomes.write.format("amqp").options(url=rig.broker.url, operation="settle").mode("append").save()

    writer = frame.load().writeStream.foreachBatch(check).option("checkpointLocation", rig.path("checkpoint"))
    query = writer.trigger(processingTime="0 seconds").start()
    rig.until(lambda: rig.counts("orders")[2] >= 40 and rig.counts("again")[0] >= 60, "all batches are written")
    query.stop()
    assert sorted(map(int, rig.bodies("again"))) == list(range(60))
    rejected = rig.look("orders", states="archived", outcome="rejected").selectExpr("string(body) body").collect()
    assert {"7", "17"} <= {row.body for row in rejected} <= {str(i) for i in range(7, 60, 10)}


# --- The archive, and Delta ------------------------------------------------------------------------------------------------


def test_settled_messages(rig: Rig) -> None:
    """With Spark's Delta source if this Spark has Delta, and otherwise through the broker."""
    rig.declare("orders")
    rig.send("orders", 0, 40)
    settle_all(rig)
    read = rig.look("orders", states="archived", startingSequence="10")
    assert sorted(int(row.body) for row in read.collect()) == list(range(10, 40))
    ended = penstock.archive(rig.spark, "orders", rig.broker.url)
    assert ended.where("outcome = 'purged'").count() == 40
    assert bool(ended.inputFiles()) == bool(delta_settings(SPARK))


@needs_delta
def test_a_stream_into_delta(rig: Rig) -> None:
    rig.declare("orders")
    for run in range(2):
        rig.send("orders", run * 50, 50)
        writer = rig.stream("orders").writeStream.format("delta")
        query = writer.option("checkpointLocation", rig.path("checkpoint")).start(rig.path("table"))
        rig.until(lambda count=run * 50 + 50: len(delta_numbers(rig)) >= count, "all rows are in the table")
        query.stop()
    assert delta_numbers(rig) == list(range(100))
    assert rig.table() == list(range(100))


def delta_numbers(rig: Rig) -> list[int]:
    if not Path(rig.path("table", "_delta_log", f"{0:020}.json")).exists():
        return []
    return sorted(map(int, deltalake.DeltaTable(rig.path("table")).to_pyarrow_table().column("body").to_pylist()))


# --- Processes -------------------------------------------------------------------------------------------------------------


DRIVER = """
import json, sys
import penstock
from pyspark.sql import SparkSession
settings, url, table, checkpoint = json.loads(sys.argv[1]), *sys.argv[2:]
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
penstock.register(spark)
frame = spark.readStream.format("amqp").options(url=url, queue="orders", maxMessagesPerTrigger="500").load()
writer = frame.selectExpr("cast(body as string) body", "queue").writeStream.format("parquet")
writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start(table)
spark.streams.awaitAnyTermination()
"""


def test_a_killed_driver(rig: Rig, settings: dict[str, str]) -> None:
    """The driver, its JVM and its Python workers die together, as with their machine."""
    rig.declare("orders")
    rig.send("orders", 0, 20_000)
    script = Path(rig.path("driver.py"))
    script.write_text(DRIVER)
    arguments = [json.dumps(settings), rig.broker.url, rig.path("table"), rig.path("checkpoint")]
    with open(rig.path("driver.log"), "wb") as log:
        command = [sys.executable, str(script), *arguments]
        driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment())
        try:
            rig.until(lambda: rig.counts("orders")[2] >= 1000, lambda: f"two batches are settled: {log_end(rig, 'driver.log')}")
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    assert sum(rig.counts("orders")) == 20_000
    run_until(rig, start(rig, "orders", maxMessagesPerTrigger="5000"), 20_000)
    assert numbers(rig) == list(range(20_000))


def log_end(rig: Rig, name: str) -> str:
    return Path(rig.path(name)).read_text(errors="replace")[-3000:]


def test_a_killed_broker(rig: Rig) -> None:
    rig.declare("orders")
    rig.send("orders", 0, 3000)
    query = start(rig, "orders", maxMessagesPerTrigger="300")
    rig.until(lambda: rig.counts("orders")[2] >= 300, "a batch is settled")
    rig.broker.kill()
    rig.broker.start()

    def is_complete() -> bool:
        nonlocal query
        if not query.isActive:  # an orchestrator restarts it
            query = start(rig, "orders", maxMessagesPerTrigger="300")
        return len(numbers(rig)) >= 3000

    rig.until(is_complete, "all rows are in the table")
    query.stop()
    assert numbers(rig) == list(range(3000))


CONNECT = """
import sys
import penstock
from pyspark.sql import SparkSession
url, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
penstock.register(spark)
options = {"url": url, "queue": "orders"}
spark.range(100).selectExpr("string(id) body").write.format("amqp").options(**options).mode("append").save()
print("read", spark.read.format("amqp").options(**options).load().count())
frame = spark.readStream.format("amqp").options(**options).load().selectExpr("cast(body as string) body")
writer = frame.writeStream.format("parquet").option("checkpointLocation", folder + "/c").trigger(availableNow=True)
writer.start(folder + "/t").awaitTermination()
rows = spark.readStream.schema("body string").parquet(folder + "/t")
back = rows.writeStream.format("amqp").options(url=url, queue="again").option("checkpointLocation", folder + "/n")
back.trigger(availableNow=True).start().awaitTermination()
print("back", spark.read.format("amqp").options(url=url, queue="again").load().count())
try:
    spark.read.format("amqp").options(url=url, queue="no-such-queue").load().count()
except Exception as error:
    print(penstock.explain(error))
"""


def test_spark_connect(rig: Rig) -> None:
    rig.declare("orders", "again")
    script = Path(rig.path("client.py"))
    script.write_text(CONNECT)
    command = [sys.executable, str(script), rig.broker.url, rig.path("files")]
    output = output_of(command, {**environment(), **FREE_PORT}, rig.folder)
    assert output.splitlines()[:2] == ["read 100", "back 100"]
    assert "there is no queue 'no-such-queue'" in output


def output_of(command: list[str], variables: dict[str, str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


@pytest.mark.skipif(find_spec("pyspark.pipelines") is None, reason=f"Spark {SPARK} has no declarative pipelines")
def test_declarative_pipelines(rig: Rig) -> None:
    run_pipelines(rig, installed_in(rig.folder / "installed"), runs=2)


@pytest.mark.skipif(bool(delta_settings(SPARK)), reason=f"Delta has a jar for Spark {SPARK}")
def test_delta_of_an_older_spark_fails(rig: Rig) -> None:
    """Once this fails, or Delta has a jar for this Spark, add the version to DELTA_SPARKS and raise the extra `delta`."""
    script = Path(rig.path("delta.py"))
    script.write_text(
        "import sys\nfrom pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\n"
        "spark.range(9).write.format('delta').save(sys.argv[1])\nspark.read.format('delta').load(sys.argv[1]).count()\n"
    )
    confs = [f"--conf={name}={value}" for name, value in delta_settings(LATEST_WITH_DELTA).items()]
    command = ["spark-submit", "--master=local[1]", *confs, str(script), rig.path("table")]
    done = subprocess.run(  # spark-submit moves a script's stderr to its stdout
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode != 0
    assert "NoSuchMethodError" in done.stdout, done.stdout[-3000:]
