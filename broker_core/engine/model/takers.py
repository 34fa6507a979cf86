"""Names of takers, as people recognize them in the archive: the client's own name, then its owner in parentheses.

| taker | name | example |
|---|---|---|
| link | container id, and user | `orders-worker (alice)` |
| lease | name or id of the Spark query, and the lease's owner and chosen name | `nightly (alice:etl)` |
| command | user | `alice` |

A client chooses its container id and query name, so both parts have a limit.
"""

from __future__ import annotations

from ..columns.limits import MAX_TAKER_PART


def shortened(part: str) -> str:
    """Return a readable part of a name. Control characters become escapes."""
    text = part if part.isprintable() else ascii(part)[1:-1]
    return text if len(text) <= MAX_TAKER_PART else f"{text[: MAX_TAKER_PART - 1]}…"


def taker_name(own_name: str | None, owner: str | None) -> str | None:
    parts = [shortened(part) for part in (own_name, owner) if part]
    return f"{parts[0]} ({parts[1]})" if len(parts) > 1 else parts[0] if parts else None
