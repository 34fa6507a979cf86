"""The description of the API in OpenAPI 3.1, from the declarations of the actions."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Any

from .. import __version__
from ..actions.actions import ACTIONS
from ..actions.declaration import Declaration
from ..actions.fields import FieldSpec, specs_of
from ..actions.schemas import BOOL, COMPONENTS, COUNT, MICROS, MILLIS, SECONDS, TEXT, list_of, map_of, nullable, object_of, one_of
from ..service import history, queue_counts
from . import statuses

PREFIX = "/api/v1/"
_TYPES: dict[type, dict[str, Any]] = {
    str: TEXT,
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    bool: BOOL,
    list: {"type": "array", "items": {"type": ["string", "integer"]}},
    dict: {"type": "object"},
    type(None): {"type": "null"},
}
_FAILURES = {
    400: "The request is invalid: see the message.",
    401: "A login is missing or no longer valid.",
    403: "The user does not have the right, or the request comes from a page of another origin.",
    404: "The queue, exchange, lease or stage does not exist.",
    405: "The action may change something, so it needs POST.",
    409: "The current state does not allow this.",
    413: "The body is larger than its limit: 1 MiB, or 16 KiB before a login.",
    415: "The content-type is not application/json.",
    421: "The broker does not have this host name.",
    431: "The request has too many headers, or too large ones.",
    500: "The broker or its disk has failed: see its log.",
    501: "The request has a transfer encoding that is not supported.",
    502: "Another system has failed, such as the archive's store.",
    503: "The broker is recovering, or too many requests wait.",
    504: "The broker has not answered within a minute. The request may still be carried out.",
    507: "A limit is reached: the disk's free-space mark, a size, a count.",
}
_QUEUES = {
    "name": "queue",
    "in": "query",
    "schema": list_of(TEXT),
    "description": "names of queues; without a name the sum of all queues",
}
_LOGIN = {"type": "object", "additionalProperties": False, **object_of(user=TEXT, password=TEXT)}

_SESSION = object_of(user=nullable(TEXT), rights=map_of(list_of(TEXT)), login=BOOL, csrf=nullable(TEXT))
_REASON = object_of(name=TEXT, since=nullable(MILLIS), text=TEXT)

_FILL = list_of({"type": "integer", "minimum": queue_counts.NO_LIMIT, "description": "thousandths of the limits; -1 without"})
_COUNTS = object_of(time=MICROS, queues=list_of(TEXT), **{**dict.fromkeys(queue_counts.COLUMNS, list_of(COUNT)), "fill": _FILL})
_HISTORY = object_of(time=MICROS, period=SECONDS, queues=map_of(object_of(**dict.fromkeys(history.COLUMNS, list_of(COUNT)))))
_LIVE = object_of(live=BOOL)
_READY = object_of(ready=BOOL, reasons=list_of(_REASON), warnings=list_of(_REASON))


@functools.cache
def document() -> bytes:
    paths: dict[str, Any] = {**_others()}
    for name, action in ACTIONS.items():
        paths[PREFIX + name] = {"post": _post(action)}
        if action.reads:
            paths[PREFIX + name]["get"] = _get(action)
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Penstock",
                "version": __version__,
                "description": "Actions of a broker by name. Arrow Flight has the same actions.",
            },
            "paths": paths,
            "components": {
                "schemas": COMPONENTS,
                "responses": _errors(),
                "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}, "bearer": {"type": "http", "scheme": "bearer"}},
            },
            "security": [{}, {"basic": []}, {"bearer": []}],
        }
    ).encode()


def _errors() -> dict[str, Any]:
    return {
        f"Error{status}": {
            "description": _FAILURES[status],
            **_json(object_of(error=object_of(code=one_of(*codes), message=TEXT))),
        }
        for status, codes in statuses.codes().items()
    }


def _others() -> dict[str, Any]:
    refused = [401, 403, 421, 503, 504]
    numbers = "Returns the counts of all queues that the caller may see, a list for each column."
    plots = "Returns the last hour of queues, as samples."
    login = {"required": True, **_json(_LOGIN)}
    text = {"content": {media: {"schema": {"type": "string"}} for media in ("application/openmetrics-text", "text/plain")}}
    ready = {"503": {"description": "The broker accepts no messages.", **_json(_READY)}}
    dead = {"503": {"description": "The broker's loops do not respond: restart it.", **_json(_LIVE)}}
    return {
        f"{PREFIX}counts": {"get": _path("counts", numbers, _COUNTS, refused)},
        f"{PREFIX}history": {"get": {**_path("history", plots, _HISTORY, refused), "parameters": [_QUEUES]}},
        f"{PREFIX}session": {
            "get": _path("get-session", "Returns the user of the client.", _SESSION, refused),
            "post": {**_path("log-in", "Logs in, with a cookie.", _SESSION, [400, 413, 415, *refused]), "requestBody": login},
            "delete": _path("log-out", "Logs out.", None, refused),
        },
        f"{PREFIX}openapi.json": {"get": _path("openapi", "Returns this description.", {"type": "object"}, [421, 503, 504])},
        "/health/live": {"get": _path("live", "Reports whether the broker is alive.", _LIVE, [], dead)},
        "/health/ready": {"get": _path("ready", "Reports whether the broker accepts messages.", _READY, [504], ready)},
        "/metrics": {
            "get": _path("metrics", "Metrics for Prometheus.", None, refused, {"200": {"description": "Metrics.", **text}})
        },
    }


def _path(
    operation: str, summary: str, answer: dict[str, Any] | None, failures: Iterable[int], more: dict[str, Any] | None = None
) -> dict[str, Any]:
    done = {"200": {"description": "Done.", **_json(answer)}} if answer is not None else {}
    if answer is None and not more:
        done = {"204": {"description": "Done."}}
    return {"operationId": operation, "summary": summary, "responses": {**done, **_failures(failures), **(more or {})}}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _failures(failures: Iterable[int]) -> dict[str, Any]:
    return {str(status): {"$ref": f"#/components/responses/Error{status}"} for status in failures}


def _post(action: Declaration) -> dict[str, Any]:
    specs = specs_of(action.operation.request)
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _schema(spec) for name, spec in specs.items()},
    }
    required = [name for name, spec in specs.items() if spec.is_required]
    schema |= {"required": required} if required else {}
    return {**_operation(action, "post"), "requestBody": {"required": bool(required), **_json(schema)}}


def _get(action: Declaration) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "query", "required": spec.is_required, "description": spec.about, "schema": _schema(spec)}
        for name, spec in specs_of(action.operation.request).items()
    ]
    return {**_operation(action, "get"), **({"parameters": parameters} if parameters else {})}


def _operation(action: Declaration, method: str) -> dict[str, Any]:
    name = action.operation.name
    return {
        "operationId": f"{method}-{name}",
        "summary": action.summary,
        "tags": [name.partition(".")[0]],
        "responses": {"200": {"description": "Done.", **_json(action.reply)}, **_failures(_FAILURES)},
    }


def _schema(spec: FieldSpec) -> dict[str, Any]:
    types = [_TYPES[kind] for kind in spec.types]
    schema = dict(types[0]) if len(types) == 1 else {"anyOf": types}
    default = {} if spec.is_required else {"default": spec.default}
    return {**schema, **default, "description": spec.about}
