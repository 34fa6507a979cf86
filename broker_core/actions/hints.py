"""Hints in answers: names in a selector that may be meant as fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..selectors import Presence


def compared_hints(presence: Presence | None) -> list[str]:
    """Return the hints of a finished comparison; none if it had no messages to compare."""
    return presence.hints() if presence is not None and presence.compared else []


def with_hints(answer: dict[str, Any], hints: Sequence[str]) -> dict[str, Any]:
    return {**answer, "hints": list(hints)} if hints else answer
