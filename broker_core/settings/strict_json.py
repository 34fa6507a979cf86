"""JSON without duplicate names in an object. Python would use the last one, and a reader might see the first."""

from __future__ import annotations

import json
from typing import Any


def loads(data: str | bytes) -> Any:
    """Parse JSON. Raises ValueError, also for a duplicate name in an object."""
    return json.loads(data, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has a duplicate name")
    return members
