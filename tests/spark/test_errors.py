"""Errors as Spark shows them: the code in front, the sentence once, and nothing of pyarrow's or gRPC's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQueryException

import penstock

if TYPE_CHECKING:
    from .conftest import Rig

SENTENCE = "there is no queue 'nowhere': declare it with `penstock queue declare nowhere`"


def shown(error: BaseException) -> str:
    """What a user sees of an error; it must be of ours and Spark's alone."""
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
    assert "CREATE TEMPORARY VIEW orders USING amqp" in penstock.explain(refusal.value)
