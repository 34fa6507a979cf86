"""A complete request of each kind, and its optional fields. "Q" stands for the queue of the test, and epoch 1 for the epoch in
which its leases began."""

from __future__ import annotations

from typing import Any

BROWSED = {
    "queue": "Q",
    "states": ["available"],
    "first": 0,
    "last": 5,
    "since": 0,
    "until": 2**62,
    "outcome": None,
}
RECORDED = {
    "queueId": 1,
    "lineages": ["b", 3],
    "recordedAfter": 1,
    "first": 0,
    "last": 9,
    "since": 5,
    "until": 9,
    "settledSince": 5,
    "settledUntil": 9,
    "outcome": "accepted",
}
VALID: dict[str, dict[str, Any]] = {
    "hello": {},
    "broker.status": {},
    "connection.list": {},
    "connection.close": {"id": "amqp-1", "reason": "no"},
    "user.list": {},
    "queue.options": {},
    "queue.messages": {
        "queue": "Q",
        "states": ["available"],
        "first": 0,
        "count": 5,
        "selector": "a = 1",
        "since": "-1h",
        "until": "now",
    },
    "message.trace": {"id": "4711", "queue": "Q", "sequence": None, "selector": None, "count": 5, "resume": None},
    "audit.list": {
        "queue": "Q",
        "user": "ann",
        "action": "purge",
        "outcome": "done",
        "since": "-1h",
        "until": "now",
        "count": 5,
    },
    "archive.status": {},
    "broker.journal": {},
    "queue.declare": {"queue": "Q", "type": "fifo", "options": {}},
    "queue.delete": {"queue": "Q", "force": True, "ifEmpty": False, "ifUnused": False},
    "queue.list": {},
    "queue.stat": {"queue": "Q"},
    "queue.alter": {"queue": "Q", "options": {"maxAttempts": 3}},
    "queue.pause": {"queue": "Q"},
    "queue.resume": {"queue": "Q"},
    "queue.purge": {"queue": "Q"},
    "queue.move": {"queue": "Q", "target": "other Q", "messages": 1, "first": 0, "last": 9},
    "queue.copy": {"queue": "Q", "target": "other Q", "messages": 1, "first": 0, "last": 9},
    "queue.discard": {"queue": "Q", "sequence": 5, "last": 6, "error": "no"},
    "queue.redrive": {"queue": "Q", "messages": 5, "ranges": [0, 3], "selector": "a = 1"},
    "exchange.declare": {"exchange": "new Q", "type": "direct", "options": {}},
    "exchange.delete": {"exchange": "bound Q"},
    "exchange.list": {},
    "exchange.bind": {"exchange": "bound Q", "queue": "Q", "key": "k", "arguments": {}, "selector": "a = 1", "noLocal": "me"},
    "exchange.unbind": {"exchange": "bound Q", "queue": "Q", "key": "k"},
    "browse.plan": {
        **BROWSED,
        "minPartitions": 2,
        "maxMessages": 1,
    },
    "archive.plan": {**BROWSED, "minPartitions": 2, "maxMessages": 1},
    "archive.files": {"queue": "Q", "version": 1, **RECORDED},
    "stage.publish": {
        "stages": [],
        "write": None,
        "base": 5,
        "attempts": [],
        "key": {"kind": "txn", "id": "app", "number": 1},
        "elsewhere": None,
        "query": "query",
        "queryBatch": 3,
    },
    "stage.published": {"kind": "txn", "id": "app", "number": 1},
    "stage.discard": {"stages": ["none"], "write": None, "attempts": []},
    "stage.list": {},
    "lease.advance": {
        "queue": "Q",
        "lease": "new Q",
        "run": "r",
        "epoch": None,
        "finished": 0,
        "fresh": True,
        "waiting": False,
        "messages": 5,
        "bytes": 5000,
        "until": 3,
        "waitMs": 0,
        "exclude": False,
        "failOnDataLoss": True,
        "leaseTimeout": 600,
        "selector": None,
        "alone": False,
        "measure": True,
        "plan": True,
        "counts": True,
        "sign": None,
        "head": None,
        "minPartitions": 2,
        "maxMessages": 1,
    },
    "lease.plan": {
        "queue": "Q",
        "lease": "held Q",
        "run": "r",
        "epoch": 1,
        "after": 0,
        "batch": 1,
        "afterSign": "of no batch",
        "batchSign": None,
        "head": None,
        "minPartitions": 2,
        "maxMessages": 1,
        "failOnDataLoss": True,
    },
    "lease.settle": {
        "queue": "Q",
        "lease": "held Q",
        "run": "r",
        "epoch": 1,
        "finished": 1,
        "failOnDataLoss": True,
        "sign": None,
        "head": None,
    },
    "lease.renew": {"lease": "held Q", "run": "r", "epoch": 1},
    "lease.list": {},
    "lease.release": {"lease": "held Q", "how": "return"},
    "lease.settleRow": {"lease": "held Q", "sequence": 0, "outcome": "rejected", "error": "no"},
    "lease.setAside": {"lease": "held Q", "run": "r", "epoch": 1, "batch": 1, "reasons": {"no map": [0, 2]}},
    "lease.delete": {"lease": "idle Q"},
}
BATCH = {
    "lease": "held Q",
    "run": "r",
    "epoch": 1,
    "batch": 1,
    "first": 0,
    "last": 9,
    "columns": ["body"],
    "failOnDataLoss": True,
    "bucket": 0,
    "buckets": 1,
    "query": "query",
    "queryBatch": 3,
    "queryName": "nightly",
}
VALID_TICKETS: dict[str, dict[str, Any]] = {
    "batch": {"op": "batch", **BATCH, "stored": True},
    "map": {"op": "map", **BATCH, "orMessages": True, "host": "x"},
    "browse": {
        "op": "browse",
        **BROWSED,
        "selector": None,
        "columns": ["body"],
        "stored": True,
        "recordedAfter": 1,
    },
    "archive": {
        "op": "archive",
        "queue": "Q",
        "path": "day=2020-01-01/part.parquet",
        "part": 0,
        "parts": 1,
        "version": 1,
        **RECORDED,
        "selector": None,
        "columns": ["body"],
        "stored": True,
    },
}
_TARGET = {"queue": "Q", "exchange": None, "routingKey": None}
VALID_PUTS = {
    "enqueue": {"op": "enqueue", **_TARGET},
    "stage": {"op": "stage", **_TARGET, "stage": "s Q", "write": None, "attempt": None, "routed": False},
    "settle": {"op": "settle", "stage": "s Q", "write": None, "attempt": None, "lease": "held Q"},
}
OPTIONAL = {
    "type": "fifo", "options": {}, "force": False, "key": None, "fresh": False, "messages": None, "bytes": None, "until": None,
    "waitMs": 0, "exclude": False, "failOnDataLoss": True, "leaseTimeout": None, "minPartitions": 1, "maxMessages": None,
    "bucket": 0, "buckets": 1, "error": None, "states": ["available"], "stored": False, "first": 0, "last": None, "since": None,
    "outcome": None, "ranges": None, "ifEmpty": False, "ifUnused": False, "count": 50, "reason": None,
    "queueId": None, "recordedAfter": None, "settledSince": None, "settledUntil": None, "version": None, "part": 0, "parts": 1,
    "arguments": {}, "selector": None, "noLocal": None, "alone": True, "measure": False, "counts": False,
    "plan": False, "orMessages": False, "host": None, "sign": None, "afterSign": None, "batchSign": None, "head": None,
    "stages": [], "write": None, "base": 0, "attempts": [], "attempt": None, "query": None, "queryBatch": None, "queryName": None,
    "routed": False, "elsewhere": None, "waiting": False,
}  # fmt: skip
#: Actions without required fields, and the types that each field accepts: `message.trace` names a message in one of three ways.
WITHOUT_REQUIRED: dict[str, dict[str, tuple[type, ...]]] = {
    "message.trace": {
        "id": (str, type(None)),
        "queue": (str, type(None)),
        "sequence": (int, type(None)),
        "resume": (dict, type(None)),
    },
    "audit.list": dict.fromkeys(("queue", "user", "action", "outcome", "since", "until"), (str, type(None))),
}
RUN_IS_OPTIONAL = ("lease.renew", "lease.setAside")
SIGNS = ("sign", "afterSign", "batchSign")  # or null
TEXTS = ("error", "reason", "outcome", "selector", "host", "query", "queryName", "write", "elsewhere")  # or null


def of_queue(request: dict[str, Any], queue: str, epoch: int) -> dict[str, Any]:
    """Put in the queue of a test, and the epoch with which its leases began."""
    named = {name: value.replace("Q", queue) if isinstance(value, str) else value for name, value in request.items()}
    return {**named, "epoch": named["epoch"] - 1 + epoch} if type(named.get("epoch")) is int else named
