"""Fields of the body of a request. Each function raises Refusal for a value of another form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...amqp import Condition
from ...amqp.types import Array
from ..conditions import Refusal

_MAX_NUMBER = (1 << 63) - 1


def number(body: Mapping[str, Any], name: str) -> int:
    value = signed(body, name)
    if value < 0:
        raise Refusal(Condition.INVALID_FIELD, f"{name!r} is a number of 0 or more, not {value!r:.80}")
    return value


def signed(body: Mapping[str, Any], name: str) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refusal(Condition.INVALID_FIELD, f"{name!r} is a number, not {value!r:.80}")
    return value


def text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise Refusal(Condition.INVALID_FIELD, f"{name!r} is a text, not {value!r:.80}")
    return value


def several(body: Mapping[str, Any], name: str, kind: type, most: int) -> Sequence[Any]:
    """Return the values of an array or list, which has one value at least."""
    value = body.get(name)
    items = value.items if isinstance(value, Array) else value
    if not isinstance(items, (list, tuple)) or not 0 < len(items) <= most or not all(isinstance(item, kind) for item in items):
        raise Refusal(Condition.INVALID_FIELD, f"{name!r} is a list of 1 to {most:,} values")
    return items


def sequence_numbers(body: Mapping[str, Any], most: int) -> Sequence[int]:
    numbers = several(body, "sequence-numbers", int, most)
    if not all(-_MAX_NUMBER <= value <= _MAX_NUMBER for value in numbers):
        raise Refusal(Condition.INVALID_FIELD, "a sequence number is below 2^63")
    return numbers
