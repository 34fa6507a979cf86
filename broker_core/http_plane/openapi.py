"""The API described in OpenAPI 3.1, made of the table of actions: what is there is described, and nothing else."""

from __future__ import annotations

import functools
import json
from typing import Any

from .. import __version__
from ..actions import descriptions
from ..actions.requests import ACTIONS, REQUIRED

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
    409: "What is there does not allow this now.",
    413: "The request is larger than 1 MiB.",
    503: "The broker is recovering, or too many requests wait.",
    507: "A limit is reached: the disk's free-space mark, a size, a count.",
}


@functools.cache
def document() -> bytes:
    """Return the description, as JSON."""
    paths: dict[str, Any] = {}
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
                "schemas": {"Error": _ERROR},
                "securitySchemes": {
                    "basic": {"type": "http", "scheme": "basic"},
                    "bearer": {"type": "http", "scheme": "bearer"},
                },
            },
            "security": [{}, {"basic": []}, {"bearer": []}],
        }
    ).encode()


_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}


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
    answers: dict[str, Any] = {"200": {"description": "Done.", "content": {"application/json": {"schema": {"type": "object"}}}}}
    for status, text in _FAILURES.items():
        error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        answers[str(status)] = {"description": text, "content": error}
    return {
        "operationId": f"{method}-{action}",
        "summary": descriptions.ABOUT[action],
        "tags": [action.partition(".")[0]],
        "responses": answers,
    }


def _schema(action: str, name: str) -> dict[str, Any]:
    types, default = ACTIONS[action][name]
    allowed = [_TYPES[each] for each in (types if isinstance(types, tuple) else (types,))]
    schema = dict(allowed[0]) if len(allowed) == 1 else {"anyOf": allowed}
    if default is not REQUIRED:
        schema["default"] = default
    return {**schema, "description": descriptions.of_field(action, name)}
