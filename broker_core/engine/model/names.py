"""Names that a queue, an exchange, a lease or a stage may have."""

from __future__ import annotations

from ... import notations
from ...errors import InvalidRequest
from ..columns.limits import MAX_NAME

NODE_NAME = f"which has 1 to {MAX_NAME} printable characters without '/'"  # in errors, behind what it should be the name of


def is_name(name: object) -> bool:
    """Say whether people can tell a name apart: no controls, no marks that turn the direction of text (U+202E), nothing
    invisible. The names of users and permissions hold to the same rule."""
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()


def is_node_name(name: object) -> bool:
    """Of a queue or an exchange: what an address can say."""
    return is_name(name) and "/" not in str(name)


def check_name(what: str, name: str) -> None:
    """Raise InvalidRequest for a name that is empty, too long or not printable; `what` says whose it is."""
    if not is_name(name):
        raise InvalidRequest(f"{what}: a name has 1 to {MAX_NAME} printable characters, not {name!r:.80}")


def check_node_name(what: str, name: str) -> None:
    """Raise InvalidRequest for a name that no queue or exchange can have."""
    check_name(what, name)
    if not is_node_name(name):
        advice = notations.advice(name)
        remedy = "" if advice is None else f"; {advice}"
        raise InvalidRequest(f"{what} {name!r}: '/' separates an exchange from its routing key and cannot be in a name{remedy}")


def check_new_name(what: str, name: str) -> None:
    """Raise InvalidRequest for a name that no new queue or exchange can have; those of an older version may."""
    if "*" in name:
        raise InvalidRequest(f"{what} {name!r}: '*' stands for any text in permissions and policies and cannot be in a name")
