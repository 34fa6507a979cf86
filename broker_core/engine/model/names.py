"""Names of queues, exchanges, leases and stages."""

from __future__ import annotations

from ... import notations
from ...errors import InvalidRequest
from ..columns.limits import MAX_NAME

NODE_NAME = f"which has 1 to {MAX_NAME} printable characters without '/'"  # in errors, after the thing that has the name


def is_name(name: object) -> bool:
    """A name is readable: no control characters, no marks of text direction (U+202E), nothing invisible. Names of users and
    permissions follow the same rule."""
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()


def is_node_name(name: object) -> bool:
    return is_name(name) and "/" not in str(name)


def check_name(subject: str, name: str) -> None:
    """`subject` is the thing with this name."""
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
