"""Bodies as strings, and views that serve SELECT and INSERT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import penstock

if TYPE_CHECKING:
    from conftest import Rig

TEXT = "sequenceNumber BIGINT, body STRING"


@pytest.fixture
def orders(rig: Rig) -> Rig:
    """Three messages; the second one is not UTF-8."""
    rig.declare("orders")
    rows = rig.spark.sql("VALUES (X'C3A4'), (X'FF'), (X'7A') AS rows (body)")
    rig.write(rows, "orders")
    return rig


def test_a_body_is_a_string_in_batches_streams_and_the_archive(orders: Rig) -> None:
    reader = orders.spark.read.format("amqp").schema(TEXT).options(url=orders.broker.url, queue="orders")
    assert sorted(map(tuple, reader.load().collect())) == [(0, "ä"), (1, None), (2, "z")]
    strict = reader.option("invalidText", "error").load()
    with pytest.raises(PySparkException) as refusal:
        strict.collect()
    assert "the body of message 1 of queue 'orders' is not UTF-8 (b'\\xff')" in penstock.explain(refusal.value)
    stream = orders.spark.readStream.format("amqp").schema("body STRING").options(url=orders.broker.url, queue="orders").load()
    orders.drain(stream)
    table = orders.spark.read.format("delta").load(orders.path("table"))
    assert sorted(row.body or "" for row in table.collect()) == ["", "z", "ä"]
    archived = orders.spark.read.format("amqp").schema(TEXT).options(url=orders.broker.url, queue="orders", states="archived")
    assert sorted(map(tuple, archived.load().collect())) == [(0, "ä"), (1, None), (2, "z")]


@pytest.mark.parametrize(("columns", "body"), [("", "binary('{}')"), (f"({TEXT}, subject STRING)", "'{}'")])
def test_one_view_serves_select_and_insert(rig: Rig, columns: str, body: str) -> None:
    rig.declare("orders")
    view = f"CREATE OR REPLACE TEMPORARY VIEW orders {columns} USING amqp OPTIONS (url '{rig.broker.url}', queue 'orders')"
    rig.spark.sql(view)
    rig.spark.sql(f"INSERT INTO orders (body, subject) VALUES ({body.format('x')}, 's')")
    rig.spark.sql(f"INSERT INTO orders (body) SELECT {body.format('y')}")
    selected = rig.spark.sql("SELECT string(body) AS body, subject FROM orders ORDER BY sequenceNumber")
    assert list(map(tuple, selected.collect())) == [("x", "s"), ("y", None)]
    rig.spark.sql("INSERT INTO orders SELECT * FROM orders WHERE subject = 's'")  # all columns, also those of a read
    rig.spark.sql(view)  # plans the next SELECT again
    assert rig.spark.table("orders").count() == 3


def test_an_insert_that_spark_refuses_is_explained(rig: Rig) -> None:
    rig.declare("orders")
    rig.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING amqp OPTIONS (url '{rig.broker.url}', queue 'orders')")
    for insert, remedy in (
        ("INSERT INTO orders (body) VALUES ('x')", "the body of this view is binary: insert binary('…')"),
        ("INSERT INTO orders VALUES ('x')", "name the columns that are inserted"),
    ):
        with pytest.raises(PySparkException) as refusal:
            rig.spark.sql(insert)
        assert remedy in penstock.explain(refusal.value)
