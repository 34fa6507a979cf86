"""Options that Spark passes on its own. Each API that sets them works, or its error names another way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

import penstock
from penstock.connector import suggestions
from penstock.connector.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from .conftest import Rig


class Probe(DataSource):
    """Writes its options into the file in the option `log`."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        with open(options["log"], "a") as log:
            log.write(json.dumps(sorted(options)) + "\n")

    @classmethod
    def name(cls) -> str:
        return "probe"

    def schema(self) -> str:
        return "body string"

    def reader(self, schema: Any) -> DataSourceReader:
        return Nothing()

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        return Discarded()

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        return DiscardedStream()


class Nothing(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        return iter(())


class Discarded(DataSourceWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        list(iterator)
        return WriterCommitMessage()


class DiscardedStream(DataSourceStreamWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        list(iterator)
        return WriterCommitMessage()

    def commit(self, messages: Any, batchId: int) -> None:
        pass

    def abort(self, messages: Any, batchId: int) -> None:
        pass


def test_spark_passes_these_options_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(__import__(__name__, fromlist=["Probe"]))  # Spark's workers cannot import this file
    spark.dataSource.register(Probe)
    log, folder = tmp_path / "log", str(tmp_path)
    rows = spark.range(1).selectExpr("string(id) AS body")
    rows.write.json(folder + "/in")
    stream = spark.readStream.schema("body string").json(folder + "/in")

    def started(name: str) -> DataStreamWriter:
        made = stream.writeStream.format("probe").option("log", str(log)).option("checkpointLocation", f"{folder}/{name}")
        return made.trigger(availableNow=True)

    columns = f"USING probe OPTIONS (log '{log}')"
    ways: dict[str, tuple[Callable[[], Any], set[str]]] = {
        "write": (lambda: rows.write.format("probe").option("log", str(log)).mode("append").save(), set()),
        "save": (lambda: rows.write.format("probe").option("log", str(log)).mode("append").save("/p"), {"path"}),
        "read": (lambda: spark.read.format("probe").option("log", str(log)).load().collect(), set()),
        "load": (lambda: spark.read.format("probe").option("log", str(log)).load("/p").collect(), {"path"}),
        "load of several": (lambda: spark.read.format("probe").option("log", str(log)).load(["/p", "/q"]).collect(), {"paths"}),
        "stream": (
            lambda: started("a").queryName("job").partitionBy("body").start().awaitTermination(),
            {"checkpointlocation", "queryname"},
        ),
        "toTable": (lambda: started("b").toTable("probed").awaitTermination(), {"checkpointlocation", "path"}),
        "view": (lambda: spark.sql(f"CREATE TEMPORARY VIEW probed_rows (body STRING) {columns}"), set()),
        "select": (lambda: spark.sql(f"CREATE TEMPORARY VIEW probed_again {columns}").collect(), set()),
        "insert": (lambda: spark.sql("INSERT INTO probed_rows VALUES ('x')"), set()),
        "table": (lambda: spark.sql(f"CREATE TABLE probed_table {columns}"), {"owner", "provider", "option.log"}),
    }
    for way, (use, expected) in ways.items():
        log.write_text("")
        use()
        passed = {name for line in log.read_text().splitlines() for name in json.loads(line)} - {"log"}
        assert passed == expected, way
        known = {option.name.lower() for option in OPTIONS}
        assert passed <= known or suggestions.refusal(passed) is not None, way


def test_a_named_stream_writes_into_a_queue_once_whatever_it_is_called_later(rig: Rig) -> None:
    """Also with a named `foreachBatch` from it."""
    rig.declare("out")
    rig.spark.range(10).selectExpr("cast(id as string) body").coalesce(1).write.json(rig.path("files"))
    frame = rig.spark.readStream.schema("body string").json(rig.path("files"))
    for name in ("orders-job", "orders-job", "another name"):
        writer = frame.writeStream.queryName(name).format("amqp").options(url=rig.broker.url, queue="out")
        query = writer.option("checkpointLocation", rig.path("c")).trigger(availableNow=True).start()
        query.awaitTermination()
        assert query.name == name
        for commit in Path(rig.path("c", "commits")).iterdir():
            commit.unlink()  # as if Spark died between the sink's commit and its own
    assert sorted(rig.bodies("out"), key=int) == [str(i) for i in range(10)]
    counts: list[int] = []
    stream = rig.stream("out").writeStream.queryName("each").foreachBatch(lambda batch, _: counts.append(batch.count()))
    stream.option("checkpointLocation", rig.path("each")).trigger(availableNow=True).start().awaitTermination()
    assert sum(counts) == 10


def test_a_way_that_names_a_place_says_how_to_do_without(rig: Rig) -> None:
    rig.declare("out")
    frame = rig.spark.readStream.format("rate").load().selectExpr("string(value) AS body")
    writer = frame.writeStream.format("amqp").options(url=rig.broker.url, queue="out", checkpointLocation=rig.path("c"))
    with pytest.raises(PySparkException) as refusal:
        writer.trigger(availableNow=True).toTable("orders_table").awaitTermination()
    assert "Call start() instead of toTable()" in penstock.explain(refusal.value)
    rows = rig.spark.range(1).selectExpr("'x' AS body")
    with pytest.raises(PySparkException) as refusal:
        rows.write.format("amqp").options(url=rig.broker.url, queue="out").mode("append").save(rig.path("p"))
    assert "a path has no meaning for the format amqp" in penstock.explain(refusal.value)
    for mode in (None, "ignore"):
        with pytest.raises(PySparkException) as refusal:
            rows.write.format("amqp").options(url=rig.broker.url, queue="out").mode(mode).save()
        assert '.mode("append").save()' in penstock.explain(refusal.value)
    assert rig.counts("out") == (0, 0, 0)
