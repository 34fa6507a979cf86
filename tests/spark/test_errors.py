"""Errors in Spark: the code first, the sentence once, and no text of pyarrow or gRPC."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQueryException

import penstock

if TYPE_CHECKING:
    from .conftest import Rig

SENTENCE = "there is no queue 'nowhere': declare it with `penstock queue declare nowhere`"


def shown(error: BaseException) -> str:
    """Return an error's text as a user sees it, and check that it has only our text and Spark's."""
    text = str(error)
    assert [foreign for foreign in ("gRPC", "pyarrow", "During handling", "direct cause") if foreign in text] == []
    return text


def test_the_planner_says_it_once(rig: Rig) -> None:
    with pytest.raises(PySparkException) as refusal:
        rig.look("nowhere").collect()
    assert shown(refusal.value).count(f"[PENSTOCK.QUEUE_NOT_FOUND] {SENTENCE}") == 1
    assert penstock.explain(refusal.value) == SENTENCE


def test_an_executor_says_it_once(rig: Rig) -> None:
    rows = rig.spark.range(1).selectExpr("'nowhere' AS queue", "'x' AS body")
    with pytest.raises(PySparkException) as refusal:
        rig.write(rows)
    assert shown(refusal.value).count(f"[PENSTOCK.QUEUE_NOT_FOUND] {SENTENCE}") == 1
    assert penstock.explain(refusal.value) == SENTENCE


def test_a_stream_says_it_once(rig: Rig) -> None:
    with pytest.raises(StreamingQueryException) as refusal:
        rig.drain(rig.stream("nowhere"))
    assert shown(refusal.value).count(SENTENCE) == 1
    assert penstock.explain(refusal.value) == SENTENCE


def test_an_option_says_it_once(rig: Rig) -> None:
    with pytest.raises(PySparkException) as refusal:
        rig.look("orders", colour="red")
    assert shown(refusal.value).count("[PENSTOCK.INVALID_OPTION] there is no option 'colour'") == 1
    assert penstock.explain(refusal.value).startswith("there is no option 'colour'")


def test_a_table_of_the_catalog_names_the_view_to_use_instead(rig: Rig) -> None:
    with pytest.raises(PySparkException) as refusal:
        rig.spark.sql(f"CREATE TABLE orders USING amqp OPTIONS (url '{rig.broker.url}', queue 'orders')")
    assert "[PENSTOCK.INVALID_OPTION] a table of Spark's catalog cannot be a queue" in shown(refusal.value)
    assert "CREATE TEMPORARY VIEW orders (body STRING, subject STRING) USING amqp" in penstock.explain(refusal.value)


def test_a_python_thread_writes_after_register(rig: Rig) -> None:
    """Spark finds sources through the active session, which a new thread does not have."""
    rig.declare("orders")

    def write(*, register: bool) -> None:
        if register:
            penstock.register(rig.spark)
        rig.write(rig.spark.range(1).selectExpr("'x' AS body"), "orders")

    with ThreadPoolExecutor(1) as thread:
        refusal = thread.submit(write, register=False).exception()
        assert refusal is not None
        assert "call penstock.register(spark), also in each Python thread" in penstock.explain(refusal)
        thread.submit(write, register=True).result()
    assert rig.counts("orders") == (1, 0, 0)


def test_the_progress_of_a_query_shows_the_backlog_of_its_queues(rig: Rig) -> None:
    """S10."""
    rig.declare("orders", "returns")
    rig.send("orders", 0, 10)
    frame = rig.stream("orders,returns", maxMessagesPerTrigger="4")
    writer = frame.writeStream.format("noop").option("checkpointLocation", rig.path("checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    shown = [json.loads(progress.json)["sources"][0]["latestOffset"] for progress in query.recentProgress]
    assert {offset["source"] for offset in shown} == {f"amqp[orders, returns @ {rig.broker.url.partition('://')[2]}]"}
    orders = [offset["queues"]["orders"] for offset in shown]
    assert [counts["available"] for counts in orders][:3] == [6, 2, 0]
    assert orders[0]["inFlight"] == 4
    assert orders[0]["oldestSeconds"] > 0
    assert shown[0]["queues"]["returns"] == {
        **dict.fromkeys(("available", "inFlight", "redelivered", "deadLettered", "bytes"), 0),
        "oldestSeconds": None,
    }


def test_workers_without_the_package_are_named_also_for_an_error_of_spark(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(rig.spark.sparkContext, "pythonExec", str(python))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    sentence = f"Spark's workers run {python}, which lacks penstock-mq and pyarrow. Set PYSPARK_PYTHON={sys.executable}"
    for text in ("[DATA_SOURCE_NOT_FOUND] Failed to find: amqp", "Traceback\nModuleNotFoundError: No module named 'penstock'"):
        assert penstock.explain(RuntimeError(text)).startswith(sentence)


def test_a_second_registration_changes_nothing(rig: Rig) -> None:
    """Spark would log a warning: *replaced a previously registered data source*."""
    manager = rig.spark._jsparkSession.sessionState().dataSourceManager()
    identity = lambda: rig.spark._jvm.System.identityHashCode(manager.lookupDataSource("amqp"))  # noqa: E731
    before = identity()
    penstock.register(rig.spark)
    assert identity() == before
