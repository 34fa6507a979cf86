"""Offsets are text to Spark: the bytes matter."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker_core.errors import WrongOffset
from penstock.connector import offset as offsets
from penstock.connector.offset import (
    INITIAL,
    BrokersOffset,
    LeaseBatch,
    QueuesOffset,
    ReplayOffset,
    SpoolOffset,
    parse_brokers,
    parse_queues,
    parse_replay,
    parse_spool,
)

A, B = LeaseBatch(3, "ab"), LeaseBatch(5, "cd")
QUEUES = {
    "v": 1,
    "kind": "queues",
    "broker": "b",
    "lease": "l",
    "run": "r",
    "rotation": 1,
    "batches": {"a": 1},
    "signs": {"a": "x"},
}


def test_the_text_is_fixed() -> None:
    assert json.dumps(INITIAL) == '{"v": 1, "kind": "initial"}'
    names = '{"v": 1, "kind": "queues", "broker": "b1", "lease": "me", "run": "r1", "rotation": 2, '
    several = QueuesOffset("b1", "me", "r1", 2, {"b": B, "a": A})
    assert json.dumps(several.to_json()) == names + '"batches": {"a": 3, "b": 5}, "signs": {"a": "ab", "b": "cd"}}'
    offset = QueuesOffset("b1", "me", "r1", 2, {"a": A}, "a")
    assert json.dumps(offset.to_json()) == names + '"batches": {"a": 3}, "signs": {"a": "ab"}, "firstQueue": "a"}'
    spool = SpoolOffset("s", 3, ((2, "f0"), (3, "f1")))
    assert json.dumps(spool.to_json()).endswith('"spool": "s", "batch": 3, "manifests": {"2": "f0", "3": "f1"}}')
    brokers = BrokersOffset(1, ("y", "x"), {"y": INITIAL, "x": INITIAL})
    assert list(brokers.to_json()["brokers"]) == brokers.to_json()["held"] == ["x", "y"]


def test_each_batch_moves_the_rotation_and_keeps_other_queues() -> None:
    start = QueuesOffset("b", "l", "r", 1, {"a": A}, "a")
    end = start.following({"b": B})
    assert (end.rotation, end.batches, end.of("c")) == (2, {"a": A, "b": B}, LeaseBatch(0, None))
    assert (end.lease_of("a"), end.lease_of("b")) == ("l", "l/b")


@pytest.mark.parametrize(
    ("offset", "parse"),
    [
        (QueuesOffset("b", "l", "r", 2**40, {"a": A}), parse_queues),
        (QueuesOffset("b", "l", "r", 1, {"a": A, "b": B}, "a"), parse_queues),
        (QueuesOffset("b", "l", "r", 1, {"a": A, "b": LeaseBatch(2, None)}, "b"), parse_queues),
        (SpoolOffset("s", 3, ((2, "f0"), (3, "f1"))), parse_spool),
        (SpoolOffset("s", 3), parse_spool),
        (BrokersOffset(1, ("x",), {"x": QUEUES}), parse_brokers),
        (ReplayOffset("b", 1, 2, 3, (("first", 7),), 4, 5, 6, ("2026-01-01", None)), parse_replay),
        (ReplayOffset("b", 1, 2, 3, (("first", 7),), 4, times=(None, -5)), parse_replay),
    ],
)
def test_what_is_written_is_read(offset: Any, parse: Callable[[Any], Any]) -> None:
    assert parse(json.loads(json.dumps(offset.to_json()))) == offset


def test_an_offset_over_one_broker_is_one_over_several() -> None:
    assert parse_brokers(QUEUES) == BrokersOffset(0, ("b",), {"b": QUEUES})
    spool = SpoolOffset("s", 3).to_json()
    assert parse_brokers(spool) == BrokersOffset(0, ("s",), {"s": spool})
    with pytest.raises(WrongOffset, match="with mode=replay, and this is a query over several brokers"):
        parse_brokers(ReplayOffset("b", 1, 2, 3, (("first", 7),), 4).to_json())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"topic": {"0": 5}}, "checkpoint of another source"),
        (7, "checkpoint of another source"),
        ({"v": 3, "broker": "b", "lease": "l", "run": "r", "batch": 1, "sign": "x"}, "before 0.1.0.*start the query with a new"),
        ({"v": 99, "kind": "queues"}, "version 99: use a newer connector"),
        ({"v": 1, "kind": "topics"}, "kind 'topics'.*use a newer connector"),
        ({"v": 1, "kind": "spool", "spool": "s", "batch": 1, "manifests": {}}, "on another broker than Penstock"),
        ({"v": 1, "kind": "brokers"}, "over several brokers, and this is a query on Penstock"),
        ({"v": 1, "kind": "replay"}, "with mode=replay"),
        ({**QUEUES, "epoch": 2}, "exactly the fields"),
        ({**QUEUES, "lease": ""}, "invalid name"),
        ({**QUEUES, "firstQueue": 7}, "invalid name"),
        ({**QUEUES, "batches": {"a": -1}}, "no batch number"),
        ({**QUEUES, "batches": {"a": True}}, "no batch number"),
        ({**QUEUES, "batches": {}}, "no batch number"),
        ({**QUEUES, "signs": {"a": 7}}, "invalid signs"),
        ({**QUEUES, "signs": {"b": "x"}}, "other queues"),
    ],
)
def test_anything_else_is_refused_with_its_reason(data: Any, says: str) -> None:
    with pytest.raises(WrongOffset, match=says):
        parse_queues(data)


def test_a_second_version_reads_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe of the module."""
    monkeypatch.setitem(offsets.VERSIONS, "queues", 2)
    monkeypatch.setitem(offsets.UPGRADES, ("queues", 1), lambda fields: {**fields, "rotation": fields["rotation"] + 1})
    read = parse_queues(QUEUES)
    assert read is not None
    assert read.rotation == 2
    assert read.to_json()["v"] == 2
    assert parse_queues(read.to_json()) == read, "version 2 itself is not upgraded"
    assert parse_queues(INITIAL) is None
