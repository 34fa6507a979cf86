"""`Access`: who a peer is, and what it may do. Every plane asks the same object.

Without users everything is allowed to everybody, so such a broker listens on loopback, or starts only with `allow_anonymous`.
Once there is a user, everything is denied that is not permitted, and a peer that gives no name is the user `anonymous`.
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
from typing import Any

from .. import errors
from ..amqp.scram import Credentials
from ..logs import counted
from ..settings.keys import Settings
from ..settings.listeners import Listener
from . import passwords, store, tokens
from .attempts import Attempts
from .passwords import Passwords
from .quiet import Quiet
from .rights import Right, matches
from .users import ANONYMOUS, SECRET_BYTES, User, Users

__all__ = ["ANONYMOUS", "Access", "Right"]

REFRESH_S = 1.0  # how often the file is looked at, at most: what a change takes to be noticed
TOKEN_S = 3600  # how long a token holds: a Spark query that lasts longer logs in again

log = logging.getLogger("penstock.security")
log.addFilter(Quiet())


class Access:
    """Users and permissions of the file at `path`, read again when it changes (`refresh`). Thread-safe.

    `must_exist`: refuse to start without the file, where an operator has named it: a wrong path must not open a broker.
    `may_be_open`: whether everything is allowed while there is no user; otherwise nothing is, when the last one is removed.
    InvalidRequest when the file is there and cannot be used.
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
        self.generation = 0  # rises with each change of what is allowed
        self.attempts = Attempts(monotonic)
        self._clock, self._monotonic = clock, monotonic
        self._may_be_open = may_be_open
        self._token_key = random(32)
        self._passwords = Passwords(random)
        self._lock = threading.Lock()
        self._looked = monotonic()
        self._mark = store.mark_of(path)
        users = store.read(path)
        if users is None and must_exist:
            raise errors.InvalidRequest(
                f"the users file {path} is not there: make it with `penstock user add NAME --users-file {path}`"
            )
        self._now = self._loaded(users if users is not None else Users(random(SECRET_BYTES)))

    @classmethod
    def of(cls, settings: Settings) -> Access:
        """As a broker of these settings needs it. InvalidRequest where it would be open to a network and nobody has said so."""
        http = settings.http_listener
        listeners = (Listener(settings.host), *settings.amqp_listeners, *([] if http is None else [http]))
        hosts = ", ".join(dict.fromkeys(listener.host for listener in listeners if not listener.loopback))
        access = cls(
            settings.users_file,
            must_exist=settings.users_file != settings.data / store.FILE_NAME,
            may_be_open=not hosts or settings.allow_anonymous,
        )
        if hosts and not access._now.users.users:
            if not settings.allow_anonymous:
                raise errors.InvalidRequest(
                    f"{hosts} can be reached from the network, and there are no users: add one first (`penstock user add NAME "
                    f"{_where(settings)}`), or set allow_anonymous = true to allow everything to everybody who reaches it"
                )
            log.warning("no users, and allow_anonymous: everything is allowed to everybody who reaches %s", hosts)
        return access

    def _loaded(self, users: Users) -> _Loaded:
        return _Loaded(users, self._token_key, enforced=bool(users.users) or not self._may_be_open)

    @property
    def enforced(self) -> bool:
        """True where permissions are asked for: there are users, or the broker may not be open without any."""
        return self._now.enforced

    @property
    def user_count(self) -> int:
        """Number of users in the file."""
        return len(self._now.users.users)

    # Who is it?
    def credentials(self, name: str) -> Credentials | None:
        """Return what SASL checks a password against; None for a name without one."""
        user = self._now.users.users.get(name)
        return None if user is None else user.credentials

    @property
    def secret(self) -> bytes:
        """For `SaslServer.secret`: an unknown user seems the same on every plane, over restarts."""
        return self._now.users.secret

    @property
    def iterations(self) -> int:
        """For `SaslServer.iterations`."""
        return self._now.iterations

    def login(self, name: str, password: str, peer: str) -> str:
        """The user that this password proves. Unauthenticated, in the same words and time whatever is wrong, otherwise."""
        now = self._now
        credentials, known = self.credentials(name), True
        if credentials is None:
            credentials, known = passwords.decoy(now.users.secret, now.iterations, name), False
        if self._passwords.was_right(credentials, password):
            return name
        if not self.attempts.blocked(peer, name):
            with self._passwords.turn:
                if not self.attempts.blocked(peer, name):  # by those of many at once whose turn was before
                    if self._passwords.check(credentials, password) and known:
                        return name
                    self.attempts.failed(peer, name)
                    who = {"user": name, "peer": peer}
                    log.warning("login of %.80r from %s refused: wrong name or password", name, peer, extra=who)
                    raise errors.Unauthenticated("wrong user or password")
        log.warning("login of %.80r from %s refused: too many failed before", name, peer, extra={"user": name, "peer": peer})
        raise errors.Unauthenticated("too many logins from this address have failed: wait a minute, then try again")

    def user_of_certificate(self, certificate: Mapping[str, Any] | None) -> str | None:
        """The user of a verified certificate, as `ssl.SSLObject.getpeercert()` gives it; None when nobody has its name.

        Its name is its subject's common name; without one, the first of its alternative names.
        """
        name = name_of(certificate) if certificate else None
        if not certificate or name is None or ssl.cert_time_to_seconds(certificate["notAfter"]) <= self._clock():
            return None  # a resumed TLS session shows a certificate that may have expired since
        return self._now.by_certificate.get(name)

    def identity(self, user: str) -> str | None:
        """Of the user's record: another one means another password or certificate. None for nobody, "" for `anonymous`."""
        return self._now.identities.get(user)

    def token(self, user: str) -> str:
        """A bearer token, good for `TOKEN_S`, for a user who has logged in. NotFound when it is gone since."""
        identity = self.identity(user)
        if identity is None:
            raise errors.UserNotFound(f"there is no user {user!r}")
        return tokens.sign(self._token_key, tokens.Claim(user, int(self._clock()) + TOKEN_S, identity))

    def user_of_token(self, token: str) -> str | None:
        """None when it is not ours, has expired, or its user has changed or gone."""
        claim = tokens.verify(self._token_key, token)
        if claim is None or claim.expires <= self._clock() or claim.identity != self.identity(claim.user):
            return None
        return claim.user

    # What may it do?
    def may(self, user: str, right: Right, queue: str | None) -> bool:
        """Say whether `user` has the right on this queue; with None, on all queues there are and will be."""
        now = self._now
        return not now.enforced or right in now.rights(user, queue)

    def may_any(self, user: str, queue: str | None = None) -> bool:
        """Say whether `user` has any right on this queue, and so may know that it is there; with None, on any queue."""
        now = self._now
        if not now.enforced:
            return True
        return bool(now.permissions.get(user)) if queue is None else bool(now.rights(user, queue))

    def permissions_of(self, user: str) -> dict[str, list[str]]:
        """Return the user's rights by queue name or pattern; every right on everything where nothing is asked for."""
        now = self._now
        if not now.enforced:
            return {"*": [right.value for right in Right]}
        return {pattern: sorted(right.value for right in rights) for pattern, rights in now.permissions.get(user, {}).items()}

    @property
    def count(self) -> int:
        """Number of users."""
        return len(self._now.users.users)

    def described(self) -> list[dict[str, Any]]:
        """Describe all users, and what anybody may do without a name: how they log in, and their rights. Nothing secret."""
        users, held = self._now.users.users, self._now.permissions
        return [
            {
                "user": name,
                "password": name in users and users[name].credentials is not None,
                "certificates": list(users[name].certificates) if name in users else [],
                "rights": {queue: sorted(right.value for right in rights) for queue, rights in held.get(name, {}).items()},
            }
            for name in sorted({*users, *held})
        ]

    def may_somewhere(self, user: str, right: Right) -> bool:
        """Say whether there is a queue or pattern on which `user` has the right."""
        now = self._now
        return not now.enforced or any(right in rights for rights in now.permissions.get(user, {}).values())

    # Changes
    def refresh(self) -> bool:
        """Read the file again if it has changed; True when that brought something new. Cheap: call it at every request.

        A file that cannot be used, or is gone, changes nothing and is logged: it must not open the broker.
        """
        if self._monotonic() - self._looked < REFRESH_S or not self._lock.acquire(blocking=False):
            return False
        try:
            self._looked = self._monotonic()
            return self._read_again()
        finally:
            self._lock.release()

    def _read_again(self) -> bool:
        mark = store.mark_of(self.path)
        if mark == self._mark:
            return False
        before, self._mark = self._mark, mark  # whatever comes of it: what does not hold is logged once
        try:
            users = store.read(self.path)
        except errors.ResourceLimit as error:
            self._mark = before  # it may take somebody's rights away: it is tried again at the next look
            log.error("%s; it is tried again", error)
            return False
        except errors.InvalidRequest as error:
            log.error("%s; what was read before stays in force", error)
            return False
        if users is None:
            log.error("the users file %s is gone; what was read before stays in force", self.path)
            return False
        self._now = self._loaded(users)
        self.generation += 1
        log.info("users read again: %s, from %s", counted(len(users.users), "user"), self.path)
        return True


class _Loaded:
    """One reading of the file, in the form in which it is asked."""

    def __init__(self, users: Users, key: bytes, *, enforced: bool) -> None:
        self.users = users
        self.enforced = enforced
        self.permissions = users.permissions
        self.iterations = passwords.usual_iterations(users)
        self.by_certificate = {name: user for user, kept in users.users.items() for name in kept.certificates}
        # A MAC and not a hash: a token that leaks must not be something to guess the password by.
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
        found = self.permissions.get(user, {}).get(queue, frozenset())
        for pattern, rights in self._patterns.get(user, ()):
            if not rights <= found and matches(pattern, queue):
                found |= rights
        return found


def name_of(certificate: Mapping[str, Any]) -> str | None:
    """The one common name of the subject; without one the first alternative name; None for two common names, or nothing."""
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    alternative = [value for _, value in certificate.get("subjectAltName", ())]
    if len(common) > 1:
        return None
    return next(iter(common + alternative), None)


def _where(settings: Settings) -> str:
    """The option of `penstock user add` that names the users file of these settings."""
    if settings.users_file == settings.data / store.FILE_NAME:
        return f"--data {settings.data}"
    return f"--users-file {settings.users_file}"


def _octets(user: User) -> bytes:
    kept = user.credentials
    return repr((tuple(kept) if kept is not None else None, user.certificates)).encode()
