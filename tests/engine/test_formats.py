"""The formats of the engine: how to introduce version 2 after a release, and how version 1 refuses it."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns import packing
from penstock.broker_core.engine.columns.blocks import Block
from penstock.broker_core.engine.events.codec import decode, encode
from penstock.broker_core.engine.events.event import KINDS, Event
from penstock.broker_core.engine.model import state as snapshots
from penstock.broker_core.engine.model.state import BrokerState, packed_columns

from .harness import Engine


def test_an_event_gets_a_field_with_a_default_and_version_1_refuses_the_field() -> None:
    @dataclass(frozen=True)
    class First(Event, kind="test.shaken"):
        queue: str

    @dataclass(frozen=True)
    class Second(Event, kind="test.shaken"):
        queue: str
        times: int | None = None

    try:
        assert KINDS["test.shaken"] is Second
        assert decode(encode(First("q"))) == Second("q")
        assert encode(Second("q")) == encode(First("q"))
        KINDS["test.shaken"] = First
        with pytest.raises(errors.DamagedJournal, match=r"'test\.shaken' with the field 'times'"):
            decode(encode(Second("q", 3)))
        del KINDS["test.shaken"]
        with pytest.raises(errors.DamagedJournal, match=r"an event 'test\.shaken'"):
            decode(encode(First("q")))
    finally:
        KINDS.pop("test.shaken", None)


def test_a_snapshot_and_a_packed_block_of_version_2_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q"), c.Enqueue("q", 3, 10))
    meta, blocks = engine.state.snapshot()
    packed = packed_columns(blocks)
    assert BrokerState.restore(json.dumps(meta).encode(), packed).queues["q"].live == 3
    with monkeypatch.context() as version_2:
        version_2.setattr(snapshots, "SNAPSHOT_VERSION", 2)
        version_2.setattr(packing, "VERSION", 2)
        later, later_blocks = engine.state.snapshot()
        later_packed = packed_columns(later_blocks)
    with pytest.raises(errors.DamagedJournal, match="a snapshot of format 2"):
        BrokerState.restore(json.dumps(later).encode(), packed)
    with pytest.raises(errors.DamagedJournal, match="columns of format 2"):
        BrokerState.restore(json.dumps(meta).encode(), later_packed)
    assert Block.restored(packing.unpack(packed[0])).filled == 3
