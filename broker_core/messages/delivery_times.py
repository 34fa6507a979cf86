"""Annotations with the time of delivery.

A time in the past, and a delay of 0 or less, mean immediate delivery: clocks differ, and a deadline may have passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from ..amqp.decoder import decode
from ..amqp.messages import scan
from ..amqp.types import Timestamp
from ..errors import InvalidRequest
from ..quantities import MAX_MILLISECONDS
from .annotations import DELIVERY_DELAY, DELIVERY_TIME, RETRY_DELAY

PREFIX = b"x-opt-delivery-"  # an encoded section without this text has neither annotation
_TEN_YEARS = f"{MAX_MILLISECONDS - 1:,} ms (ten years)"


def read(section: bytes) -> Mapping[Any, Any]:
    (section_at,) = scan(section)
    notes, _ = decode(section, section_at.value, section_at.end)
    return notes if isinstance(notes, dict) else {}


def due(notes: Mapping[Any, Any], now: int) -> int:
    """Return milliseconds since 1970; 0 for immediate delivery. Ignores invalid annotations."""
    time, delay = notes.get(DELIVERY_TIME), notes.get(DELIVERY_DELAY)
    if _is_number(time):
        return max(0, int(time))
    return now + max(0, int(delay)) if _is_number(delay) else 0


def check(notes: Mapping[Any, Any], now: int | None) -> None:
    """Check a message's or outcome's annotations. `now`: milliseconds since 1970; None sets no limit to a time. Raises
    InvalidRequest.
    """
    time = notes.get(DELIVERY_TIME)
    if time is not None:
        if not _is_number(time):
            raise InvalidRequest(f"{_shown(DELIVERY_TIME, time)}: send milliseconds since 1970, as a long or a timestamp")
        if now is not None and time - now >= MAX_MILLISECONDS:
            text = f"at most {_TEN_YEARS} from now are allowed; send milliseconds since 1970"
            raise InvalidRequest(f"{_shown(DELIVERY_TIME, time)}: {text}")
    for name in (DELIVERY_DELAY, RETRY_DELAY):
        delay = notes.get(name)
        if delay is None:
            continue
        if not _is_number(delay) or isinstance(delay, Timestamp):
            raise InvalidRequest(f"{_shown(name, delay)}: send milliseconds, as a long")
        if delay >= MAX_MILLISECONDS:
            raise InvalidRequest(f"{_shown(name, delay)}: at most {_TEN_YEARS} are allowed")


def _is_number(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(name: str, value: Any) -> str:
    kind = type(value).__name__
    return f"the annotation {name} is {value!r:.40}, of type {_NAMES.get(kind, kind.lower())}"


_NAMES = {"bool": "boolean", "str": "string", "bytes": "binary", "float": "double", "int": "long", "dict": "map", "Pairs": "map"}
