"""Users: a value that never changes, edits that give a new one, and its JSON.

    {"version": 1,
     "secret": base64,                      from which an unknown user gets a salt that looks like anybody's
     "users": {name: {"scram-sha-256": {"salt": base64, "iterations": n, "storedKey": base64, "serverKey": base64} | null,
                      "certificates": [name of a certificate]}},
     "permissions": {name: {queue or pattern: [right]}}}

There is no password in it: SCRAM's stored key checks one, and does not say it. To change the format: raise `VERSION`, keep
reading the older ones in `parse`.
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
from ..amqp.scram import Credentials, ScramError
from ..settings import strict_json
from .rights import Right

VERSION = 1
ANONYMOUS = "anonymous"  # clients without a user name; not a user, but may have permissions by this name

DEFAULT_ITERATIONS = 50_000
"""Of PBKDF2, for new passwords: what a stolen users file costs a guesser for each guess (about 20 ms of one core).

RFC 7677 asks for 4,096 at least and gives 15,000 as its rule of thumb, in 2015. A SCRAM client pays it at each login, so a phone
or a small container must bear it: the 600,000 advised for web forms, a quarter of a second, would be felt at each connection.
The broker pays only for PLAIN and Basic, and once for each password (`passwords.py`)."""
SALT_BYTES = SECRET_BYTES = 16
MAX_PASSWORD = 1024  # characters
MAX_NAME = 255  # characters, as the engine's own limit, which a test compares: importing that one would import numpy


@dataclass(frozen=True)
class User:
    """`credentials` is None for a user who has only certificates."""

    credentials: Credentials | None = None
    certificates: tuple[str, ...] = ()


Permissions = Mapping[str, Mapping[str, frozenset[Right]]]  # user → queue or pattern → rights


@dataclass(frozen=True)
class Users:
    """All that the users file says. A value: each edit returns a new one."""

    secret: bytes = field(repr=False)
    users: Mapping[str, User] = field(default_factory=dict)
    permissions: Permissions = field(default_factory=dict)

    def add(self, name: str, user: User) -> Users:
        """With this user; one of the same name keeps only its permissions. InvalidRequest when a certificate is another's."""
        check_user_name(name)
        if user.credentials is None and not user.certificates:
            raise errors.InvalidRequest(
                f"user {name!r} has neither a password nor a certificate: nobody could log in as this user"
            )
        for certificate in user.certificates:
            check_text("the name of a certificate", certificate)
        _check_certificates({**self.users, name: user})
        return replace(self, users={**self.users, name: user})

    def remove(self, name: str) -> Users:
        """Without this user and its permissions: a later one of that name begins with none. NotFound when there is none."""
        self.need(name)
        users = {other: user for other, user in self.users.items() if other != name}
        return replace(self, users=users, permissions={n: p for n, p in self.permissions.items() if n != name})

    def need(self, name: str) -> User:
        """Return this user. Raises NotFound."""
        if name not in self.users:
            raise errors.UserNotFound(f"there is no user {name!r}: add it with `penstock user add {name}`")
        return self.users[name]

    def permit(self, name: str, queue: str, rights: Iterable[Right]) -> Users:
        """With these rights too. `name` is a user or `anonymous`; NotFound otherwise."""
        if name != ANONYMOUS:
            self.need(name)
        check_text("a queue or pattern", queue)
        held = self.permissions.get(name, {}).get(queue, frozenset())
        return self._with_rights(name, queue, held | frozenset(rights))

    def revoke(self, name: str, queue: str, rights: Iterable[Right]) -> Users:
        """Without these rights. NotFound when none of them was given on exactly this queue or pattern."""
        held = self.permissions.get(name, {}).get(queue, frozenset())
        kept = held - frozenset(rights)
        if kept == held:
            raise errors.NotFound(f"{name!r} was not permitted that on {queue!r}: see `penstock permit --list`")
        return self._with_rights(name, queue, kept)

    def _with_rights(self, name: str, queue: str, rights: frozenset[Right]) -> Users:
        queues = {**self.permissions.get(name, {}), queue: rights}
        queues = {pattern: held for pattern, held in queues.items() if held}
        permissions = {**self.permissions, name: queues}
        return replace(self, permissions={user: held for user, held in permissions.items() if held})


def credentials_of(password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS) -> Credentials:
    """Derive what is kept of a new password; `salt` are random octets. Raises InvalidRequest for a password that cannot be."""
    if not 1 <= len(password) <= MAX_PASSWORD:
        raise errors.InvalidRequest(f"a password has 1 to {MAX_PASSWORD} characters, this one {len(password)}")
    try:
        return scram.make_credentials(password, salt, iterations)
    except ScramError as error:
        raise errors.InvalidRequest(f"this cannot be a password (RFC 4013): {error}") from None


def check_user_name(name: str) -> None:
    """InvalidRequest for a name that some mechanism could not carry."""
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
        raise errors.InvalidRequest(f"a user's name cannot be {name!r}: clients send it as {prepared!r} (RFC 4013), so take that")


def check_text(what: str, text: str) -> None:
    """Raise InvalidRequest for a name that is empty, too long or not printable; `what` names it in the error."""
    if not 1 <= len(text) <= MAX_NAME or not text.isprintable():
        raise errors.InvalidRequest(f"{what} has 1 to {MAX_NAME} printable characters, not {text!r:.80}")


def _check_certificates(users: Mapping[str, User]) -> None:
    owner: dict[str, str] = {}
    for name, user in users.items():
        for certificate in user.certificates:
            if owner.setdefault(certificate, name) != name:
                raise errors.InvalidRequest(
                    f"the certificate {certificate!r} is named for {owner[certificate]!r} and {name!r}; it is one user's"
                )


# --- JSON


def render(users: Users) -> bytes:
    """Render the users file."""

    def of(user: User) -> dict[str, Any]:
        kept = user.credentials
        scram_fields = (
            None
            if kept is None
            else {
                "salt": _text(kept.salt),
                "iterations": kept.iterations,
                "storedKey": _text(kept.stored_key),
                "serverKey": _text(kept.server_key),
            }
        )
        return {"scram-sha-256": scram_fields, "certificates": list(user.certificates)}

    document = {
        "version": VERSION,
        "secret": _text(users.secret),
        "users": {name: of(users.users[name]) for name in sorted(users.users)},
        "permissions": {
            name: {queue: sorted(right.value for right in held[queue]) for queue in sorted(held)}
            for name, held in sorted(users.permissions.items())
        },
    }
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def parse(data: bytes) -> Users:
    """Parse what `render` wrote, or a person changed.

    Raises InvalidRequest for anything that does not hold, whole: a line that is not understood could be the one that forbids
    something."""
    try:
        document = strict_json.loads(data)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidRequest(f"it is not JSON: {error}") from None
    _object("the document", document, None)
    if document.get("version") != VERSION:
        raise errors.InvalidRequest(f"it is of format {document.get('version')!r:.20}: this Penstock reads {VERSION}")
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
            raise errors.InvalidRequest(f"there are permissions of {name!r:.80}, and no such user")
        permissions[name] = _permissions(f"permissions of {name!r}", held)
    return Users(secret, users, permissions)


def _user(what: str, fields: Any) -> User:
    _object(what, fields, {"scram-sha-256", "certificates"})
    kept, certificates = fields["scram-sha-256"], fields["certificates"]
    if not isinstance(certificates, list) or not all(isinstance(name, str) for name in certificates):
        raise errors.InvalidRequest(f"{what}: certificates must be a list of names")
    for name in certificates:
        check_text(f"{what}: the name of a certificate", name)
    if kept is None:
        return User(None, tuple(certificates))
    _object(what, kept, {"salt", "iterations", "storedKey", "serverKey"})
    iterations = kept["iterations"]
    if type(iterations) is not int or not scram.MIN_ITERATIONS <= iterations <= scram.MAX_ITERATIONS:
        raise errors.InvalidRequest(f"{what}: iterations must be {scram.MIN_ITERATIONS} to {scram.MAX_ITERATIONS}")
    keys = (_octets(f"{what}: {name}", kept[name], 32) for name in ("storedKey", "serverKey"))
    salt = _octets(f"{what}: salt", kept["salt"], SALT_BYTES)
    return User(Credentials(salt, iterations, *keys), tuple(certificates))


def _permissions(what: str, held: Any) -> dict[str, frozenset[Right]]:
    result = {}
    for queue, names in _object(what, held, None).items():
        check_text(f"{what}: a queue or pattern", queue)
        try:
            result[queue] = frozenset(Right(name) for name in names)
        except (ValueError, TypeError):
            raise errors.InvalidRequest(f"{what} on {queue!r}: rights are a list of {', '.join(Right)}") from None
    return result


def _object(what: str, value: Any, names: set[str] | None) -> dict[str, Any]:
    if not isinstance(value, dict) or (names is not None and set(value) != names):
        fields = "" if names is None else f" with exactly {', '.join(sorted(names))}"
        raise errors.InvalidRequest(f"{what} must be an object{fields}")
    return value


def _text(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def _octets(what: str, text: Any, least: int) -> bytes:
    try:
        octets = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError, TypeError):
        octets = b""
    if len(octets) < least:
        raise errors.InvalidRequest(f"{what} must be {least} octets or more in base64")
    return octets
