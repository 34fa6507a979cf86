"""Delivery times that are refused, with the reason and the remedy."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.types import Byte, Int, Symbol, Timestamp, UInt, ULong
from penstock.broker_core.engine.model.options import Rules
from penstock.broker_core.errors import InvalidColumn
from penstock.broker_core.messages import batch_checks
from penstock.broker_core.messages.columns import TIMESTAMP
from penstock.broker_core.messages.encoding.arriving import arrived
from penstock.broker_core.quantities import MAX_MILLISECONDS

NOW = 1_800_000_000_000
LONGEST = MAX_MILLISECONDS - 1
TIME, DELAY = "x-opt-delivery-time", "x-opt-delivery-delay"
TAKEN: list[tuple[str, Any]] = [
    (TIME, Timestamp(NOW + 1)),
    (TIME, NOW + LONGEST),
    (TIME, Timestamp(0)),
    (TIME, -(1 << 63)),
    (TIME, None),
    (DELAY, UInt(5)),
    (DELAY, ULong(LONGEST)),
    (DELAY, Byte(-1)),
    (DELAY, Int(0)),
    (DELAY, None),
    ("x-opt-delivery-mode", "an unrelated name"),
]
REFUSED: list[tuple[str, Any, str]] = [
    (TIME, "soon", "'soon', of type string: send milliseconds since 1970"),
    (TIME, True, "True, of type boolean"),
    (TIME, 1.5e12, "of type double"),
    (TIME, b"\x00", "of type binary"),
    (TIME, Symbol("soon"), "of type symbol"),
    (TIME, [NOW], "of type list"),
    (TIME, {"a": 1}, "of type map"),
    (TIME, NOW + MAX_MILLISECONDS, "ten years"),
    (TIME, NOW * 1000, "send milliseconds since 1970"),
    (TIME, Timestamp((1 << 63) - 1), "ten years"),
    (TIME, ULong((1 << 64) - 1), "ten years"),
    (DELAY, "5000", "'5000', of type string: send milliseconds, as a long"),
    (DELAY, 5.0, "of type double"),
    (DELAY, False, "of type boolean"),
    (DELAY, Timestamp(5000), "of type timestamp"),
    (DELAY, MAX_MILLISECONDS, "at most 316,223,999,999 ms (ten years) are allowed"),
    (DELAY, ULong((1 << 64) - 1), "ten years"),
]


def message(name: str, value: Any) -> bytes:
    return Message(data=[b"x"], message_annotations={Symbol(name): value}).encode()


@pytest.mark.parametrize(("name", "value"), TAKEN)
def test_it_is_taken(name: str, value: Any) -> None:
    assert arrived([message(name, value)], NOW).refused == []


@pytest.mark.parametrize(("name", "value", "text"), REFUSED)
def test_it_is_refused_with_the_remedy(name: str, value: Any, text: str) -> None:
    good = message(DELAY, UInt(5))
    arrivals = arrived([good, message(name, value), good], NOW)
    [(number, error)] = arrivals.refused
    assert number == 1
    assert f"the annotation {name} is " in str(error)
    assert text in str(error)
    assert arrivals.rows == 2


def test_the_column_of_spark_has_the_same_limit() -> None:
    def batch(*times: int | None) -> pa.RecordBatch:
        return pa.record_batch({"body": pa.array([b"x"] * len(times)), "deliveryTime": pa.array(times, TIMESTAMP)})

    latest = (NOW + LONGEST) * 1000
    for taken in (latest, NOW, -(1 << 62), None):
        assert batch_checks.validate(batch(taken), now=NOW).num_rows == 1
    assert batch_checks.validate(batch(), now=NOW).num_rows == 0
    for refused in (latest + 1000, (1 << 63) - 1):
        with pytest.raises(InvalidColumn, match="'deliveryTime' is more than ten years from now in row 2: write an earlier time"):
            batch_checks.validate(batch(None, NOW, refused), now=NOW)


def test_one_limit_holds_for_delays_and_the_options_of_queues() -> None:
    option = next(field for field in Rules.__dataclass_fields__.values() if field.name == "retry_delay")
    assert option.metadata["option"].allowed == range(MAX_MILLISECONDS)
