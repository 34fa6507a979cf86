"""JSON in which a name stands once in an object: Python takes the last of two, where a person may have read the first."""

from __future__ import annotations

import json
from typing import Any


def loads(data: str | bytes) -> Any:
    """As `json.loads`; ValueError for a name that stands twice in one object, too."""
    return json.loads(data, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in one object")
    return found
