"""JSON schemas of replies, for the OpenAPI document. A test compares them with real replies."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
BOOL: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "format": "int64", "minimum": 0}
SECONDS: Schema = {"type": "number", "minimum": 0, "description": "seconds"}
MICROS: Schema = {"type": "integer", "format": "int64", "description": "microseconds since 1970"}
MILLIS: Schema = {"type": "integer", "format": "int64", "description": "milliseconds since 1970"}
ANY: Schema = {}


def object_of(optional: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """All properties are required except the `optional` ones."""
    return {"type": "object", "required": [name for name in properties if name not in optional], "properties": properties}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def map_of(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def component(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_LINK = object_of(
    name=TEXT,
    role=one_of("consumer", "browser", "producer"),
    queue=TEXT,
    credit=COUNT,
    unsettled=COUNT,
    heldSeconds=nullable(SECONDS),
    groups=list_of(TEXT),
    slow=BOOL,
)
QUEUE = {
    "queue": TEXT,
    "type": one_of("fifo", "priority", "lastvalue"),
    "options": map_of(ANY),
    "paused": BOOL,
    **dict.fromkeys(("nextSequence", "enqueued", "available", "acquired", "delayed", "staged", "stagedBytes"), COUNT),
    **dict.fromkeys(("archived", "bytes", "unread"), COUNT),
    "leases": list_of(TEXT),
    **dict.fromkeys(("consumers", "refused", "expired", "deadLettered", "stayed", "malformed"), COUNT),
    **dict.fromkeys(("unrecorded", "unrecordedBytes"), COUNT),
}
_NEEDED_PAYLOAD = object_of(
    ("queue", "sequence", "state", "stage", "time"),
    position=COUNT,
    queue=TEXT,
    sequence=COUNT,
    state=one_of("available", "acquired", "delayed", "archived"),
    stage=TEXT,
    time=MICROS,
)
_BODY: Schema = {"anyOf": [object_of(text=TEXT), object_of(base64=TEXT)]}
_VALUE: Schema = {"anyOf": [TEXT, {"type": "number"}, BOOL, _BODY, {"type": "null"}]}
ARCHIVED = {"lag": SECONDS, "error": nullable(TEXT)}
PARTS = list_of(list_of(COUNT))

_MESSAGE_REQUIRED = {
    "sequenceNumber": COUNT,
    "enqueuedTime": TEXT,
    "state": one_of("available", "acquired", "delayed", "archived"),
    "bodyBytes": COUNT,
    "cut": list_of(TEXT),
}
_MESSAGE_OPTIONAL = {
    **dict.fromkeys(("outcome", "settledTime", "error", "holder", "subject", "to", "replyTo", "contentType"), TEXT),
    **dict.fromkeys(("contentEncoding", "groupId", "creationTime", "absoluteExpiryTime"), TEXT),
    **dict.fromkeys(("messageId", "correlationId", "userId"), _VALUE),
    **dict.fromkeys(("properties", "annotations"), map_of(_VALUE)),
    **dict.fromkeys(("deliveryCount", "priority"), COUNT),
    "body": _BODY,
    "durable": BOOL,
}

#: Schemas that others refer to by name.
COMPONENTS: dict[str, Schema] = {
    "Alarm": object_of(name=TEXT, queue=nullable(TEXT), since=MILLIS, text=TEXT),
    "Connection": object_of(
        ("calls",),
        id=TEXT,
        protocol=one_of("amqp", "flight"),
        user=TEXT,
        peer=TEXT,
        container=TEXT,
        tls=BOOL,
        since=MICROS,
        sessions=COUNT,
        stalled=BOOL,
        slow=BOOL,
        linkCount=COUNT,
        links=list_of(_LINK),
        calls=list_of(TEXT),
    ),
    "Queue": object_of(**QUEUE),
    "Need": _NEEDED_PAYLOAD,
    "Lease": object_of(
        lease=TEXT,
        name=TEXT,
        queue=TEXT,
        run=TEXT,
        selector=nullable(TEXT),
        epoch=COUNT,
        finished=COUNT,
        checkpointed=BOOL,
        stage=one_of("idle", "acquired", "read"),
        batch=nullable(COUNT),
        messages=COUNT,
        groups=list_of(TEXT),
        renewed=nullable(SECONDS),
    ),
    "Message": object_of(tuple(_MESSAGE_OPTIONAL), **_MESSAGE_REQUIRED, **_MESSAGE_OPTIONAL),
}

COPY = object_of(
    url=TEXT,
    copy=TEXT,
    state=TEXT,
    lagSeconds=SECONDS,
    lagBytes=COUNT,
    position=COUNT,
    error=nullable(TEXT),
    failingSeconds=SECONDS,
)
BACKLOG = object_of(
    available=COUNT,
    oldestSeconds=nullable(SECONDS),
    inFlight=COUNT,
    redelivered=COUNT,
    deadLettered=COUNT,
    bytes=COUNT,
)
BINDING = object_of(
    ("arguments", "selector", "noLocal"), queue=TEXT, key=TEXT, arguments=map_of(ANY), selector=TEXT, noLocal=TEXT
)
