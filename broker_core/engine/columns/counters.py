"""Counts by key, without keys whose count is 0."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TypeVar

K = TypeVar("K")


def add_to(counts: MutableMapping[K, int], key: K, change: int) -> None:
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]
