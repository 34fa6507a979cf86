"""Bad requests to $management of each kind: each has its answer with a status, and the connection continues.

No request leaves a traceback in the log or changes the queue.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from penstock.broker_core.amqp import Message, Rejected
from penstock.broker_core.amqp.performatives import Disposition, Properties, Transfer
from penstock.broker_core.amqp.types import Array, Described, Float, Int, Pairs, Symbol, Timestamp, UInt, ULong

from ..service.helpers import Clock, enqueue
from .frames import flow
from .harness import stage
from .service_bus import LISTENER
from .test_service_bus_requests import CANCEL, PEEK, RENEW, SCHEDULE, SETTLE, Manager
from .test_service_bus_rules import ADD, ENUMERATE, REMOVE

GOOD = Message(data=[b"x"]).encode()
TOKENS = {"lock-tokens": Array("uuid", (uuid4(),))}
SEVERAL = Array("long", (1, 2))
VALID: dict[str, dict[str, Any]] = {  # requests with a right form
    RENEW: TOKENS,
    SETTLE: {**TOKENS, "disposition-status": "completed", "properties-to-modify": {"a": 1}},
    PEEK: {"from-sequence-number": 5, "message-count": Int(3)},
    SCHEDULE: {"messages": [{"message-id": "m", "message": GOOD}]},
    CANCEL: {"sequence-numbers": SEVERAL},
    ADD: {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "1=1"}}},
    REMOVE: {"rule-name": "r"},
    ENUMERATE: {"skip": Int(0), "top": Int(10)},
    "com.microsoft:receive-by-sequence-number": {"sequence-numbers": SEVERAL, "receiver-settle-mode": UInt(1)},
    "com.microsoft:renew-session-lock": {"session-id": "s"},
    "com.microsoft:get-session-state": {"session-id": "s"},
    "com.microsoft:set-session-state": {"session-id": "s", "session-state": b"x"},
    "com.microsoft:get-message-sessions": {"last-updated-time": Timestamp(0), "skip": Int(0), "top": Int(10)},
}
ODD: list[Any] = [
    None, True, -1, 0, 7, ULong((1 << 64) - 1), -(1 << 63), 1 << 62, 1.5, Float(0.1), float("nan"), "", "text", "x" * 70_000,
    Symbol("symbol"), b"", b"octets", UUID(int=0), Timestamp(-1), [], [None], [[]], ["text"] * 20_000, {}, {"a": {"b": []}},
    {1: 2}, Pairs(((Int(1), 2), (ULong(1), 3))), Described(ULong(7), "x"), Array("long", ()),
    Array("ulong", (ULong((1 << 64) - 1),)),
    Array("uuid", tuple(UUID(int=number) for number in range(3000))), Array("string", ("a",)), [{"message": None}], [{}],
    [{"message": GOOD}, {"message": "text"}], [{"message": GOOD}] * 10_001, [ULong((1 << 64) - 1)], [True],
]  # fmt: skip
ODD_OPERATION = b"\x00\x53\x74\xc1\x0e\x02\xa1\x09operation\x45"  # a list
TWICE = b"\x00\x53\x77\xc1\x05\x04\x41\x41\x41\x42"  # a map with the key true twice
ANSWERS = {200, 204, 400, 401, 403, 404, 410, 501}


@pytest.fixture
def m(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Manager]:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,), clock=Clock()) as made:
        made.declare("q", lockTimeout=60_000)
        made.service.submit(enqueue("q", b"one"))
        manager = Manager(made)
        manager.script.frame_size = 1 << 20
        manager.script.send(flow(3, 10_000))
        yield manager
        assert manager.ask(PEEK, {"from-sequence-number": 0, "message-count": 1})[0] == 200, "the connection continues"
        assert made.counts("q") == {"available": 1}
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


def send(manager: Manager, payload: bytes) -> None:
    manager._count += 1
    parts = [payload[at : at + 60_000] for at in range(0, len(payload) or 1, 60_000)]
    for number, part in enumerate(parts):
        first = {"delivery_id": manager._count, "delivery_tag": b"%d" % manager._count, "message_format": 0}
        manager.script.send((Transfer(handle=2, more=number < len(parts) - 1, **({} if number else first)), part))


def answered(manager: Manager, operation: object, body: object) -> int:
    """Send a request of any size; return the status, whose description is not empty."""
    properties = Properties(message_id="m", reply_to="me")
    message = Message(properties=properties, application_properties={"operation": operation}, value=body, has_value=True)
    send(manager, message.encode())
    manager.script.expect(Disposition)
    return manager.answer()[0]


@pytest.mark.parametrize("operation", VALID)
def test_each_field_with_each_odd_value(m: Manager, operation: str) -> None:
    for field in VALID[operation]:
        for value in ODD:
            body = {**VALID[operation], field: value}
            status = answered(m, operation, body)
            assert status in ANSWERS, f"{operation}: {field} {value!r:.80}"
        without = {name: value for name, value in VALID[operation].items() if name != field}
        assert answered(m, operation, without) in ANSWERS


@pytest.mark.parametrize("operation", [*VALID, "com.microsoft:unknown", "", "x" * 70_000, None, 7, b"octets"])
def test_each_operation_with_each_odd_body(m: Manager, operation: object) -> None:
    for body in ODD:
        assert answered(m, operation, body) in ANSWERS - {200}


@pytest.mark.parametrize(
    "message",
    [
        Message(value={}, has_value=True),
        Message(application_properties={}, value={}, has_value=True),
        Message(application_properties={"Operation": PEEK}, value=VALID[PEEK], has_value=True),
        Message(application_properties={"operation": PEEK}, data=[b"no value"]),
        Message(application_properties={"operation": PEEK}, sequences=[[1]]),
        Message(properties=Properties(message_id=ULong(7), reply_to="another link"), value={}, has_value=True),
        Message(properties=Properties(message_id=uuid4(), correlation_id=b"c"), value={}, has_value=True),
    ],
    ids=["no properties", "empty", "another case", "data", "sequence", "another reply-to", "correlation id"],
)
def test_requests_that_lack_a_part(m: Manager, message: Message) -> None:
    send(m, message.encode())
    m.script.expect(Disposition)
    status, answer = m.answer()
    assert status == 400
    asked = message.properties or Properties()
    assert answer.properties is not None
    assert answer.properties.correlation_id == (asked.message_id if asked.correlation_id is None else asked.correlation_id)


@pytest.mark.parametrize(
    "payload",
    [ODD_OPERATION, TWICE, b"", b"noise", GOOD[:-1], b"\x00\x53\x77", b"\x00\x53\x77\xd1\xff\xff\xff\xff\xff\xff\xff\xff"],
)
def test_a_request_that_is_no_message_is_rejected(m: Manager, payload: bytes) -> None:
    send(m, payload)
    state = m.script.expect(Disposition).state
    if payload:
        assert isinstance(state, Rejected)
    else:
        assert m.answer()[0] == 400
