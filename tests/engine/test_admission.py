"""Q15 Q17 Q19: which messages of one arrival a queue accepts."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.columns.states import Outcome

from .conservation import conserved
from .harness import START, Engine


def test_keys_that_wait_in_stages_count() -> None:
    """Q15 Q17: no publish exceeds the keys of a queue."""
    engine = Engine()

    def stage(name: str, *keys: str) -> None:
        attributes = Attributes(key=Coded(list(keys), np.arange(1, len(keys) + 1)))
        engine.run(c.StageMessages(name, "q", len(keys), 1, attributes=attributes))

    engine.run(c.DeclareQueue("q", "lastvalue", {"key": "groupId", "maxKeys": 2}))
    stage("s", "a")
    stage("t", "a", "b")
    for _ in range(2):
        with pytest.raises(errors.QueueFull):
            stage("u", "c")
        engine.run(c.Discard(["s"]))
        engine = engine.from_snapshot()
    engine.run(c.Discard(["t"]))
    stage("u", "c", "d")
    engine.run(c.Publish(["u"]))
    stage("v", "c")
    assert sorted(name for name, _ in engine.state.queues["q"].keys.names()) == ["c", "d"]


def test_what_is_staged_for_a_queue_counts_also_when_that_is_declared_anew() -> None:
    """Q15: the live engine and a recovery count the same stages, so no count becomes negative."""
    engine = Engine()
    declare = c.DeclareQueue("q", options={"maxMessages": 3, "overflow": "reject"})
    engine.run(declare, c.StageMessages("s", "q", 2, 5), c.DeleteQueue("q"), declare)
    for queue in (life.state.queues["q"] for life in (engine, engine.recovered(), engine.from_snapshot())):
        assert (queue.staged.messages, queue.staged.bytes) == (2, 10)
    assert len(engine.run(c.Enqueue("q", 4, 1)).refused) == 3
    engine.run(c.Discard(["s"]))
    assert len(engine.run(c.Enqueue("q", 4, 1)).refused) == 2


def test_a_key_that_was_refused_is_not_known_for_that() -> None:
    """Q17: a key is also unknown if all its messages were duplicates."""
    engine = Engine()
    options = {"key": "groupId", "maxKeys": 1, "duplicateWindow": 9}
    engine.run(c.DeclareQueue("q", "lastvalue", options))
    for _ in range(2):
        attributes = Attributes(key=Coded(["a", "b", "c"], np.array([3, 1, 2])), ids=np.array([b"old", b"", b""], "S16"))
        engine.state.queues["q"].remembered.remember(attributes.ids[:1], START // 1000, 9)
        assert engine.run(c.Enqueue("q", 3, 1, attributes=attributes)).stored == (1,)
        engine = engine.from_snapshot()
    engine.run(c.Purge("q"))
    assert len(engine.state.queues["q"].keys) == 0
    engine.run(c.StageMessages("s", "q", 1, 1, attributes=Attributes(key=Coded(["a", "b"], np.array([2])))))
    engine.run(
        c.StageMessages("t", "q", 1, 1, attributes=Attributes(key=Coded(["x", "b"], np.array([2])))), c.Publish(["s", "t"])
    )
    assert [name for name, _ in engine.state.queues["q"].keys.names()] == ["b"]


@pytest.mark.parametrize("overflow", ["reject", "ring"])
def test_a_key_too_many_lets_no_other_message_pass_a_limit(overflow: str) -> None:
    """Q15 Q17: the limits apply to each message of a batch, also after one was refused for its key."""
    engine = Engine()
    options = {"key": "groupId", "maxKeys": 1, "maxBytes": 4, "overflow": overflow}
    engine.run(c.DeclareQueue("q", "lastvalue", options))
    keys = Attributes(key=Coded(["a", "b"], np.array([1, 2, 0, 0, 0])))
    placed = engine.run(c.Enqueue("q", 5, np.array([1, 1, 2, 5, 2]), attributes=keys))
    refused, dropped = ((1, 3, 4), 0) if overflow == "reject" else ((1, 3), 1)
    queue = engine.state.queues["q"]
    assert (placed.refused, queue.ended[Outcome.DROPPED], queue.bytes <= 4) == (refused, dropped, True)


def test_a_duplicate_of_a_message_that_was_refused_is_refused() -> None:
    """Q15 Q19: also in the same batch. An accepted duplicate would mean that the message is stored."""
    engine = Engine()
    engine.run(c.DeclareQueue("q", options={"maxMessages": 1, "overflow": "reject", "duplicateWindow": 9}))
    ids = Attributes(ids=np.array([b"one", b"two", b"one", b"two", b"two"], "S16"))
    placed = engine.run(c.Enqueue("q", 5, 1, attributes=ids))
    assert (placed.stored, placed.refused, placed.duplicates) == ((0,), (1, 3, 4), 1)


@pytest.mark.parametrize("limits", [{"maxBytes": 100}, {"maxBytes": 100, "maxMessages": 2}])
def test_a_message_that_is_too_large_keeps_out_no_other(limits: dict[str, int]) -> None:
    """Q15: other messages of the batch may come from other senders."""
    engine = Engine()
    engine.run(c.DeclareQueue("q", options={**limits, "overflow": "reject"}))
    assert engine.run(c.Enqueue("q", 4, np.array([1000, 1, 101, 99]))).refused == (0, 2)


@pytest.mark.parametrize("limit", [{"maxMessages": 5}, {"maxBytes": 5}])
def test_a_ring_drops_no_more_for_a_publish_than_for_what_is_sent(limit: dict[str, int]) -> None:
    """Q15: staged messages are not counted twice when they are published."""
    engine = Engine()
    engine.run(c.DeclareQueue("q", options={**limit, "overflow": "ring"}), c.Enqueue("q", 3, 1))
    engine.run(c.StageMessages("s", "q", 1, 1), c.StageMessages("t", "q", 2, 1), c.Publish(["s", "t"]))
    queue = engine.recovered().state.queues["q"]
    assert conserved(queue)
    assert (queue.ended[Outcome.DROPPED], queue.staged.messages, queue.staged.bytes) == (1, 0, 0)
