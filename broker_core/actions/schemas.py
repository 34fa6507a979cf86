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
    return {"type": "object", "required": [name for name in properties if name not in optional], "properties": properties}


def properties(schema: Schema, *names: str) -> dict[str, Schema]:
    """Several properties with one schema, for `object_of`."""
    return dict.fromkeys(names, schema)


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
    selector=nullable(TEXT),
    priority=nullable({"type": "integer"}),
    **properties(COUNT, "credit", "unsettled"),
    **properties(nullable({"type": "number", "minimum": 0}), "heldSeconds", "sentPerSecond", "settledPerSecond"),
    lastSettled=nullable(MICROS),
    groups=list_of(TEXT),
    slow=BOOL,
)
QUEUE = {
    "queue": TEXT,
    "type": one_of("fifo", "priority", "lastvalue"),
    "options": map_of(ANY),
    "paused": BOOL,
    **properties(COUNT, "nextSequence", "enqueued", "available", "acquired", "delayed", "deferred", "staged", "stagedBytes"),
    **properties(COUNT, "archived", "bytes", "unread"),
    "leases": list_of(TEXT),
    **properties(
        COUNT, "consumers", "refused", "expired", "deadLettered", "stayed", "malformed", "unrecorded", "unrecordedBytes"
    ),
    **properties(COUNT, "groupStates", "groupStateBytes"),
    "fill": nullable({"type": "number", "minimum": 0, "description": "used part of the limits"}),
    **properties(map_of(COUNT), "refusedMessages", "droppedMessages"),
}
_NEEDED_PAYLOAD = object_of(
    ("queue", "sequence", "state", "stage", "time", "holder"),
    position=COUNT,
    queue=TEXT,
    sequence=COUNT,
    state=one_of("available", "acquired", "delayed", "deferred", "archived"),
    stage=TEXT,
    time=MICROS,
    holder=TEXT,
)
_BODY: Schema = {"anyOf": [object_of(text=TEXT), object_of(base64=TEXT)]}
_VALUE: Schema = {"anyOf": [TEXT, {"type": "number"}, BOOL, _BODY, {"type": "null"}]}
ARCHIVED = {"lag": SECONDS, "error": nullable(TEXT)}
PARTS = list_of(list_of(COUNT))

_MESSAGE_REQUIRED = {
    "sequenceNumber": COUNT,
    "enqueuedTime": TEXT,
    "state": one_of("available", "acquired", "delayed", "deferred", "archived"),
    "bodyBytes": COUNT,
    "cut": list_of(TEXT),
}
_MESSAGE_OPTIONAL = {
    **properties(TEXT, "outcome", "settledTime", "error", "holder", "subject", "to", "replyTo", "contentType"),
    **properties(TEXT, "contentEncoding", "groupId", "creationTime", "absoluteExpiryTime", "due"),
    **properties(_VALUE, "messageId", "correlationId", "userId"),
    **properties(map_of(_VALUE), "properties", "annotations"),
    **properties(COUNT, "deliveryCount", "priority"),
    "body": _BODY,
    "durable": BOOL,
}

_EVENT = object_of(
    ("broker", "deleted"),
    time=nullable(TEXT),
    event=one_of(
        *("arrived", "read", "failed", "settled", "dead-lettered", "moved", "redriven", "recorded"),
        *("available", "acquired", "delayed", "deferred"),
    ),
    queue=TEXT,
    sequenceNumber=COUNT,
    text=TEXT,
    broker=TEXT,
    deleted=BOOL,
)
_LEASED = object_of(lease=TEXT, batch=COUNT, state=TEXT, reads=list_of(object_of(query=TEXT, batch=COUNT)))
_STAY_OPTIONAL = {
    **properties(TEXT, "outcome", "settledTime", "error", "holder", "messageId", "correlationId", "subject", "userId", "due"),
    **properties(TEXT, "payload"),
    "deliveryCount": COUNT,
    "death": object_of(("error",), reason=TEXT, queue=TEXT, sequence=COUNT, error=TEXT),
    "batches": list_of(_LEASED),
    "failures": list_of(object_of(("holder", "error"), **properties(TEXT, "time", "cause", "holder", "error"))),
    "deleted": BOOL,
    "queueId": COUNT,
}
_STAY = object_of(
    tuple(_STAY_OPTIONAL),
    queue=TEXT,
    sequenceNumber=COUNT,
    enqueuedTime=TEXT,
    state=one_of("available", "acquired", "delayed", "deferred", "archived"),
    recorded=BOOL,
    **_STAY_OPTIONAL,
)

#: Schemas that others refer to by name.
COMPONENTS: dict[str, Schema] = {
    "Alarm": object_of(name=TEXT, queue=nullable(TEXT), since=MILLIS, text=TEXT),
    "AuditEntry": object_of(
        **properties(TEXT, "time", "user", "peer", "door", "action", "object"),
        outcome=one_of("done", "refused", "failed"),
        count=nullable(COUNT),
        error=nullable(TEXT),
        details=map_of(ANY),
    ),
    "Connection": object_of(
        ("calls",),
        id=TEXT,
        protocol=one_of("amqp", "flight"),
        **properties(TEXT, "user", "peer", "container"),
        tls=BOOL,
        since=MICROS,
        sessions=COUNT,
        **properties(BOOL, "stalled", "slow"),
        linkCount=COUNT,
        links=list_of(_LINK),
        calls=list_of(TEXT),
    ),
    "Queue": object_of(**QUEUE),
    "Need": _NEEDED_PAYLOAD,
    "Lease": object_of(
        **properties(TEXT, "lease", "name", "queue", "run"),
        query=nullable(TEXT),
        selector=nullable(TEXT),
        **properties(COUNT, "epoch", "finished"),
        checkpointed=BOOL,
        stage=one_of("idle", "acquired", "read"),
        batch=nullable(COUNT),
        messages=COUNT,
        groups=list_of(TEXT),
        renewed=nullable(SECONDS),
    ),
    "History": object_of(
        ("messageId", "correlationId", "subject"),
        **properties(TEXT, "messageId", "correlationId", "subject", "where"),
        events=list_of(_EVENT),
        stays=list_of(_STAY),
    ),
    "Message": object_of(tuple(_MESSAGE_OPTIONAL), **_MESSAGE_REQUIRED, **_MESSAGE_OPTIONAL),
}

COPY = object_of(
    **properties(TEXT, "url", "copy", "state"),
    lagSeconds=SECONDS,
    **properties(COUNT, "lagBytes", "position"),
    error=nullable(TEXT),
    failingSeconds=SECONDS,
)
BACKLOG = object_of(
    available=COUNT,
    oldestSeconds=nullable(SECONDS),
    **properties(COUNT, "inFlight", "redelivered", "deadLettered", "bytes"),
)
BINDING = object_of(
    ("arguments", "selector", "noLocal", "name"),
    queue=TEXT,
    key=TEXT,
    arguments=map_of(ANY),
    selector=TEXT,
    noLocal=TEXT,
    name=TEXT,
)
