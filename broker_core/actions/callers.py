"""The user of each call, from the HTTP header `authorization`."""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable

from .. import errors
from ..security import ANONYMOUS, Access
from ..security.audit import AuditEntry, Origin, refused_login
from ..security.failed_logins import address_text, on_this_machine
from ..security.rights import Right
from .fields import Request, specs_of

log = logging.getLogger("penstock.security")

Audit = Callable[[AuditEntry], None]

#: Fields that name the object; the first one of a request.
_OBJECTS = ("exchange", "queue", "lease", "id", "user", "stage", "write")
_OMITTED = {"op", "columns"}  # of requests that begin a stream
SEPARATOR = ":"  # between a user and a name that it has chosen: no user name contains one


class Caller:
    """The user of one call. `door`: the kind of program, as it names itself."""

    def __init__(
        self,
        access: Access,
        user: str,
        peer: str,
        is_gone: Callable[[], bool],
        door: str = "",
        audit: Audit = lambda entry: None,
    ) -> None:
        self.user, self.peer, self.is_gone, self.door = user, peer, is_gone, door
        self._audit = audit
        self.enforced = access.enforced  # the broker has users: names and rights are by user
        self._access = access
        self._identity = access.identity(user)

    @property
    def origin(self) -> Origin:
        return Origin(self.user, address_text(self.peer), self.door)

    def record(self, name: str, request: Request, outcome: str, error: str | None = None, count: int | None = None) -> None:
        """Add a request to the audit log. `name`: of the action, ticket or put. The details are other fields than the object's,
        without defaults and confidential values."""
        fields, specs = request.to_json(), specs_of(type(request))
        named = next((field for field in _OBJECTS if fields.get(field) is not None), None)
        details = {
            field: value
            for field, value in fields.items()
            if field != named
            and field not in _OMITTED
            and not specs[field].is_confidential
            and value not in (None, False, [], {})
        }
        text = "" if named is None else str(fields[named])
        entry = AuditEntry(
            origin=self.origin, action=name, object=text, outcome=outcome, count=count, error=error, details=details
        )
        self._audit(entry)

    @property
    def known_user(self) -> str | None:
        return None if self.user == ANONYMOUS else self.user

    def own(self, name: str) -> str:
        return f"{self.user}{SEPARATOR}{name}"

    def may(self, right: Right, queue: str | None) -> bool:
        """`queue` None: every present and future queue."""
        return self._access.may(self.user, right, queue)

    def sees(self, queue: str) -> bool:
        """True with any right on the queue."""
        return self._access.may_any(self.user, queue)

    def sees_everything(self) -> bool:
        return any(self.may(right, None) for right in Right)

    def may_somewhere(self, right: Right) -> bool:
        return self._access.may_somewhere(self.user, right)

    def refuse(self, action: str, right: Right | None = None) -> errors.PenstockError:
        """Log a refusal, and return its error, which asks a client without a user name to log in."""
        log.warning("%s at %s may not %s", self.user, self.peer, action, extra={"user": self.user, "peer": self.peer})
        if self.user == ANONYMOUS:
            return errors.Unauthenticated(f"a client without a user name may not {action}: give user and password, or a token")
        needed = "a right" if right is None else f"the right {right.value}"
        return errors.NotAllowed(
            f"user {self.user!r} may not {action}: that needs {needed} there, which an administrator gives with `penstock permit`"
        )

    def renewed(self) -> None:
        """Read changed rights. Raises Unauthenticated if the user is gone or has another password."""
        self._access.refresh()
        if self._access.identity(self.user) != self._identity:
            raise errors.Unauthenticated(f"user {self.user!r} has changed or is gone since this call began: log in again")


class Callers:
    """Authenticates calls.

    `turned_on_by`: the setting that turns TLS on. `audit` is replaced when the broker has an audit log.
    """

    def __init__(
        self,
        access: Access,
        *,
        encrypted: bool,
        turned_on_by: str = "flight_tls",
        audit: Audit = lambda entry: None,
    ) -> None:
        self._access = access
        self._encrypted, self._turned_on_by, self.audit = encrypted, turned_on_by, audit

    def of(self, header: str | None, peer: str, is_gone: Callable[[], bool] = lambda: False, *, door: str = "") -> Caller:
        """`is_gone`: the client no longer waits for the reply. `door`: see `Caller`.

        Raises Unauthenticated; the text does not reveal whether user or password is wrong.
        """
        access = self._access
        access.refresh()
        if not access.enforced:
            return Caller(access, ANONYMOUS, peer, is_gone, door, self.audit)
        scheme, _, rest = (header or "").partition(" ")
        name = ANONYMOUS
        is_token = scheme.lower() == "bearer"
        if is_token:  # a refusal is not recorded: programs let tokens expire, and log in again
            name = self._user_of_token(rest.strip(), peer)
        try:
            if header is not None and not is_token:
                name, password = _name_and_password(scheme, rest)
                self._check_encrypted(peer)
                access.login(name, password, peer)
            caller = Caller(access, name, peer, is_gone, door, self.audit)
            if caller.user == ANONYMOUS and not access.may_any(ANONYMOUS):
                raise caller.refuse("do anything here")
        except errors.Unauthenticated as error:
            self.audit(refused_login(Origin(name, address_text(peer), door), str(error)))
            raise
        return caller

    def _user_of_token(self, token: str, peer: str) -> str:
        user = self._access.user_of_token(token)
        if user is None:
            text = "a token from %s refused: expired, or its user has changed, or this broker has been restarted"
            log.warning(text, peer, extra={"peer": peer})
            raise errors.Unauthenticated("the token is invalid or expired: log in again for a new one")
        return user

    def _check_encrypted(self, peer: str) -> None:
        """Raises Unauthenticated for a password that came unencrypted over a network. Tokens expire, and are accepted."""
        if not (self._encrypted or on_this_machine(peer)):
            log.warning("a password from %s refused unchecked: it came unencrypted over a network", peer, extra={"peer": peer})
            raise errors.Unauthenticated(
                f"a password is not accepted unencrypted over a network: set {self._turned_on_by}, or log in over AMQP"
            )


def _name_and_password(scheme: str, encoded: str) -> tuple[str, str]:
    if scheme.lower() != "basic":
        raise errors.Unauthenticated("the authorization must be Basic or Bearer")
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        colon = ""
    if not colon:
        raise errors.Unauthenticated("the authorization is not user:password in UTF-8 and base64")
    return name, password
