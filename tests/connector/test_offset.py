"""Offsets are text to Spark: the bytes matter."""

from __future__ import annotations

import json

import pytest

from penstock.broker_core.errors import WrongOffset
from penstock.connector.offset import INITIAL, Offset, Offsets, parse


def test_the_text_is_fixed() -> None:
    assert json.dumps(INITIAL.to_json()) == '{"v": 1, "batch": 0}'
    offset = Offset("b1", "q-1", "r1", 7)
    assert json.dumps(offset.to_json()) == '{"v": 1, "broker": "b1", "lease": "q-1", "run": "r1", "batch": 7}'
    signed = json.dumps(offset.at(7, "ab").to_json())
    assert signed == '{"v": 3, "broker": "b1", "lease": "q-1", "run": "r1", "batch": 7, "sign": "ab"}'
    named = json.dumps(offset.at(7, "ab")._replace(queue="a").to_json())
    assert named.endswith('"run": "r1", "queue": "a", "batch": 7, "sign": "ab"}')
    several = Offsets("b1", "me", "r1", 2, (("a", 3), ("b", 0)))
    assert json.dumps(several.to_json()).endswith('"turn": 2, "batches": {"a": 3, "b": 0}}')
    several = several.with_each({"a": several.of("a").at(4, "ef")})
    assert json.dumps(several.to_json()).endswith('"turn": 2, "batches": {"a": 4, "b": 0}, "signs": {"a": "ef"}}')
    grown = json.dumps(several._replace(first_queue="a").to_json())
    assert grown.endswith('"signs": {"a": "ef"}, "firstQueue": "a"}')


@pytest.mark.parametrize(
    "offset",
    [
        INITIAL,
        Offset("b", "l", "r", 0),
        Offset("b", "l", "r", 2**40),
        Offset("b", "l", "r", 7, "ab"),
        Offset("b", "l", "r", 7, "ab", "a"),
        Offset("b", "l", "r", 7, None, "a"),
        Offsets("b", "l", "r", 1, (("a", 3),)),
        Offsets("b", "l", "r", 1, (("a", 3), ("b", 0)), (("a", "ab"),)),
        Offsets("b", "l", "r", 1, (("a", 3), ("b", 0)), (("a", "ab"),), "a"),
        Offsets("b", "l", "r", 1, (("a", 3), ("b", 0)), (), "b"),
    ],
)
def test_what_is_written_is_read(offset: Offset | Offsets) -> None:
    assert parse(json.loads(json.dumps(offset.to_json()))) == offset


def test_the_order_of_keys_read_back_does_not_matter_but_the_one_written_is_always_the_same() -> None:
    read = parse({"batch": 3, "run": "r", "lease": "l", "v": 1, "broker": "b"})
    assert list(read.to_json()) == ["v", "broker", "lease", "run", "batch"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"topic": {"0": 5}}, "checkpoint of another source"),
        (7, "checkpoint of another source"),
        ({"v": 99, "batch": 0}, "version 99"),
        ({"v": 5, "spool": "s", "batch": 1}, "that was no Penstock"),
        ({"v": 1}, "no batch number"),
        ({"v": 1, "batch": -1}, "no batch number"),
        ({"v": 1, "batch": True}, "no batch number"),
        ({"v": 1, "batch": 3}, "exactly the fields"),
        ({"v": 1, "broker": "b", "lease": "", "run": "r", "batch": 1}, "exactly the fields"),
        ({"v": 1, "broker": "b", "lease": "l", "run": "r", "batch": 1, "epoch": 2}, "exactly the fields"),
        ({"v": 1, "broker": "b", "lease": "l", "run": "r", "batch": 1, "sign": "s"}, "exactly the fields"),
        ({"v": 3, "broker": "b", "lease": "l", "run": "r", "batch": 1}, "exactly the fields"),
        ({"v": 3, "broker": "b", "lease": "l", "run": "r", "batch": 1, "sign": 7}, "a sign that is none"),
        ({"v": 1, "broker": "b", "lease": "l", "run": "r", "batch": 1, "queue": 7}, "exactly the fields"),
        (
            {"v": 2, "broker": "b", "lease": "l", "run": "r", "turn": 1, "batches": {"a": 1}, "firstQueue": ""},
            "exactly the fields",
        ),
        ({"v": 3, "broker": "b", "lease": "l", "run": "r", "turn": 1, "batches": {"a": 1}}, "exactly the fields"),
        ({"v": 3, "broker": "b", "lease": "l", "run": "r", "turn": 1, "batches": {"a": 1}, "signs": {"b": "x"}}, "other queues"),
    ],
)
def test_anything_else_is_refused_with_its_reason(data: object, says: str) -> None:
    with pytest.raises(WrongOffset, match=says):
        parse(data)  # type: ignore[arg-type]
