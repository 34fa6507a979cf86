"""S6: which task of a batch reads which message groups."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import BrokerState, apply
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.events import codec
from penstock.broker_core.engine.model.groups import in_bucket

from .harness import Engine


def test_a_group_is_read_by_the_same_task_after_a_restart() -> None:
    """S1 S6: one task may read before the restart, another after it. The codes of names differ by then."""
    engine = Engine()
    engine.run(c.StartBroker(), c.DeclareQueue("q", options={"groups": "held"}))

    def send(*names: str) -> None:
        engine.run(*(c.Enqueue("q", 1, 1, attributes=Attributes(group=Coded([name], np.array([1])))) for name in names))

    send("a", "b")
    for row in range(2):
        link = engine.run(c.Subscribe("q"))
        engine.run(c.Acquire("q", link, 1), c.Settle("q", link, RowSet.single(row)), c.Unsubscribe("q", link))
    restarted, snapshot = engine.from_snapshot().state, len(engine.log)
    send(*"cdefgh")
    engine.advance("lease", epoch=None, finished=0)
    for meta, position in engine.log[snapshot:]:
        apply(restarted, codec.decode(meta), position)

    def dealt(state: BrokerState) -> list[list[int]]:
        queue = state.queues["q"]
        rows = slice(2, 8)
        return [in_bucket(queue, queue.blocks[0], rows, bucket, 3).tolist() for bucket in range(3)]

    live, after = engine.state.queues["q"].group_names, restarted.queues["q"].group_names
    assert dict(live.names()) != dict(after.names()), "the codes are the same: the test is void"
    assert dealt(restarted) == dealt(engine.state)
    assert sorted(row for rows in dealt(restarted) for row in rows) == list(range(2, 8))


def test_a_settled_batch_is_read_by_one_task_whatever_groups_have_come_since() -> None:
    """S1 S6: a restored checkpoint or an old DataFrame reads the batch again. By then its group names are forgotten, and
    their codes belong to other names."""
    engine = Engine()
    engine.run(c.StartBroker(), c.DeclareQueue("q", options={"groups": "held"}))

    def send(*names: str) -> None:
        engine.run(*(c.Enqueue("q", 1, 1, attributes=Attributes(group=Coded([name], np.array([1])))) for name in names))

    send(*"abcdefgh")
    epoch, batch = engine.advance("lease", epoch=None, finished=0)
    held = engine.plan("lease", epoch=epoch, after=0, batch=batch, min_partitions=3)[1]
    assert [part[4:] for part in held] == [[bucket, 3] for bucket in range(3)]
    engine.read("lease", epoch=epoch, batch=batch)
    queue = engine.state.queues["q"]
    assert in_bucket(queue, queue.blocks[0], slice(0, 8), 0, 3).tolist()
    engine.advance("lease", epoch=epoch, finished=batch)
    send(*(f"new {number}" for number in range(8)))
    again = engine.plan("lease", epoch=epoch, after=0, batch=batch, min_partitions=3, max_messages=2)[1]
    assert again == [[batch, 0, 7, 8, 0, 1]]
    for bucket in range(3):
        with pytest.raises(errors.Fenced, match="evaluate the DataFrame again"):
            in_bucket(queue, queue.blocks[0], slice(0, 8), bucket, 3)
