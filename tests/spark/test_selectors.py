"""Q8 from Spark: a stream of the messages that match a selector, and a batch read of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from conftest import Rig


def test_a_selector_takes_what_matches_and_belongs_to_the_checkpoint(rig: Rig) -> None:
    rig.declare("orders")
    rows = rig.spark.range(100).selectExpr(
        "cast(id as string) body", "map('size', cast(id as string), 'colour', if(id % 2 = 0, 'red', 'blue')) properties"
    )
    rig.write(rows, "orders")
    selector = "colour = 'red' AND size >= 50"
    shown = rig.look("orders", selector=selector).selectExpr("cast(cast(body as string) as int) n").collect()
    assert sorted(row.n for row in shown) == list(range(50, 100, 2))
    rig.drain(rig.stream("orders", selector=selector, maxMessagesPerTrigger="10"))
    assert rig.table() == list(range(50, 100, 2))
    assert rig.counts("orders") == (75, 0, 25)
    for changed in ({}, {"selector": "colour = 'blue'"}):
        with pytest.raises(StreamingQueryException, match="put `selector` back as it was"):
            rig.drain(rig.stream("orders", **changed))
    rig.drain(rig.stream("orders"), "rest", "another")
    assert rig.table("rest") == sorted(set(range(100)) - set(range(50, 100, 2)))
