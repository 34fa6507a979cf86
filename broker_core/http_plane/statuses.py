"""Errors as HTTP has them: a status, and `{"error": {"code": …, "message": …}}`."""

from __future__ import annotations

import json

from .. import errors

_STATUS: dict[type[errors.PenstockError], int] = {
    errors.InvalidRequest: 400,
    errors.Unauthenticated: 401,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    errors.AlreadyExists: 409,
    errors.InUse: 409,
    errors.Fenced: 409,
    errors.DataLoss: 409,
    errors.WrongOffset: 409,
    errors.IllegalTransition: 409,
    errors.NotMappable: 409,
    errors.NotDelivered: 409,
    errors.ResourceLimit: 507,
}
_BY_FAULT = {"caller": 400, "peer": 502, "storage": 500}
STARTING = 503
MISTAKE = "the broker made a mistake with this request; its log says which: tell who runs it"


def status_of(error: errors.PenstockError) -> int:
    """Return the status of an error of ours."""
    for kind in type(error).__mro__:
        if kind in _STATUS:
            return _STATUS[kind]
    return _BY_FAULT[error.fault]


def body_of(code: str, message: str) -> bytes:
    """Return the body of an answer that is an error. Text that is not Unicode (from a path of the system's) is escaped."""
    return json.dumps({"error": {"code": code, "message": message.encode(errors="backslashreplace").decode()}}).encode()
