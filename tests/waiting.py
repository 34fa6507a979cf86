"""Waiting in tests for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

#: Seconds: the patience of a test, also on a busy machine; and between two looks.
LIMIT_S, LOOK_S = 30.0, 0.005

T = TypeVar("T")


def until(found: Callable[[], T], what: str | Callable[[], str], *, limit_s: float = LIMIT_S) -> T:
    """Return what is found, as soon as it is something. `what` says in a failure what was waited for: a text, or who knows it."""
    deadline = time.monotonic() + limit_s
    while not (value := found()):
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {limit_s:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(LOOK_S)
    return value
