"""Answers of the API as schemas: by action, and of the paths that are no actions. A test compares them with real answers."""

from __future__ import annotations

from typing import Any

from ..service import history, queue_counts

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
BOOL: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "format": "int64", "minimum": 0}
SECONDS: Schema = {"type": "number", "minimum": 0, "description": "seconds"}
MICROS: Schema = {"type": "integer", "format": "int64", "description": "microseconds since 1970"}
MILLIS: Schema = {"type": "integer", "format": "int64", "description": "milliseconds since 1970"}
ANY: Schema = {}


def _object(optional: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """Make an object whose properties are all there, but for the optional ones."""
    return {"type": "object", "required": [name for name in properties if name not in optional], "properties": properties}


def _null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _map(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def _one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_LINK = _object(
    name=TEXT,
    role=_one_of("consumer", "browser", "producer"),
    queue=TEXT,
    credit=COUNT,
    unsettled=COUNT,
    heldSeconds=_null(SECONDS),
    groups=_list(TEXT),
    slow=BOOL,
)
_QUEUE = {
    "queue": TEXT,
    "type": _one_of("fifo", "priority", "lastvalue"),
    "options": _map(ANY),
    "paused": BOOL,
    **dict.fromkeys(("nextSequence", "enqueued", "available", "acquired", "delayed", "staged", "stagedBytes"), COUNT),
    **dict.fromkeys(("archived", "bytes", "unread"), COUNT),
    "leases": _list(TEXT),
    **dict.fromkeys(("consumers", "refused", "expired", "deadLettered", "stayed", "malformed"), COUNT),
    **dict.fromkeys(("unrecorded", "unrecordedBytes"), COUNT),
}
_NEED = _object(
    ("queue", "sequence", "state", "stage", "time"),
    position=COUNT,
    queue=TEXT,
    sequence=COUNT,
    state=_one_of("available", "acquired", "delayed", "archived"),
    stage=TEXT,
    time=MICROS,
)
_BODY: Schema = {"anyOf": [_object(text=TEXT), _object(base64=TEXT)]}
_VALUE: Schema = {"anyOf": [TEXT, {"type": "number"}, BOOL, _BODY, {"type": "null"}]}
_ARCHIVED = {"lag": SECONDS, "error": _null(TEXT)}
_PARTS = _list(_list(COUNT))
_SESSION = _object(user=_null(TEXT), rights=_map(_list(TEXT)), login=BOOL, csrf=_null(TEXT))
_REASON = _object(name=TEXT, since=_null(MILLIS), text=TEXT)

#: Schemas that others name.
COMPONENTS: dict[str, Schema] = {
    "Alarm": _object(name=TEXT, queue=_null(TEXT), since=MILLIS, text=TEXT),
    "Connection": _object(
        ("calls",),
        id=TEXT,
        protocol=_one_of("amqp", "flight"),
        user=TEXT,
        peer=TEXT,
        container=TEXT,
        tls=BOOL,
        since=MICROS,
        sessions=COUNT,
        stalled=BOOL,
        slow=BOOL,
        linkCount=COUNT,
        links=_list(_LINK),
        calls=_list(TEXT),
    ),
    "Queue": _object(**_QUEUE),
    "Need": _NEED,
    "Lease": _object(
        lease=TEXT,
        name=TEXT,
        queue=TEXT,
        run=TEXT,
        selector=_null(TEXT),
        epoch=COUNT,
        finished=COUNT,
        checkpointed=BOOL,
        stage=_one_of("idle", "acquired", "read"),
        batch=_null(COUNT),
        messages=COUNT,
        groups=_list(TEXT),
        renewed=_null(SECONDS),
    ),
    "Message": _object(
        (
            *(
                "outcome",
                "settledTime",
                "error",
                "holder",
                "deliveryCount",
                "body",
                "messageId",
                "correlationId",
                "subject",
                "to",
                "replyTo",
            ),
            *("contentType", "contentEncoding", "groupId", "userId", "priority", "durable", "creationTime"),
            *("absoluteExpiryTime", "properties", "annotations"),
        ),
        sequenceNumber=COUNT,
        enqueuedTime=TEXT,
        state=_one_of("available", "acquired", "delayed", "archived"),
        outcome=TEXT,
        settledTime=TEXT,
        error=TEXT,
        holder=TEXT,
        deliveryCount=COUNT,
        body=_BODY,
        messageId=_VALUE,
        correlationId=_VALUE,
        subject=TEXT,
        to=TEXT,
        replyTo=TEXT,
        contentType=TEXT,
        contentEncoding=TEXT,
        groupId=TEXT,
        userId=_VALUE,
        priority=COUNT,
        durable=BOOL,
        creationTime=TEXT,
        absoluteExpiryTime=TEXT,
        properties=_map(_VALUE),
        annotations=_map(_VALUE),
        bodyBytes=COUNT,
        cut=_list(TEXT),
    ),
}

_COPY = _object(
    url=TEXT,
    copy=TEXT,
    state=TEXT,
    lagSeconds=SECONDS,
    lagBytes=COUNT,
    position=COUNT,
    error=_null(TEXT),
    failingSeconds=SECONDS,
)
_BACKLOG = _object(
    available=COUNT,
    oldestSeconds=_null(SECONDS),
    inFlight=COUNT,
    redelivered=COUNT,
    deadLettered=COUNT,
    bytes=COUNT,
)
_BINDING = _object(("arguments", "selector", "noLocal"), queue=TEXT, key=TEXT, arguments=_map(ANY), selector=TEXT, noLocal=TEXT)

#: By action, what a request that is carried out is answered with.
ANSWERS: dict[str, Schema] = {
    "hello": _object(version=COUNT, product=TEXT, broker=TEXT, dataDir=TEXT, flight=TEXT),
    "connection.list": _object(connections=_list(_named("Connection"))),
    "connection.close": _object(id=TEXT, closed=BOOL),
    "user.list": _object(
        enforced=BOOL, users=_list(_object(user=TEXT, password=BOOL, certificates=_list(TEXT), rights=_map(_list(TEXT))))
    ),
    "broker.status": _object(
        ("directory",),
        broker=TEXT,
        end=COUNT,
        journalBytes=COUNT,
        freeBytes=COUNT,
        copy=_null(_COPY),
        alarms=_list(_named("Alarm")),
        version=TEXT,
        startedAt=MICROS,
        uptimeSeconds=COUNT,
        listeners=_list(TEXT),
        users=COUNT,
        directory=TEXT,
    ),
    "broker.journal": _object(
        **dict.fromkeys(("bytes", "heldBytes", "neededBytes", "mostBytes", "retentionMark", "snapshot"), COUNT),
        oldest=_null(_named("Need")),
        queues=_list(_object(queue=TEXT, neededBytes=COUNT)),
        segments=_list(_object(begin=COUNT, end=COUNT, bytes=COUNT, neededBytes=COUNT, kept=_null(TEXT))),
    ),
    "queue.declare": _object(queue=TEXT, created=BOOL),
    "queue.delete": _object(queue=TEXT, messages=COUNT),
    "queue.list": _object(queues=_list(_named("Queue"))),
    "queue.stat": _object(
        ("archive",),
        **_QUEUE,
        archive=_object(table=_null(TEXT), diskFullIn=_null(SECONDS), **_ARCHIVED),
        deadLetters=_map(COUNT),
        damaged=_list(TEXT),
        oldest=_null(_named("Need")),
    ),
    "queue.options": _object(
        options=_map(_object(default=ANY, allowed=TEXT, alterable=BOOL, on_arrival=BOOL, help=TEXT, type=_null(TEXT)))
    ),
    "queue.messages": _object(("hints",), queue=TEXT, messages=_list(_named("Message")), next=_null(COUNT), hints=_list(TEXT)),
    "archive.status": _object(
        ("retention", "process", "unrecorded", "unrecordedBytes", "lag", "behind", "passes", "recorded", "diskFullIn"),
        archive=TEXT,
        retention=_null(SECONDS),
        process=_null(COUNT),
        unrecorded=COUNT,
        unrecordedBytes=COUNT,
        lag=SECONDS,
        behind=BOOL,
        passes=COUNT,
        recorded=COUNT,
        diskFullIn=_null(SECONDS),
        queues=_list(
            _object(
                queue=TEXT,
                id=COUNT,
                deleted=BOOL,
                unrecorded=COUNT,
                unrecordedBytes=COUNT,
                **_ARCHIVED,
            )
        ),
    ),
    "queue.alter": _object(queue=TEXT, altered=BOOL),
    "queue.pause": _object(queue=TEXT, changed=BOOL),
    "queue.resume": _object(queue=TEXT, changed=BOOL),
    "queue.purge": _object(purged=COUNT),
    "queue.move": _object(moved=COUNT, full=BOOL),
    "queue.copy": _object(copied=COUNT, full=BOOL),
    "queue.discard": _object(discarded=COUNT),
    "queue.redrive": _object(("hints",), redriven=COUNT, stayed=COUNT, hints=_list(TEXT)),
    "exchange.declare": _object(exchange=TEXT, created=BOOL),
    "exchange.delete": _object(exchange=TEXT),
    "exchange.list": _object(
        exchanges=_list(
            _object(
                exchange=TEXT,
                type=_one_of("direct", "fanout", "topic", "headers"),
                options=_map(ANY),
                bindings=_list(_BINDING),
            )
        )
    ),
    "exchange.bind": _object(("hints",), created=BOOL, hints=_list(TEXT)),
    "exchange.unbind": _object(unbound=COUNT),
    "browse.plan": _object(parts=_PARTS),
    "archive.plan": _object(
        parts=_PARTS,
        table=_null(
            _object(url=TEXT, broker=TEXT, queueId=COUNT, lineages=_list({"type": ["string", "integer"]}), version=COUNT)
        ),
    ),
    "archive.files": _object(version=_null(COUNT), files=_list(_list({"type": ["string", "integer", "null"]})), outdated=BOOL),
    "stage.publish": _object(published=COUNT, repeated=BOOL),
    "stage.published": _object(published=BOOL, elsewhere=_null(TEXT)),
    "stage.discard": _object(discarded=COUNT),
    "stage.list": _object(
        stages=_list(_object(stage=TEXT, queues=_list(TEXT), attempts=COUNT, messages=COUNT, bytes=COUNT, age=_null(SECONDS)))
    ),
    "lease.advance": _object(
        ("sign", "unread", "messages", "bytes", "parts", "counts", "more", "hints"),
        epoch=_null(COUNT),
        batch=COUNT,
        sign=TEXT,
        unread=COUNT,
        messages=COUNT,
        bytes=COUNT,
        parts=_PARTS,
        counts=_BACKLOG,
        more=BOOL,
        hints=_list(TEXT),
    ),
    "lease.plan": _object(epoch=COUNT, parts=_PARTS),
    "lease.settle": _object(epoch=_null(COUNT), settled=COUNT, unread=COUNT),
    "lease.renew": _object(lease=TEXT),
    "lease.list": _object(leases=_list(_named("Lease"))),
    "lease.release": _object(messages=COUNT),
    "lease.settleRow": _object(sequence=COUNT),
    "lease.setAside": _object(messages=COUNT),
    "lease.delete": _object(lease=TEXT),
}

COUNTS = _object(time=MICROS, queues=_list(TEXT), **dict.fromkeys(queue_counts.COLUMNS, _list(COUNT)))
HISTORY = _object(
    time=MICROS,
    period=SECONDS,
    queues=_map(_object(**dict.fromkeys(history.COLUMNS, _list(COUNT)))),
)
SESSION = _SESSION
LIVE = _object(live=BOOL)
READY = _object(ready=BOOL, reasons=_list(_REASON), warnings=_list(_REASON))
