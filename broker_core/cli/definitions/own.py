"""Penstock's definitions: queues, exchanges and bindings; on request users and permissions as in the users file."""

from __future__ import annotations

import base64
import json
from typing import Any

from ... import errors
from ...security import users as u
from ...security.rights import Right
from ...security.users import User, Users
from .steps import ImportStep, bind, declare_exchange, declare_queue

VERSION = 1


def document(queues: list[dict[str, Any]], exchanges: list[dict[str, Any]], users: Users | None) -> dict[str, Any]:
    definitions = {
        "version": VERSION,
        "queues": [_picked(queue, "queue", "type", "options") for queue in queues],
        "exchanges": [_picked(exchange, "exchange", "type", "options", "bindings") for exchange in exchanges],
    }
    if users is not None:
        definitions |= _picked(json.loads(u.render(users)), "users", "permissions")
    return definitions


def _picked(node: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: node[name] for name in names}


def steps(definitions: dict[str, Any]) -> list[ImportStep]:
    """Nodes precede their bindings. Raises InvalidRequest, KeyError, TypeError or AttributeError."""
    if definitions["version"] != VERSION:
        raise errors.InvalidRequest(f"the version is {definitions['version']!r:.80}; this Penstock reads version {VERSION}")
    queues, exchanges = definitions["queues"], definitions["exchanges"]
    return [
        *(declare_queue(queue["queue"], queue["type"], queue["options"]) for queue in queues),
        *(declare_exchange(node["exchange"], node["type"], node["options"]) for node in exchanges),
        *(_bind(node["exchange"], binding) for node in exchanges for binding in node["bindings"]),
        *_users(definitions.get("users", {}), definitions.get("permissions", {})),
    ]


def _bind(exchange: str, binding: dict[str, Any]) -> ImportStep:
    return bind(exchange, binding["queue"], **{name: value for name, value in binding.items() if name != "queue"})


def _users(users: Any, permissions: Any) -> list[ImportStep]:
    secret = base64.b64encode(bytes(u.SECRET_BYTES)).decode()  # required, and not used
    known = {**dict.fromkeys(permissions, _NO_LOGIN), **users}
    known.pop(u.ANONYMOUS, None)
    fields = {"version": u.VERSION, "secret": secret, "users": known, "permissions": permissions}
    parsed = u.parse(json.dumps(fields).encode())
    return [
        *(add_user(name, parsed.users[name]) for name in users),
        *(permit(name, queue, rights) for name, held in parsed.permissions.items() for queue, rights in held.items()),
    ]


#: A user with a permission, but not in the file.
_NO_LOGIN: dict[str, Any] = {"scram-sha-256": None, "certificates": []}


def add_user(name: str, user: User, notes: tuple[str, ...] = ()) -> ImportStep:
    def edit(users: Users) -> Users:
        if name in users.users and users.users[name] != user:
            raise errors.AlreadyExists(
                f"user {name!r} exists with another password or certificate; `penstock user add {name} --replace` changes it"
            )
        return users.add(name, user)

    return ImportStep(f"user {name}", notes, edit=edit)


def permit(name: str, queue: str, rights: frozenset[Right]) -> ImportStep:
    text = ", ".join(right.value for right in Right if right in rights)
    return ImportStep(f"permission of {name} on {queue}: {text}", edit=lambda users: users.permit(name, queue, rights))
