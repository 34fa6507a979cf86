"""Names of queues, exchanges, leases and stages, and of takers.

| taker | name in the archive and in lists | example |
|---|---|---|
| link | container id, and user | `orders-worker (alice)` |
| lease | name or id of the Spark query, and the lease's owner and chosen name | `nightly (alice:etl)` |
| command | user | `alice` |

Clients choose container ids and query names, so each part has a limit.
"""

from __future__ import annotations

from ... import notations
from ...errors import InvalidRequest
from ..columns.limits import MAX_NAME, MAX_TAKER_PART

NODE_NAME = f"which has 1 to {MAX_NAME} printable characters without '/'"  # in errors

EVENTS = "$events"  # queue of the broker's event messages


def is_name(name: object) -> bool:
    """A name has no control characters, no marks of text direction (U+202E), nothing invisible. The rule also holds for users
    and permissions."""
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()


def is_node_name(name: object) -> bool:
    return is_name(name) and "/" not in str(name)


def check_name(subject: str, name: str) -> None:
    if not is_name(name):
        raise InvalidRequest(f"{subject}: a name has 1 to {MAX_NAME} printable characters, not {name!r:.80}")


def check_node_name(subject: str, name: str) -> None:
    check_name(subject, name)
    if not is_node_name(name):
        advice = notations.advice(name)
        remedy = "" if advice is None else f"; {advice}"
        raise InvalidRequest(
            f"{subject} {name!r}: '/' separates an exchange from its routing key and cannot be in a name{remedy}"
        )
    if "*" in name:
        raise InvalidRequest(f"{subject} {name!r}: '*' stands for any text in permissions and policies and cannot be in a name")


def shortened(part: str) -> str:
    """Control characters become escapes."""
    text = part if part.isprintable() else ascii(part)[1:-1]
    return text if len(text) <= MAX_TAKER_PART else f"{text[: MAX_TAKER_PART - 1]}…"


def taker_name(own_name: str | None, owner: str | None) -> str | None:
    parts = [shortened(part) for part in (own_name, owner) if part]
    return f"{parts[0]} ({parts[1]})" if len(parts) > 1 else parts[0] if parts else None
