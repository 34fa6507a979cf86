"""RabbitMQ's users and permissions.

RabbitMQ's hash is a SHA-256 of password and salt. SCRAM needs a key that is derived from the password, so the hash cannot become
a user of Penstock.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from ...security.rights import Right
from ...security.users import User
from .own import add_user, permit
from .regular_expressions import patterns_of
from .steps import ImportStep

#: By permission. RabbitMQ purges and gets messages with *read*.
_RIGHTS = {"configure": (Right.ADMIN,), "write": (Right.SEND,), "read": (Right.RECEIVE, Right.BROWSE)}


def steps(
    users: Sequence[dict[str, Any]], permissions: Sequence[dict[str, Any]], topics: Sequence[dict[str, Any]]
) -> Iterator[ImportStep]:
    for user in users:
        yield _user(user)
    for permission in permissions:
        yield from _permissions(permission)
    for topic in topics:
        subject = f"topic permission of {topic['user']} on {topic['exchange']}"
        yield ImportStep(subject, ["rights do not depend on routing keys"])


def _user(user: dict[str, Any]) -> ImportStep:
    name, tags = user["name"], user.get("tags", "")
    tags = tags.split(",") if isinstance(tags, str) else tags if isinstance(tags, list) else []
    notes = [_tag(name, str(tag)) for tag in tags if tag]
    if user.get("password_hash") == "" and "password" not in user:
        return add_user(name, User(None, (name,)), (f"without a password, for the certificate {name}", *notes))
    reason = f"a hash of RabbitMQ cannot be used; `penstock user add {shlex.quote(name)}` adds the user, before another import"
    return ImportStep(f"user {name}", [reason, *notes])


def _tag(name: str, tag: str) -> str:
    if tag == "administrator":
        return f"tag administrator: `penstock permit {shlex.quote(name)} '*' all` makes an administrator"
    return f"tag {tag} has no counterpart"


def _permissions(permission: dict[str, Any]) -> Iterator[ImportStep]:
    user, rights = permission["user"], dict[str, frozenset[Right]]()
    for kind, granted in _RIGHTS.items():
        patterns = patterns_of(permission[kind])
        if patterns is None:
            remedy = f"`penstock permit {shlex.quote(user)} PATTERN {_text(granted)}`"
            yield ImportStep(
                f"permission of {user}: {kind} on {permission[kind]:.200}", [f"no pattern with '*' is equal; use {remedy}"]
            )
        for pattern in patterns or ():
            rights[pattern] = rights.get(pattern, frozenset()) | frozenset(granted)
    for pattern, held in rights.items():
        yield permit(user, pattern, held)


def _text(rights: Sequence[Right]) -> str:
    return ",".join(right.value for right in rights)
