"""Waiting for another thread or process in tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

#: Seconds: the patience of a test, also on a busy machine; and between two looks.
LIMIT_S, LOOK_S = 30.0, 0.005

T = TypeVar("T")


def until(is_met: Callable[[], T], description: str | Callable[[], str], *, limit_s: float = LIMIT_S) -> T:
    """Return the first true value. `what` describes the condition in a failure, as a text or a function."""
    deadline = time.monotonic() + limit_s
    while not (value := is_met()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {limit_s:g} s: {description if isinstance(description, str) else description()}")
        time.sleep(LOOK_S)
    return value
