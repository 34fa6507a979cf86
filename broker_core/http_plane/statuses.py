"""Errors in HTTP: a status, and `{"error": {"code": …, "message": …}}`."""

from __future__ import annotations

import json

from .. import errors

_STATUS: dict[type[errors.PenstockError], int] = {
    errors.InvalidRequest: 400,
    errors.Unauthenticated: 401,
    errors.NotAllowed: 403,
    errors.NotFound: 404,
    **dict.fromkeys((errors.AlreadyExists, errors.InUse, errors.Fenced, errors.DataLoss, errors.WrongOffset), 409),
    **dict.fromkeys((errors.IllegalTransition, errors.NotMappable, errors.NotDelivered), 409),
    errors.ResourceLimit: 507,
}
_BY_FAULT = {"caller": 400, "peer": 502, "storage": 500}
#: Of HTTP alone; docs/http.md explains them.
OWN_CODES = {
    "UNKNOWN_ACTION": 404,
    "METHOD_NOT_ALLOWED": 405,
    "WRONG_HOST": 421,
    **dict.fromkeys(("FOREIGN_ORIGIN", "CSRF_TOKEN"), 403),
    "NOT_JSON": 415,
    "TOO_LARGE": 413,
    **dict.fromkeys(("RECOVERING", "BUSY"), 503),
    "SILENT": 504,
    "MALFORMED_REQUEST": 400,
    "HEADERS_TOO_LARGE": 431,
    "UNKNOWN_ENCODING": 501,
}
MISTAKE = "internal error: a bug in Penstock. The broker's log has the details: ask its operator to report it"


def status_of(kind: type[errors.PenstockError]) -> int:
    for base in kind.__mro__:
        if base in _STATUS:
            return _STATUS[base]
    return _BY_FAULT[kind.fault]


def codes() -> dict[int, list[str]]:
    by_status: dict[int, list[str]] = {500: [errors.PenstockError.code]}
    for code, kind in errors.BY_CODE.items():
        if kind is not errors.PenstockError:
            by_status.setdefault(status_of(kind), []).append(code)
    for code, status in OWN_CODES.items():
        by_status.setdefault(status, []).append(code)
    return {status: sorted(by_status[status]) for status in sorted(by_status)}


def body_of(code: str, message: str) -> bytes:
    """Escapes text that is not Unicode, such as a path of the system."""
    return json.dumps({"error": {"code": code, "message": message.encode(errors="backslashreplace").decode()}}).encode()
