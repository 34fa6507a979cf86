"""The user of each call, from the HTTP header `authorization`."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable

from .. import errors
from ..security import ANONYMOUS, Access
from ..security.audit import Origin
from ..security.failed_logins import on_this_machine
from ..security.rights import Right

log = logging.getLogger("penstock.security")

SEPARATOR = ":"  # between a user and a name that it has chosen: no user name contains one


class Caller:
    """The user of one call. `door`: the kind of program, as it names itself."""

    def __init__(self, access: Access, user: str, peer: str, is_gone: Callable[[], bool], door: str = "") -> None:
        self.user, self.peer, self.is_gone, self.door = user, peer, is_gone, door
        self.enforced = access.enforced  # the broker has users: names and rights are by user
        self._access = access
        self._identity = access.identity(user)

    @property
    def origin(self) -> Origin:
        return Origin(self.user, self.peer, self.door)

    @property
    def known_user(self) -> str | None:
        """None for a client without a user name."""
        return None if self.user == ANONYMOUS else self.user

    def own(self, name: str) -> str:
        return f"{self.user}{SEPARATOR}{name}"

    def may(self, right: Right, queue: str | None) -> bool:
        """`queue`: None means every present and future queue."""
        return self._access.may(self.user, right, queue)

    def sees(self, queue: str) -> bool:
        """True with any right on the queue."""
        return self._access.may_any(self.user, queue)

    def sees_everything(self) -> bool:
        return any(self.may(right, None) for right in Right)

    def may_somewhere(self, right: Right) -> bool:
        return self._access.may_somewhere(self.user, right)

    def refuse(self, action: str, right: Right | None = None) -> errors.PenstockError:
        """Log a refusal, and return its error. A client without a user name is asked to log in."""
        log.warning("%s at %s may not %s", self.user, self.peer, action, extra={"user": self.user, "peer": self.peer})
        if self.user == ANONYMOUS:
            return errors.Unauthenticated(f"a client without a user name may not {action}: give user and password, or a token")
        needed = "a right" if right is None else f"the right {right.value}"
        return errors.NotAllowed(
            f"user {self.user!r} may not {action}: that needs {needed} there, which an administrator gives with `penstock permit`"
        )

    def renewed(self) -> None:
        """Read changed rights during a long call. Raises Unauthenticated if the user is gone or has another password."""
        self._access.refresh()
        if self._access.identity(self.user) != self._identity:
            raise errors.Unauthenticated(f"user {self.user!r} has changed or is gone since this call began: log in again")


class Callers:
    """Authenticates calls. `encrypted`: the plane uses TLS. `turned_on_by`: the setting that turns TLS on."""

    def __init__(self, access: Access, *, encrypted: bool, turned_on_by: str = "flight_tls") -> None:
        self._access = access
        self._encrypted, self._turned_on_by = encrypted, turned_on_by

    def of(self, header: str | None, peer: str, is_gone: Callable[[], bool] = lambda: False, *, door: str = "") -> Caller:
        """`header`: `authorization`. `is_gone`: the client no longer waits for the reply. `door`: see `Caller`.

        Raises Unauthenticated; the text does not reveal whether user or password is wrong.
        """
        access = self._access
        access.refresh()
        if not access.enforced:
            return Caller(access, ANONYMOUS, peer, is_gone, door)
        caller = Caller(access, ANONYMOUS if header is None else self._user(header, peer), peer, is_gone, door)
        if caller.user == ANONYMOUS and not access.may_any(ANONYMOUS):
            raise caller.refuse("do anything here")
        return caller

    def _user(self, header: str, peer: str) -> str:
        scheme, _, rest = header.partition(" ")
        if scheme.lower() == "bearer":
            user = self._access.user_of_token(rest.strip())
            if user is None:
                text = "a token from %s refused: expired, or its user has changed, or this broker has been restarted"
                log.warning(text, peer, extra={"peer": peer})
                raise errors.Unauthenticated("the token is invalid or expired: log in again for a new one")
            return user
        if scheme.lower() != "basic":
            raise errors.Unauthenticated("the authorization must be Basic or Bearer")
        if not (self._encrypted or on_this_machine(peer)):
            # Before the password is checked. Tokens are accepted, because they expire.
            log.warning("a password from %s refused unchecked: it came unencrypted over a network", peer, extra={"peer": peer})
            raise errors.Unauthenticated(
                f"a password is not accepted unencrypted over a network: set {self._turned_on_by}, or log in over AMQP"
            )
        try:
            name, colon, password = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            colon = ""
        if not colon:
            raise errors.Unauthenticated("the authorization is not user:password in UTF-8 and base64")
        return self._access.login(name, password, peer)
