"""JSON without duplicate names: Python would use the last one, and a reader might see the first."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ..errors import InvalidRequest
from ..similar import suggestion


def loads(data: str | bytes) -> Any:
    """Raises ValueError, also for a duplicate name."""
    return json.loads(data, object_pairs_hook=_unique)


def tables(value: object) -> Sequence[object]:
    """Return tables of TOML, a program or JSON text. Raises ValueError for another value."""
    if isinstance(value, str):
        value = loads(value)
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise ValueError
    return value


def check_keys(where: str, table: Iterable[object], known: Collection[str]) -> None:
    """Raises InvalidRequest for an unknown key."""
    for name in table:
        if name not in known:
            meant = suggestion(str(name), known)
            raise InvalidRequest(f"{where}: {name!s:.80} is not a key{meant}; allowed are {', '.join(known)}")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has a duplicate name")
    return members
