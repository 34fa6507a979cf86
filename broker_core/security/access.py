"""Logins and permissions. All planes share one `Access`.

A broker without users allows everything, so it listens on loopback, or needs `allow_anonymous`. A broker with users denies
everything that is not permitted, and a client without a name is the user `anonymous`.
"""

from __future__ import annotations

import hmac
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from .. import errors
from ..amqp.scram import ScramCredentials
from ..logs import counted
from ..patterns import matches
from ..settings.keys import Settings
from ..settings.listeners import Listener
from . import keys_file, passwords, tokens, users_file
from .failed_logins import Attempts
from .log_limit import LogLimit
from .passwords import Passwords
from .rights import Right, names_of
from .shared_access import SharedAccessSignature
from .users import ANONYMOUS, SECRET_BYTES, User, Users

REFRESH_S = 1.0  # between two checks of the file
TOKEN_S = 3600  # a longer Spark query logs in again

T = TypeVar("T")
log = logging.getLogger("penstock.security")
log.addFilter(LogLimit())


class Access:
    """Users and permissions of the file at `path`, reloaded after a change. Thread-safe.

    `must_exist`: refuse to start without the file, because a wrong path must not open the broker. `may_be_open`: allow everything
    while the file has no users; otherwise nothing is allowed then. Raises InvalidRequest if the file cannot be used.
    """

    def __init__(
        self,
        path: Path,
        *,
        must_exist: bool = False,
        may_be_open: bool = True,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.path = path
        self.generation = 0  # rises with each change of users or permissions
        self._attempts = Attempts(monotonic)
        #: Held from `credentials` to `count_failure`, so that simultaneous attempts cannot exceed the limit.
        self.proving = threading.Lock()
        self._clock, self._monotonic = clock, monotonic
        self._may_be_open = may_be_open
        self._token_key = random(32)
        self._passwords = Passwords(random)
        self._lock = threading.Lock()
        self._looked = monotonic()
        self._users_file = _WatchedFile(path, _existing_users, "the previous users and permissions stay in force")
        users = users_file.read(path)
        if users is None and must_exist:
            raise errors.InvalidRequest(
                f"the users file {path} does not exist: create it with `penstock user add NAME --users-file {path}`"
            )
        self._now = self._loaded(users if users is not None else Users(random(SECRET_BYTES)))
        self._keys_file = _WatchedFile(keys_file.path_of(path), keys_file.read, "the previous keys stay in force")
        self._keys = keys_file.read(self._keys_file.path)
        #: Receives the names of users that another program has changed, by kind of change.
        self.on_reload: Callable[[dict[str, list[str]]], None] = lambda changes: None

    @classmethod
    def of(cls, settings: Settings) -> Access:
        """Raises InvalidRequest if the broker would be open to a network without `allow_anonymous`."""
        http = settings.http_listener
        listeners = (Listener(settings.host), *settings.amqp_listeners, *([] if http is None else [http]))
        hosts = ", ".join(dict.fromkeys(listener.host for listener in listeners if not listener.loopback))
        access = cls(
            settings.users_file,
            must_exist=settings.users_file != settings.data / users_file.FILE_NAME,
            may_be_open=not hosts or settings.allow_anonymous,
        )
        if hosts and not access._now.users.users:
            if not settings.allow_anonymous:
                raise errors.InvalidRequest(
                    f"{hosts} can be reached from the network, and the broker has no users: add one (`penstock user add NAME "
                    f"{_where(settings)}`), or set allow_anonymous = true to allow everything to every client"
                )
            log.warning("no users, and allow_anonymous: every client that reaches %s may do everything", hosts)
        return access

    def _loaded(self, users: Users) -> _Loaded:
        return _Loaded(users, self._token_key, enforced=bool(users.users) or not self._may_be_open)

    @property
    def enforced(self) -> bool:
        """False if everything is allowed."""
        return self._now.enforced

    @property
    def user_count(self) -> int:
        return len(self._now.users.users)

    def credentials(self, name: str, peer: str) -> ScramCredentials | None:
        """Return SCRAM credentials, to be checked while `proving` is held. None for a name without a password, and while the
        peer's logins are refused."""
        return None if self._attempts.blocked(peer, name) else self._credentials(name)

    def _credentials(self, name: str) -> ScramCredentials | None:
        user = self._now.users.users.get(name)
        return None if user is None else user.credentials

    def count_failure(self, peer: str, name: str | None) -> None:
        """Count a failed login. `login` counts its own."""
        self._attempts.failed(peer, name)

    @property
    def secret(self) -> bytes:
        """An unknown user looks the same on every plane and after a restart."""
        return self._now.users.secret

    @property
    def iterations(self) -> int:
        return self._now.iterations

    def login(self, name: str, password: str, peer: str) -> str:
        """Raises Unauthenticated, with the same text and after the same time for an unknown user and a wrong password."""
        now = self._now
        credentials, known = self._credentials(name), True
        if credentials is None:
            credentials, known = passwords.decoy(now.users.secret, now.iterations, name), False
        if self._passwords.was_right(credentials, password):
            return name
        if not self._attempts.blocked(peer, name):
            with self._passwords.turn:
                if not self._attempts.blocked(peer, name):  # simultaneous attempts may have failed
                    if self._passwords.check(credentials, password) and known:
                        return name
                    self._attempts.failed(peer, name)
                    who = {"user": name, "peer": peer}
                    log.warning("login of %.80r from %s refused: wrong name or password", name, peer, extra=who)
                    raise errors.Unauthenticated("wrong user or password")
        log.warning("login of %.80r from %s refused: too many failures", name, peer, extra={"user": name, "peer": peer})
        raise errors.Unauthenticated("too many logins from this address have failed: wait a minute, then try again")

    def user_of_certificate(self, certificate: Mapping[str, Any] | None) -> str | None:
        """Return the user of a certificate (of `ssl.SSLObject.getpeercert()`)."""
        name = name_of(certificate) if certificate else None
        if not certificate or name is None or ssl.cert_time_to_seconds(certificate["notAfter"]) <= self._clock():
            return None  # a resumed TLS session can present an expired certificate
        return self._now.by_certificate.get(name)

    def identity(self, user: str) -> str | None:
        """Return a digest of password and certificates; None for an unknown user, "" for `anonymous`."""
        return self._now.identities.get(user)

    def token(self, user: str) -> str:
        """Return a bearer token, valid for `TOKEN_S`. Raises UserNotFound."""
        identity = self.identity(user)
        if identity is None:
            raise errors.UserNotFound(f"there is no user {user!r}")
        return tokens.sign(self._token_key, tokens.Claim(user, int(self._clock()) + TOKEN_S, identity))

    def user_of_token(self, token: str) -> str | None:
        """Return None for an invalid or expired token, and for one of a changed or removed user."""
        claim = tokens.verify(self._token_key, token)
        if claim is None or claim.expires <= self._clock() or claim.identity != self.identity(claim.user):
            return None
        return claim.user

    def has_signed(self, token: SharedAccessSignature) -> bool:
        """Return True if a key of the token's user has signed it, and the user exists."""
        user = token.user if token.user in self._now.users.users else ""
        return token.is_of(self._keys.get(user, ()))

    def signer(self, token: SharedAccessSignature, peer: str) -> str:
        """Return the user whose key has signed the token. Raises Unauthenticated."""
        if self.has_signed(token):  # before the limit: clients at the same address cannot guess a random key
            return token.user
        if self._attempts.blocked(peer, token.user):
            raise errors.Unauthenticated("too many logins from this address have failed: wait a minute, then try again")
        self._attempts.failed(peer, token.user)
        raise errors.Unauthenticated(f"no key of user {token.user!r:.80} has signed this token: `penstock user key` makes a key")

    def may(self, user: str, right: Right, queue: str | None) -> bool:
        """With None: on all present and future queues."""
        now = self._now
        return not now.enforced or right in now.rights(user, queue)

    def may_any(self, user: str, queue: str | None = None) -> bool:
        """Return True if `user` has any right on this queue, and so may know of it. With None: on any queue."""
        now = self._now
        if not now.enforced:
            return True
        return bool(now.permissions.get(user)) if queue is None else bool(now.rights(user, queue))

    def permissions_of(self, user: str) -> dict[str, list[str]]:
        """Return rights by queue name or pattern; all rights if permissions are not checked."""
        now = self._now
        if not now.enforced:
            return {"*": [right.value for right in Right]}
        return {pattern: names_of(rights) for pattern, rights in now.permissions.get(user, {}).items()}

    def described(self) -> list[dict[str, Any]]:
        users, held = self._now.users.users, self._now.permissions
        return [
            {
                "user": name,
                "password": name in users and users[name].credentials is not None,
                "certificates": list(users[name].certificates) if name in users else [],
                "rights": {queue: names_of(rights) for queue, rights in held.get(name, {}).items()},
            }
            for name in sorted({*users, *held})
        ]

    def may_somewhere(self, user: str, right: Right) -> bool:
        now = self._now
        return not now.enforced or any(right in rights for rights in now.permissions.get(user, {}).values())

    def refresh(self) -> bool:
        """Reload changed files; return True then. Cheap enough for every request.

        An unusable or missing file is logged and changes nothing, because it must not open the broker.
        """
        if self._monotonic() - self._looked < REFRESH_S or not self._lock.acquire(blocking=False):
            return False
        try:
            self._looked = self._monotonic()
            changed, before = self._read_keys_again(), self._now.users
            if self._read_again():
                self.on_reload(_changes(before, self._now.users))
                changed = True
            return changed
        finally:
            self._lock.release()

    def _read_keys_again(self) -> bool:
        keys, before = self._keys_file.changed(), self._keys
        if keys is None:
            return False
        self._keys = keys
        self.generation += 1
        log.info("shared-access keys reloaded, from %s", self._keys_file.path)
        changed = [name for name in {**before, **keys} if before.get(name) != keys.get(name)]
        self.on_reload({"keys": sorted(changed)})
        return True

    def edit(self, change: Callable[[Users], Users]) -> None:
        """Raises StorageError, and the errors of `change`."""
        users_file.edit(self.path, change)
        with self._lock:
            self._read_again()

    def _read_again(self) -> bool:
        users = self._users_file.changed()
        if users is None:
            return False
        self._now = self._loaded(users)
        self.generation += 1
        log.info("users reloaded: %s, from %s", counted(len(users.users), "user"), self.path)
        return True


def _existing_users(path: Path) -> Users:
    users = users_file.read(path)
    if users is None:
        raise errors.InvalidRequest(f"the users file {path} is missing")
    return users


class _WatchedFile(Generic[T]):
    """A file to read again after a change. If that fails, the previous content stays in force, and `fallback` is logged."""

    def __init__(self, path: Path, read: Callable[[Path], T], fallback: str) -> None:
        self.path, self._read, self._fallback = path, read, fallback
        self._mark = users_file.mark_of(path)

    def changed(self) -> T | None:
        """Return the new content; None without a change, or after an error."""
        mark = users_file.mark_of(self.path)
        if mark == self._mark:
            return None
        before, self._mark = self._mark, mark  # an unusable file is logged once
        try:
            return self._read(self.path)
        except errors.ResourceLimit as error:
            self._mark = before  # the change may revoke rights, so the next check tries again
            log.error("%s; the broker tries again", error)
        except errors.InvalidRequest as error:
            log.error("%s; %s", error, self._fallback)
        return None


class _Loaded:
    """The users, indexed for lookups."""

    def __init__(self, users: Users, key: bytes, *, enforced: bool) -> None:
        self.users = users
        self.enforced = enforced
        self.permissions = users.permissions
        self.iterations = passwords.usual_iterations(users)
        self.by_certificate = {name: owner for owner, user in users.users.items() for name in user.certificates}
        # A MAC, so that a leaked token does not help to guess the password.
        self.identities = {name: hmac.digest(key, _octets(user), "sha256").hex() for name, user in users.users.items()}
        self.identities[ANONYMOUS] = ""
        self._patterns = {
            user: [(pattern, rights) for pattern, rights in held.items() if "*" in pattern]
            for user, held in users.permissions.items()
        }

    def rights(self, user: str, queue: str | None) -> frozenset[Right]:
        if queue is None:
            queues = self.permissions.get(user, {}).items()
            return frozenset[Right]().union(*(rights for pattern, rights in queues if not pattern.strip("*")))
        result = self.permissions.get(user, {}).get(queue, frozenset())
        for pattern, rights in self._patterns.get(user, ()):
            if not rights <= result and matches(pattern, queue):
                result |= rights
        return result


def _changes(before: Users, after: Users) -> dict[str, list[str]]:
    def record(users: Users, name: str) -> object:
        return users.users.get(name), users.permissions.get(name)

    both = (before.users.keys() & after.users.keys()) | {ANONYMOUS}
    return {
        "added": sorted(after.users.keys() - before.users.keys()),
        "removed": sorted(before.users.keys() - after.users.keys()),
        "changed": sorted(name for name in both if record(before, name) != record(after, name)),
    }


def name_of(certificate: Mapping[str, Any]) -> str | None:
    """Return the subject's common name, or else the first alternative name; None for two common names or no name."""
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    alternative = [value for _, value in certificate.get("subjectAltName", ())]
    if len(common) > 1:
        return None
    return next(iter(common + alternative), None)


def _where(settings: Settings) -> str:
    if settings.users_file == settings.data / users_file.FILE_NAME:
        return f"--data {settings.data}"
    return f"--users-file {settings.users_file}"


def _octets(user: User) -> bytes:
    credentials = user.credentials
    return repr((tuple(credentials) if credentials is not None else None, user.certificates)).encode()
