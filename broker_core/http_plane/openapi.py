"""The API described in OpenAPI 3.1, made of the table of actions: what is there is described, and nothing else."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from typing import Any

from .. import __version__
from ..actions import descriptions
from ..actions.requests import ACTIONS, REQUIRED
from . import responses, statuses

PREFIX = "/api/v1/"
_TYPES: dict[type, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer", "format": "int64"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    list: {"type": "array", "items": {"type": ["string", "integer"]}},
    dict: {"type": "object"},
    type(None): {"type": "null"},
}
_FAILURES = {
    400: "The request is wrong: the text says where.",
    401: "Nobody has logged in, or the login holds no longer.",
    403: "This user has not the right, or the request comes from a foreign page.",
    404: "There is no such queue, exchange, lease or stage.",
    405: "What may change something is a POST.",
    409: "What is there does not allow this now.",
    413: "The body is larger than its limit: 1 MiB, or 16 KiB before a login.",
    415: "The content-type is not application/json.",
    421: "The broker is not known by this name.",
    431: "The request has too many headers, or too large ones.",
    500: "The broker, or its disk, has failed: its log says how.",
    501: "The request has a transfer encoding that is not supported.",
    502: "Somebody else has failed, such as the archive's store.",
    503: "The broker is recovering, or too many requests wait.",
    504: "The broker has not answered within a minute; what was asked may be done.",
    507: "A limit is reached: the disk's free-space mark, a size, a count.",
}
_QUEUES = {
    "name": "queue",
    "in": "query",
    "schema": {"type": "array", "items": {"type": "string"}},
    "description": "names of queues; without one the sum of all",
}
_LOGIN = {
    "type": "object",
    "additionalProperties": False,
    "required": ["user", "password"],
    "properties": {"user": {"type": "string"}, "password": {"type": "string"}},
}


@functools.cache
def document() -> bytes:
    """Return the description, as JSON."""
    paths: dict[str, Any] = {**_others()}
    for action in ACTIONS:
        paths[PREFIX + action] = {"post": _post(action)}
        if action in descriptions.READS:
            paths[PREFIX + action]["get"] = _get(action)
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Penstock",
                "version": __version__,
                "description": "What can be asked of a broker by name. Arrow Flight has the same actions.",
            },
            "paths": paths,
            "components": {
                "schemas": responses.COMPONENTS,
                "responses": _errors(),
                "securitySchemes": {
                    "basic": {"type": "http", "scheme": "basic"},
                    "bearer": {"type": "http", "scheme": "bearer"},
                },
            },
            "security": [{}, {"basic": []}, {"bearer": []}],
        }
    ).encode()


def _errors() -> dict[str, Any]:
    """Describe errors by status, each with the codes that it may have."""
    return {
        f"Error{status}": {"description": _FAILURES[status], **_json(_error(codes))} for status, codes in statuses.codes().items()
    }


def _error(codes: list[str]) -> dict[str, Any]:
    code, text = {"type": "string", "enum": codes}, {"type": "string"}
    said = {"type": "object", "required": ["code", "message"], "properties": {"code": code, "message": text}}
    return {"type": "object", "required": ["error"], "properties": {"error": said}}


def _others() -> dict[str, Any]:
    """Describe the paths that are no actions."""
    refused = [401, 403, 421, 503, 504]
    numbers = "Counts of all queues that the caller may know of, a list for each column."
    plots = "The last hour of queues, by samples."
    login = {"required": True, "content": {"application/json": {"schema": _LOGIN}}}
    text = {"content": {media: {"schema": {"type": "string"}} for media in ("application/openmetrics-text", "text/plain")}}
    ready = {"503": {"description": "It takes no messages.", **_json(responses.READY)}}
    dead = {"503": {"description": "Its loops did not answer: restart it.", **_json(responses.LIVE)}}
    return {
        f"{PREFIX}counts": {"get": _path("counts", numbers, responses.COUNTS, refused)},
        f"{PREFIX}history": {"get": {**_path("history", plots, responses.HISTORY, refused), "parameters": [_QUEUES]}},
        f"{PREFIX}session": {
            "get": _path("get-session", "Says who asks.", responses.SESSION, refused),
            "post": {
                **_path("log-in", "Logs in, with a cookie.", responses.SESSION, [400, 413, 415, *refused]),
                "requestBody": login,
            },
            "delete": _path("log-out", "Logs out.", None, refused),
        },
        f"{PREFIX}openapi.json": {"get": _path("openapi", "This description.", {"type": "object"}, [421, 503, 504])},
        "/health/live": {"get": _path("live", "Says whether the broker lives.", responses.LIVE, [], dead)},
        "/health/ready": {"get": _path("ready", "Says whether the broker takes messages.", responses.READY, [504], ready)},
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


def _post(action: str) -> dict[str, Any]:
    fields = ACTIONS[action]
    schema: dict[str, Any] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _schema(action, name) for name in fields},
    }
    required = [name for name, (_, default) in fields.items() if default is REQUIRED]
    if required:
        schema["required"] = required
    body = {"required": bool(required), "content": {"application/json": {"schema": schema}}}
    return {**_operation(action, "post"), "requestBody": body}


def _get(action: str) -> dict[str, Any]:
    parameters = [
        {
            "name": name,
            "in": "query",
            "required": default is REQUIRED,
            "description": descriptions.of_field(action, name),
            "schema": _schema(action, name),
        }
        for name, (_, default) in ACTIONS[action].items()
    ]
    return {**_operation(action, "get"), **({"parameters": parameters} if parameters else {})}


def _operation(action: str, method: str) -> dict[str, Any]:
    return {
        "operationId": f"{method}-{action}",
        "summary": descriptions.ABOUT[action],
        "tags": [action.partition(".")[0]],
        "responses": {"200": {"description": "Done.", **_json(responses.ANSWERS[action])}, **_failures(_FAILURES)},
    }


def _schema(action: str, name: str) -> dict[str, Any]:
    types, default = ACTIONS[action][name]
    allowed = [_TYPES[each] for each in (types if isinstance(types, tuple) else (types,))]
    schema = dict(allowed[0]) if len(allowed) == 1 else {"anyOf": allowed}
    if default is not REQUIRED:
        schema["default"] = default
    return {**schema, "description": descriptions.of_field(action, name)}
