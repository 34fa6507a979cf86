"""Penstock's errors as AMQP's conditions (2.8.15)."""

from __future__ import annotations

from .. import errors
from ..amqp import Condition
from ..amqp.errors import RemoteProtocolError
from ..amqp.performatives import Error

MAX_DESCRIPTION = 300  # octets: an error must fit any frame, and the smallest has 512

_CONDITIONS: dict[type[errors.PenstockError], str] = {
    errors.InvalidRequest: Condition.INVALID_FIELD,
    errors.NotFound: Condition.NOT_FOUND,
    errors.AlreadyExists: Condition.PRECONDITION_FAILED,
    errors.InUse: Condition.RESOURCE_LOCKED,
    errors.IllegalTransition: Condition.ILLEGAL_STATE,
    errors.UnknownTransaction: Condition.TRANSACTION_UNKNOWN_ID,
    errors.TransactionRolledBack: Condition.TRANSACTION_ROLLBACK,
    errors.TransactionTimedOut: Condition.TRANSACTION_TIMEOUT,
    errors.ResourceLimit: Condition.RESOURCE_LIMIT_EXCEEDED,
    errors.NotAllowed: Condition.UNAUTHORIZED_ACCESS,
    errors.Unauthenticated: Condition.UNAUTHORIZED_ACCESS,
}


def as_error(error: Exception) -> Error:
    if isinstance(error, (Refusal, RemoteProtocolError)):
        return Error(condition=error.condition, description=_short(error.description))
    condition = next((_CONDITIONS[kind] for kind in type(error).__mro__ if kind in _CONDITIONS), Condition.INTERNAL_ERROR)
    return Error(condition=condition, description=_short(str(error)))


def deleted(node: str) -> Error:
    return Error(condition=Condition.RESOURCE_DELETED, description=_short(f"{node!r} was deleted"))


def _short(text: str) -> str:
    octets = text.encode("utf-8", "replace")
    if len(octets) <= MAX_DESCRIPTION:
        return octets.decode()
    return octets[: MAX_DESCRIPTION - len(" …".encode())].decode("utf-8", "ignore") + " …"


class Refusal(Exception):
    """Refusal of a request with a condition of AMQP."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition, self.description = condition, description
