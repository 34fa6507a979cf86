"""Callers: the HTTP header `authorization` of each call, into a user, and what that user may do."""

from __future__ import annotations

import base64
import binascii
import logging
from typing import Protocol

from .. import errors
from ..security.access import ANONYMOUS, Access
from ..security.attempts import on_this_machine
from ..security.rights import Right

log = logging.getLogger("penstock.security")

SEPARATOR = ":"  # between a user and the name that it has chosen: no user's name has one


class Asking(Protocol):
    """Call of which nobody knows yet whose it is."""

    @property
    def authorization(self) -> str | None:
        """Header of that name."""

    @property
    def peer(self) -> str:
        """Address of the caller."""

    @property
    def gone(self) -> bool:
        """True when the caller has given the call up, or is dead: nobody hears the answer."""


class Caller:
    """A user, for as long as one call lasts. Without `access` everything is allowed."""

    def __init__(self, access: Access | None, user: str, peer: str, call: Asking | None = None) -> None:
        self.user, self.peer = user, peer
        self._call = call
        self.enforced = access is not None and access.enforced  # there are users: names and rights are by user
        self._access = access
        self._identity = None if access is None else access.identity(user)

    @property
    def gone(self) -> bool:
        """True when nobody hears the answer to the call any longer."""
        return self._call is not None and self._call.gone

    def own(self, name: str) -> str:
        """The engine's name of what this caller calls so, once there are users (see `namespaces`)."""
        return f"{self.user}{SEPARATOR}{name}"

    def may(self, right: Right, queue: str) -> bool:
        """Say whether the caller has this right on this queue."""
        return self._access is None or self._access.may(self.user, right, queue)

    def may_everywhere(self, right: Right) -> bool:
        """Say whether the caller has this right on all queues there are and will be."""
        return self._access is None or self._access.may(self.user, right, None)

    def sees(self, queue: str) -> bool:
        """Any right on a queue lets its user know of it, and of its counts."""
        return self._access is None or self._access.may_any(self.user, queue)

    def sees_everything(self) -> bool:
        """Say whether the caller may know of all queues there are and will be."""
        return self._access is None or any(self._access.may(self.user, right, None) for right in Right)

    def may_somewhere(self, right: Right) -> bool:
        """Say whether there is a queue or pattern on which the caller has this right."""
        return self._access is None or self._access.may_somewhere(self.user, right)

    def refuse(self, what: str, right: Right | None = None) -> errors.PenstockError:
        """Return the error for what is not permitted, which names the right, and log it. One without a name is asked for one."""
        log.warning("%s at %s may not %s", self.user, self.peer, what, extra={"user": self.user, "peer": self.peer})
        if self.user == ANONYMOUS:
            return errors.Unauthenticated(f"a client without a user name may not {what}: give user and password, or a token")
        needed = "a right" if right is None else f"the right {right.value}"
        return errors.NotAllowed(
            f"user {self.user!r} may not {what}: that needs {needed} there, which an administrator gives with `penstock permit`"
        )

    def renewed(self) -> None:
        """Notice, within a long call, what has changed since. Unauthenticated when this user is gone or has another password."""
        if self._access is not None:
            self._access.refresh()
            if self._access.identity(self.user) != self._identity:
                raise errors.Unauthenticated(f"user {self.user!r} has changed or is gone since this call began: log in again")


class Callers:
    """Finds out who calls. `encrypted`: the plane speaks TLS, so that nobody else hears; `turned_on_by`: the setting for that."""

    def __init__(self, access: Access | None, *, encrypted: bool, turned_on_by: str = "flight_tls") -> None:
        self._access = access
        self._encrypted, self._turned_on_by = encrypted, turned_on_by

    def of(self, call: Asking) -> Caller:
        """Raises Unauthenticated; the words do not say whether it was the user or the password."""
        access = self._access
        if access is None:
            return Caller(None, ANONYMOUS, "", call)
        access.refresh()
        peer = call.peer
        if not access.enforced:
            return Caller(access, ANONYMOUS, peer, call)
        said = call.authorization
        user = ANONYMOUS if said is None else self._user(access, said, peer)
        caller = Caller(access, user, peer, call)
        if user == ANONYMOUS and not access.may_any(ANONYMOUS):
            raise caller.refuse("do anything here")
        return caller

    def _user(self, access: Access, header: str, peer: str) -> str:
        scheme, _, rest = header.partition(" ")
        if scheme.lower() == "bearer":
            user = access.user_of_token(rest.strip())
            if user is None:
                log.warning(
                    "a token from %s refused: expired, or its user has changed, or this broker has been restarted",
                    peer,
                    extra={"peer": peer},
                )
                raise errors.Unauthenticated("the token is not valid, or not any more: log in again for another one")
            return user
        if scheme.lower() != "basic":
            raise errors.Unauthenticated("the authorization must be Basic or Bearer")
        if not (self._encrypted or on_this_machine(peer)):
            # Before anybody learns whether it is right; a token, which ends by itself, is taken.
            log.warning("a password from %s refused unseen: it came in clear over a network", peer, extra={"peer": peer})
            raise errors.Unauthenticated(
                f"a password is not taken in clear over a network: set {self._turned_on_by}, or log in over AMQP"
            )
        try:
            name, colon, password = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            colon = ""
        if not colon:
            raise errors.Unauthenticated("the authorization is not user:password in UTF-8 and base64")
        return access.login(name, password, peer)
