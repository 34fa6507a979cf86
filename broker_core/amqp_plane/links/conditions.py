"""Penstock's errors as AMQP's conditions (2.8.15): one table."""

from __future__ import annotations

from ... import errors
from ...amqp import Condition
from ...amqp.errors import RemoteProtocolError
from ...amqp.performatives import Error
from ...security.rights import Right

MAX_DESCRIPTION = 300  # octets: an error must fit any frame, and the smallest has 512

_CONDITIONS: dict[str, str] = {
    errors.InvalidRequest.code: Condition.INVALID_FIELD,
    errors.NotFound.code: Condition.NOT_FOUND,
    errors.AlreadyExists.code: Condition.PRECONDITION_FAILED,
    errors.InUse.code: Condition.RESOURCE_LOCKED,
    errors.IllegalTransition.code: Condition.ILLEGAL_STATE,
    errors.UnknownTransaction.code: Condition.TRANSACTION_UNKNOWN_ID,
    errors.TransactionRolledBack.code: Condition.TRANSACTION_ROLLBACK,
    errors.TransactionTimedOut.code: Condition.TRANSACTION_TIMEOUT,
    errors.ResourceLimit.code: Condition.RESOURCE_LIMIT_EXCEEDED,
    errors.QueueFull.code: Condition.RESOURCE_LIMIT_EXCEEDED,
    "not-allowed": Condition.UNAUTHORIZED_ACCESS,
    "unauthenticated": Condition.UNAUTHORIZED_ACCESS,
}


def as_error(error: Exception) -> Error:
    """Return the error to tell the peer."""
    if isinstance(error, Refusal):
        return Error(condition=error.condition, description=_short(str(error)))
    if isinstance(error, RemoteProtocolError):
        return Error(condition=error.condition, description=_short(error.description))
    code = error.code if isinstance(error, errors.PenstockError) else ""
    return Error(condition=_CONDITIONS.get(code, Condition.INTERNAL_ERROR), description=_short(str(error)))


def deleted(node: str) -> Error:
    """Return the error for the links of a queue or exchange that is gone."""
    return Error(condition=Condition.RESOURCE_DELETED, description=_short(f"{node!r} was deleted"))


def _short(text: str) -> str:
    octets = text.encode("utf-8", "replace")
    if len(octets) <= MAX_DESCRIPTION:
        return octets.decode()
    return octets[: MAX_DESCRIPTION - len(" …".encode())].decode("utf-8", "ignore") + " …"


def forbidden(user: str, right: Right, address: str) -> Refusal:
    """Return the refusal. It does not tell whether the queue exists: that is not for users without a right to it."""
    return Refusal(Condition.UNAUTHORIZED_ACCESS, f"user {user!r} may not {right.name.lower()} at {address!r:.80}")


class Refusal(Exception):
    """Refusal of a request with a condition of AMQP."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition
