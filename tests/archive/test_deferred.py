"""Q24 D4: a deferred message is recorded when it ends, with its attempts."""

from __future__ import annotations

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause

from ..flight.helpers import numbered
from .rig import Rig, sequences


def test_a_deferred_message_is_recorded_when_it_ends(rig: Rig) -> None:
    rig.send("q", numbered(3))
    link = rig.service.submit(c.Subscribe("q"))
    rig.service.submit(c.Acquire("q", link, 1), c.Release("q", link, RowSet.single(0), Cause.DEFERRED))
    rig.settle("q", 2)
    rig.record()
    assert sequences(rig.table()) == [1, 2]
    rig.reopen()
    asking = rig.service.submit(c.Subscribe("q", user="ann", by_number=True))
    assert not rig.service.submit(c.AcquireDeferred("q", asking, RowSet.single(0)))
    rig.service.submit(c.Settle("q", asking, RowSet.single(0)))
    rig.record()
    row = next(row for row in rig.table().to_pylist() if row["sequenceNumber"] == 0)
    assert (row["outcome"], row["deliveryCount"], row["holder"]) == ("accepted", 1, "ann")
