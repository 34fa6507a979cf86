"""Requests: their fields, with types and defaults, for every action, ticket and put of docs/protocols/flight.md."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any

from .. import errors
from ..engine.commands import PublishKey
from ..engine.model.reads import SparkBatch
from ..engine.model.stages import attempt_name
from ..selectors import is_blank
from ..settings import strict_json

MAX_REQUEST_BYTES = 1 << 20  # a request in JSON: `stage.publish` with thousands of stages fits
LARGE_BYTES = 16 << 10  # a request of more is read while no other such one is: as values it may take fifty times its octets
_reading_large = threading.Lock()

REQUIRED = object()  # the default of a field without one
Fields = dict[str, tuple[type | tuple[type, ...], Any]]
TEXT, INT, _BOOL = (str, REQUIRED), (int, REQUIRED), (bool, False)
_OPTIONAL_INT, _OPTIONAL_TEXT = ((int, type(None)), None), ((str, type(None)), None)
_LEASE: Fields = {"queue": TEXT, "lease": TEXT, "run": TEXT, "epoch": ((int, type(None)), REQUIRED)}
_SHIFT: Fields = {"queue": TEXT, "messages": _OPTIONAL_INT, "first": (int, 0), "last": _OPTIONAL_INT}
# Of a consumer of several queues: the lease that it took up first, and its epoch of that.
_HEAD: Fields = {"head": ((dict, type(None)), None)}
HEAD: Fields = {"lease": TEXT, "epoch": INT}
_LOSS: Fields = {"failOnDataLoss": (bool, True)}
_PLAN: Fields = {"minPartitions": (int, 1), "maxMessages": _OPTIONAL_INT}
_READER: Fields = {"query": _OPTIONAL_TEXT, "queryBatch": _OPTIONAL_INT}  # a batch of Spark's
_ATTEMPT: Fields = {"stage": _OPTIONAL_TEXT, "write": _OPTIONAL_TEXT, "attempt": _OPTIONAL_INT}
_KEY: Fields = {"kind": TEXT, "id": TEXT, "number": INT}
_LEAST = {"finished": 0, "after": 0, "waitMs": 0, "messages": 1, "bytes": 1, "minPartitions": 1, "maxMessages": 1, "buckets": 1}
_LEAST |= {"attempt": 0, "base": 0, "batch": 0}
_LEAST_OF = {(action, place): 0 for action in ("queue.move", "queue.copy") for place in ("first", "last")}

_LOOK: Fields = {
    "queue": TEXT,
    "states": (list, ["available"]),
    "first": (int, 0),
    "last": _OPTIONAL_INT,
    "since": _OPTIONAL_INT,
    "until": _OPTIONAL_INT,
    "outcome": _OPTIONAL_TEXT,
}

#: Rows of the archive's table: see `archive.bounds`.
_BOUNDS: Fields = {
    "queueId": _OPTIONAL_INT,
    "lineages": (list, REQUIRED),
    "recordedAfter": _OPTIONAL_INT,
    **{name: _LOOK[name] for name in ("first", "last", "since", "until", "outcome")},
    "settledSince": _OPTIONAL_INT,
    "settledUntil": _OPTIONAL_INT,
}

ACTIONS: dict[str, Fields] = {
    "hello": {},
    "connection.list": {},
    "connection.close": {"id": TEXT, "reason": _OPTIONAL_TEXT},
    "user.list": {},
    "broker.status": {},
    "broker.journal": {},
    "queue.declare": {"queue": TEXT, "type": (str, "fifo"), "options": (dict, {})},
    "queue.delete": {"queue": TEXT, "force": _BOOL, "ifEmpty": _BOOL, "ifUnused": _BOOL},
    "queue.list": {},
    "queue.stat": {"queue": TEXT},
    "queue.options": {},
    "queue.messages": {
        "queue": TEXT,
        "states": (list, ["available"]),
        "first": (int, 0),
        "count": (int, 50),
        "selector": _OPTIONAL_TEXT,
    },
    "archive.status": {},
    "queue.alter": {"queue": TEXT, "options": (dict, {})},
    "queue.pause": {"queue": TEXT},
    "queue.resume": {"queue": TEXT},
    "queue.purge": {"queue": TEXT},
    "queue.move": {**_SHIFT, "target": TEXT},
    "queue.copy": {**_SHIFT, "target": TEXT},
    "queue.discard": {"queue": TEXT, "sequence": INT, "last": _OPTIONAL_INT, "error": _OPTIONAL_TEXT},
    "queue.redrive": {
        "queue": TEXT,
        "messages": _OPTIONAL_INT,
        "ranges": ((list, type(None)), None),
        "selector": _OPTIONAL_TEXT,
    },
    "exchange.declare": {"exchange": TEXT, "type": (str, "direct"), "options": (dict, {})},
    "exchange.delete": {"exchange": TEXT},
    "exchange.list": {},
    "exchange.bind": {
        "exchange": TEXT,
        "queue": TEXT,
        "key": (str, ""),
        "arguments": (dict, {}),
        "selector": _OPTIONAL_TEXT,
        "noLocal": _OPTIONAL_TEXT,
    },
    "exchange.unbind": {"exchange": TEXT, "queue": TEXT, "key": _OPTIONAL_TEXT},
    "browse.plan": {**_LOOK, **_PLAN},
    "archive.plan": {**_LOOK, **_PLAN},
    "archive.files": {"queue": TEXT, "version": _OPTIONAL_INT, **_BOUNDS},
    "stage.publish": {
        "stages": (list, []),
        "write": _OPTIONAL_TEXT,
        "base": (int, 0),
        "attempts": (list, []),
        "key": ((dict, type(None)), None),
        "elsewhere": _OPTIONAL_TEXT,
        **_READER,
    },
    "stage.published": _KEY,
    "stage.discard": {"stages": (list, []), "write": _OPTIONAL_TEXT, "attempts": (list, [])},
    "stage.list": {},
    "lease.advance": {
        **_LEASE,
        **_LOSS,
        "finished": INT,
        "fresh": _BOOL,
        "waiting": _BOOL,
        "messages": _OPTIONAL_INT,
        "bytes": _OPTIONAL_INT,
        "until": _OPTIONAL_INT,
        "waitMs": (int, 0),
        "exclude": _BOOL,
        "leaseTimeout": ((int, float, type(None)), None),
        "selector": _OPTIONAL_TEXT,
        "alone": (bool, True),
        "measure": _BOOL,
        "plan": _BOOL,
        "counts": _BOOL,
        "sign": _OPTIONAL_TEXT,
        **_HEAD,
        **_PLAN,
    },
    "lease.plan": {
        **_LEASE,
        **_LOSS,
        "after": INT,
        "batch": INT,
        "afterSign": _OPTIONAL_TEXT,
        "batchSign": _OPTIONAL_TEXT,
        **_HEAD,
        **_PLAN,
    },
    "lease.settle": {**_LEASE, **_LOSS, "finished": INT, "sign": _OPTIONAL_TEXT, **_HEAD},
    "lease.renew": {"lease": TEXT, "run": _OPTIONAL_TEXT, "epoch": INT},
    "lease.list": {},
    "lease.release": {"lease": TEXT, "how": TEXT},
    "lease.settleRow": {"lease": TEXT, "sequence": INT, "outcome": TEXT, "error": ((str, type(None)), None)},
    "lease.setAside": {"lease": TEXT, "run": _OPTIONAL_TEXT, "epoch": INT, "batch": INT, "reasons": (dict, REQUIRED)},
    "lease.delete": {"lease": TEXT},
}
_BATCH: Fields = {
    "op": TEXT,
    "lease": TEXT,
    "run": TEXT,
    "epoch": INT,
    "batch": INT,
    "first": INT,
    "last": INT,
    "bucket": (int, 0),
    "buckets": (int, 1),
    "columns": (list, REQUIRED),
    **_READER,
}
TICKETS: dict[str, Fields] = {
    "batch": {**_BATCH, **_LOSS, "stored": _BOOL},
    "map": {**_BATCH, **_LOSS, "orMessages": _BOOL, "host": _OPTIONAL_TEXT},
    "browse": {
        "op": TEXT,
        **_LOOK,
        "selector": _OPTIONAL_TEXT,
        "columns": (list, REQUIRED),
        "stored": _BOOL,
        "recordedAfter": _OPTIONAL_INT,
    },
    "archive": {
        "op": TEXT,
        "queue": TEXT,
        "path": TEXT,
        "part": (int, 0),
        "parts": (int, 1),
        "version": _OPTIONAL_INT,
        **_BOUNDS,
        "selector": _OPTIONAL_TEXT,
        "columns": (list, REQUIRED),
        "stored": _BOOL,
    },
}
_TARGET: Fields = {"op": TEXT, "queue": _OPTIONAL_TEXT, "exchange": _OPTIONAL_TEXT, "routingKey": _OPTIONAL_TEXT}
PUTS: dict[str, Fields] = {
    "enqueue": _TARGET,
    "stage": {**_TARGET, **_ATTEMPT, "routed": _BOOL},
    "settle": {"op": TEXT, **_ATTEMPT, "lease": TEXT},
}


def parse(what: str, data: bytes, known: Fields) -> dict[str, Any]:
    """A request's fields, checked against what is known; anything else is refused by name."""
    with _turn(data):
        return _checked(what, _json(what, data), known)


def from_query(action: str, pairs: list[list[str]]) -> bytes:
    """Make a request in JSON of a URL's query: names and values. A list comes as several pairs of one name, an object in JSON."""
    request: dict[str, Any] = {}
    for name, text in pairs:
        types = ACTIONS[action].get(name, (str, None))[0]
        allowed = types if isinstance(types, tuple) else (types,)
        if list in allowed:
            request.setdefault(name, []).append(_typed(text))
        elif name in request:
            raise errors.InvalidRequest(f"{action}: field {name!r:.80} is there twice")
        else:
            request[name] = text if str in allowed else _typed(text)
    return json.dumps(request).encode()


def _typed(text: str) -> Any:
    """A number, a boolean or an object is written as in JSON; anything else is a text."""
    try:
        return strict_json.loads(text)
    except ValueError:
        return text


def _turn(data: bytes) -> contextlib.AbstractContextManager[Any]:
    """Large requests are read one after another: what they hold is mostly refused, and then its memory is free for the next."""
    return _reading_large if len(data) > LARGE_BYTES else contextlib.nullcontext()


def _checked(what: str, request: dict[str, Any], known: Fields) -> dict[str, Any]:
    for name in request:
        if name not in known:
            raise errors.InvalidRequest(f"{what}: unknown field {name!r:.80}; known are {', '.join(known) or 'none'}")
    values = {}
    for name, (types, default) in known.items():
        value = request.get(name, default)
        if value is REQUIRED:
            raise errors.InvalidRequest(f"{what}: field {name!r} is missing")
        allowed = types if isinstance(types, tuple) else (types,)
        if type(value) not in allowed or (isinstance(value, int) and not -(2**63) <= value < 2**63):
            raise errors.InvalidRequest(
                f"{what}: field {name!r} must be {' or '.join(t.__name__ for t in allowed)}, not {_shown(value)}"
            )
        if type(value) is list and any(type(each) in (list, dict) for each in value):
            raise errors.InvalidRequest(
                f"{what}: field {name!r} must be a list of strings or of numbers, not of lists or objects"
            )
        least = _LEAST_OF.get((what, name), _LEAST.get(name))
        if least is not None and value is not None and value < least:
            raise errors.InvalidRequest(f"{what}: field {name!r} must be at least {least}, not {value}")
        values[name] = None if name == "selector" and isinstance(value, str) and is_blank(value) else value
    return values


def _shown(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, (list, dict)) else f"{value!r:.80}"


def _json(what: str, data: bytes) -> dict[str, Any]:
    if len(data) > MAX_REQUEST_BYTES:
        raise errors.InvalidRequest(f"{what}: a request has at most {MAX_REQUEST_BYTES} bytes, this one {len(data)}")
    try:
        request = strict_json.loads(data)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidRequest(f"{what}: the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise errors.InvalidRequest(f"{what}: the request is not a JSON object")
    if b"\\u" in data and not _is_unicode(request):
        raise errors.InvalidRequest(f"{what}: a text has half of a surrogate pair, which is no character")
    return request


def _is_unicode(request: Any) -> bool:
    try:
        json.dumps(request, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def by_op(data: bytes, known: dict[str, Fields]) -> dict[str, Any]:
    """Parse a request whose field `op` says which it is. Raises InvalidRequest."""
    with _turn(data):
        op = _json("request", data).get("op")
    if not isinstance(op, str) or op not in known:
        raise errors.InvalidRequest(f"field 'op' must be one of {', '.join(known)}, not {_shown(op)}")
    return parse(op, data, known[op])


def strings(what: str, values: list[Any]) -> list[str]:
    """Check for a list of strings. Raises InvalidRequest."""
    if not all(isinstance(value, str) for value in values):
        raise errors.InvalidRequest(f"{what} must be a list of strings")
    return values


def numbers(what: str, values: list[Any]) -> list[int]:
    """Check for a list of whole numbers from 0 on. Raises InvalidRequest."""
    if not all(type(value) is int and 0 <= value < 2**62 for value in values):
        raise errors.InvalidRequest(f"{what} must be a list of whole numbers from 0 on")
    return values


def stage_of(fields: dict[str, Any]) -> str:
    """The stage that a put fills: one by itself, or that of an attempt of a write."""
    stage, write, attempt = fields["stage"], fields["write"], fields["attempt"]
    if stage is not None and write is None and attempt is None:
        return str(stage)
    if stage is None and write is not None and attempt is not None:
        return attempt_name(write, attempt)
    raise errors.InvalidRequest(f"{fields['op']}: field 'stage' must be there, or 'write' and 'attempt', and not both")


def reader_of(fields: dict[str, Any]) -> SparkBatch | None:
    """The batch of Spark's that a request is made for."""
    query, number = fields["query"], fields["queryBatch"]
    if (query is None) != (number is None):
        raise errors.InvalidRequest("fields 'query' and 'queryBatch' must both be there, or none of them")
    return None if query is None else SparkBatch(query, number)


def key_of(what: str, value: dict[str, Any]) -> PublishKey:
    """Parse the key of a publish. Raises InvalidRequest."""
    fields = parse(f"{what}: key", json.dumps(value).encode(), _KEY)
    if fields["kind"] not in ("stream", "txn"):
        raise errors.InvalidRequest(f"{what}: key.kind must be 'stream' or 'txn'")
    return PublishKey(**fields)
