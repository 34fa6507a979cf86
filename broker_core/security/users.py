"""Users and permissions as an immutable value, and its JSON.

    {"version": 1,
     "secret": base64,                      from which an unknown user gets a salt
     "users": {name: {"scram-sha-256": {"salt": base64, "iterations": n, "storedKey": base64, "serverKey": base64} | null,
                      "certificates": [name of a certificate]}},
     "permissions": {name: {queue or pattern: [right]}}}

SCRAM's stored key verifies a password and does not reveal it. To change the format, raise `VERSION` and keep reading older
versions in `parse`.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .. import errors
from ..amqp import scram
from ..amqp.scram import ScramCredentials, ScramError
from ..settings import strict_json
from .rights import Right, names_of

VERSION = 1
ANONYMOUS = "anonymous"  # the name for permissions of clients without a user name

DEFAULT_ITERATIONS = 50_000
"""Iterations of PBKDF2 for new passwords: about 20 ms of one core for each guess with a stolen users file.

RFC 7677 requires 4,096 and recommended 15,000 in 2015. A SCRAM client pays this cost at each login, also in a small container.
The 600,000 recommended for web forms would add a quarter of a second to each connection. The broker pays only for PLAIN and
Basic, once per password (`passwords.py`)."""
SALT_BYTES = SECRET_BYTES = 16
MAX_PASSWORD = 1024  # characters
MAX_NAME = 255  # as the engine's limit, which a test compares: its module imports numpy


@dataclass(frozen=True)
class User:
    """A user with certificates only has no `credentials`."""

    credentials: ScramCredentials | None = None
    certificates: tuple[str, ...] = ()


Permissions = Mapping[str, Mapping[str, frozenset[Right]]]  # user → queue or pattern → rights


@dataclass(frozen=True)
class Users:
    """Content of the users file. Each edit returns a new value."""

    secret: bytes = field(repr=False)
    users: Mapping[str, User] = field(default_factory=dict)
    permissions: Permissions = field(default_factory=dict)

    def add(self, name: str, user: User) -> Users:
        """Add or replace a user, without its permissions. Raises InvalidRequest if another user has the certificate."""
        check_user_name(name)
        if user.credentials is None and not user.certificates:
            raise errors.InvalidRequest(
                f"user {name!r} has neither a password nor a certificate, so no client could log in as this user"
            )
        for certificate in user.certificates:
            check_text("the name of a certificate", certificate)
        _check_certificates({**self.users, name: user})
        return replace(self, users={**self.users, name: user})

    def remove(self, name: str) -> Users:
        self.need(name)
        users = {key: user for key, user in self.users.items() if key != name}
        return replace(self, users=users, permissions={n: p for n, p in self.permissions.items() if n != name})

    def need(self, name: str) -> User:
        if name not in self.users:
            raise errors.UserNotFound(f"there is no user {name!r}: add it with `penstock user add {name}`")
        return self.users[name]

    def permit(self, name: str, queue: str, rights: Iterable[Right]) -> Users:
        if name != ANONYMOUS:
            self.need(name)
        check_text("a queue or pattern", queue)
        held = self.permissions.get(name, {}).get(queue, frozenset())
        return self._with_rights(name, queue, held | frozenset(rights))

    def revoke(self, name: str, queue: str, rights: Iterable[Right]) -> Users:
        """Raises NotFound if exactly this queue or pattern has none of these rights."""
        held = self.permissions.get(name, {}).get(queue, frozenset())
        remaining = held - frozenset(rights)
        if remaining == held:
            raise errors.NotFound(f"{name!r} has no such right on {queue!r}: see `penstock permit --list`")
        return self._with_rights(name, queue, remaining)

    def _with_rights(self, name: str, queue: str, rights: frozenset[Right]) -> Users:
        queues = {**self.permissions.get(name, {}), queue: rights}
        queues = {pattern: held for pattern, held in queues.items() if held}
        permissions = {**self.permissions, name: queues}
        return replace(self, permissions={user: held for user, held in permissions.items() if held})


def credentials_of(password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS) -> ScramCredentials:
    """Raises InvalidRequest for an unusable password."""
    if not 1 <= len(password) <= MAX_PASSWORD:
        raise errors.InvalidRequest(f"a password has 1 to {MAX_PASSWORD} characters, this one {len(password)}")
    try:
        return scram.make_credentials(password, salt, iterations)
    except ScramError as error:
        raise errors.InvalidRequest(f"this cannot be a password (RFC 4013): {error}") from None


def check_user_name(name: str) -> None:
    """Raise InvalidRequest for a name that a login mechanism cannot transmit."""
    check_text("a user's name", name)
    if ":" in name:
        raise errors.InvalidRequest(f"a user's name cannot be {name!r}: HTTP's Basic cannot carry a colon")
    if name == ANONYMOUS:
        raise errors.InvalidRequest(f"{ANONYMOUS!r} stands for clients without a user name: give it permissions, do not add it")
    try:
        prepared = scram.saslprep(name)
    except ScramError as error:
        raise errors.InvalidRequest(f"a user's name cannot be {name!r} (RFC 4013): {error}") from None
    if prepared != name:
        raise errors.InvalidRequest(f"a user's name cannot be {name!r}: clients send it as {prepared!r} (RFC 4013), so use that")


def check_text(subject: str, text: str) -> None:
    if not 1 <= len(text) <= MAX_NAME or not text.isprintable():
        raise errors.InvalidRequest(f"{subject} has 1 to {MAX_NAME} printable characters, not {text!r:.80}")


def _check_certificates(users: Mapping[str, User]) -> None:
    owner: dict[str, str] = {}
    for name, user in users.items():
        for certificate in user.certificates:
            if owner.setdefault(certificate, name) != name:
                raise errors.InvalidRequest(
                    f"the certificate {certificate!r} belongs to {owner[certificate]!r} and {name!r}; only one user can have it"
                )


def render(users: Users) -> bytes:
    def to_json(user: User) -> dict[str, Any]:
        credentials, keys = user.credentials, None
        if credentials is not None:
            keys = {
                "salt": _text(credentials.salt),
                "iterations": credentials.iterations,
                "storedKey": _text(credentials.stored_key),
                "serverKey": _text(credentials.server_key),
            }
        return {"scram-sha-256": keys, "certificates": list(user.certificates)}

    document = {
        "version": VERSION,
        "secret": _text(users.secret),
        "users": {name: to_json(users.users[name]) for name in sorted(users.users)},
        "permissions": {
            name: {queue: names_of(held[queue]) for queue in sorted(held)} for name, held in sorted(users.permissions.items())
        },
    }
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def parse(data: bytes) -> Users:
    """Raise InvalidRequest for any invalid part, because an unknown field could be a restriction."""
    try:
        document = strict_json.loads(data)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidRequest(f"it is not JSON: {error}") from None
    _object("the document", document, None)
    if document.get("version") != VERSION:
        raise errors.InvalidRequest(f"its version is {document.get('version')!r:.20}, and this Penstock reads version {VERSION}")
    _object("the document", document, {"version", "secret", "users", "permissions"})
    secret = _octets("secret", document["secret"], SECRET_BYTES)
    users = {}
    for name, fields in _object("users", document["users"], None).items():
        check_user_name(name)
        users[name] = _user(f"user {name!r}", fields)
    _check_certificates(users)
    permissions = {}
    for name, held in _object("permissions", document["permissions"], None).items():
        if name not in users and name != ANONYMOUS:
            raise errors.InvalidRequest(f"the file has permissions of {name!r:.80}, but no such user")
        permissions[name] = _permissions(f"permissions of {name!r}", held)
    return Users(secret, users, permissions)


def _user(subject: str, fields: Any) -> User:
    _object(subject, fields, {"scram-sha-256", "certificates"})
    scram_fields, certificates = fields["scram-sha-256"], fields["certificates"]
    if not isinstance(certificates, list) or not all(isinstance(name, str) for name in certificates):
        raise errors.InvalidRequest(f"{subject}: certificates must be a list of names")
    for name in certificates:
        check_text(f"{subject}: the name of a certificate", name)
    if scram_fields is None:
        return User(None, tuple(certificates))
    _object(subject, scram_fields, {"salt", "iterations", "storedKey", "serverKey"})
    iterations = scram_fields["iterations"]
    if type(iterations) is not int or not scram.MIN_ITERATIONS <= iterations <= scram.MAX_ITERATIONS:
        raise errors.InvalidRequest(f"{subject}: iterations must be {scram.MIN_ITERATIONS} to {scram.MAX_ITERATIONS}")
    keys = (_octets(f"{subject}: {name}", scram_fields[name], 32) for name in ("storedKey", "serverKey"))
    salt = _octets(f"{subject}: salt", scram_fields["salt"], SALT_BYTES)
    return User(ScramCredentials(salt, iterations, *keys), tuple(certificates))


def _permissions(subject: str, held: Any) -> dict[str, frozenset[Right]]:
    result = {}
    for queue, names in _object(subject, held, None).items():
        check_text(f"{subject}: a queue or pattern", queue)
        try:
            result[queue] = frozenset(Right(name) for name in names)
        except (ValueError, TypeError):
            raise errors.InvalidRequest(f"{subject} on {queue!r}: rights are a list of {', '.join(Right)}") from None
    return result


def _object(subject: str, value: Any, names: set[str] | None) -> dict[str, Any]:
    if not isinstance(value, dict) or (names is not None and set(value) != names):
        fields = "" if names is None else f" with exactly {', '.join(sorted(names))}"
        raise errors.InvalidRequest(f"{subject} must be an object{fields}")
    return value


def _text(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def _octets(subject: str, text: Any, least: int) -> bytes:
    try:
        octets = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        octets = b""
    if len(octets) < least:
        raise errors.InvalidRequest(f"{subject} must be {least} octets or more in base64")
    return octets
