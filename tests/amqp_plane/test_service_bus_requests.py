"""Malformed requests to $management, and requests about the locks and queues of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from penstock.broker_core.amqp import Message, Source, Target, decode_message
from penstock.broker_core.amqp.performatives import (
    SND_MIXED,
    SND_SETTLED,
    SND_UNSETTLED,
    Disposition,
    Flow,
    Properties,
    Transfer,
)
from penstock.broker_core.amqp.types import Array, UInt

from ..service.helpers import Clock, enqueue
from .harness import Stage, stage
from .service_bus import LISTENER, Cbs

LOCK_LOST = "com.microsoft:message-lock-lost"
PART = 32 << 10  # octets of a request in one frame


class Manager:
    """A connection with both links to the entity's `$management`, at handles 2 and 3."""

    def __init__(self, stage: Stage, entity: str = "q", keys: dict[str, str] | None = None, **fields: Any) -> None:
        keys = keys or {"any": "key"}
        self.cbs = cbs = Cbs(stage, keys, **fields)
        assert cbs.put(cbs.token(next(iter(keys)), entity), f"sb://localhost/{entity}")[0] == 202
        self.script = cbs.script
        self.script.sender(f"{entity}/$Management", 2, source=Source(address="me"))
        self.script.receiver(f"{entity}/$management", 3, 100, target=Target(address="me"))
        self.requests, self.reply_to = 2, "me"
        self._count = 0

    def ask(self, operation: object, body: object, **more: object) -> tuple[int, Any, Any]:
        """Return status, condition and body of the response."""
        self._count += 1
        message = Message(
            properties=Properties(message_id=f"m{self._count}", reply_to=self.reply_to),
            application_properties={"operation": operation, **{name.replace("_", "-"): value for name, value in more.items()}},
            value=body,
            has_value=True,
        )
        transfer = Transfer(handle=self.requests, delivery_id=self._count, delivery_tag=bytes([self._count]), message_format=0)
        octets = message.encode()
        parts = [octets[start : start + PART] for start in range(0, len(octets), PART)]
        self.script.send(*((replace(transfer, more=part is not parts[-1]), part) for part in parts))
        status, answer = self.answer()
        assert answer.properties is not None
        assert answer.properties.correlation_id == f"m{self._count}"
        return status, (answer.application_properties or {}).get("errorCondition"), answer.value

    def answer(self) -> tuple[int, Message]:
        """Return the status of the next response, and the response."""
        while (frame := self.script._frame()) is not None and isinstance(frame[1], (Disposition, Flow)):
            pass  # of the request, and of messages that it settled
        assert frame is not None
        assert isinstance(frame[1], Transfer)
        answer = decode_message(frame[2] + (self.script.expect_message() if frame[1].more else b""))
        properties = answer.application_properties or {}
        self.description = properties["statusDescription"]
        assert isinstance(self.description, str)
        assert self.description
        return properties["statusCode"], answer


@pytest.fixture
def m(tmp_path: Path) -> Iterator[Manager]:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,), clock=Clock()) as made:
        made.declare("q", lockTimeout=60_000)
        made.declare("other")
        yield Manager(made)


RECEIVE = "com.microsoft:receive-by-sequence-number"
RENEW, SETTLE = "com.microsoft:renew-lock", "com.microsoft:update-disposition"
PEEK, SCHEDULE = "com.microsoft:peek-message", "com.microsoft:schedule-message"
CANCEL = "com.microsoft:cancel-scheduled-message"
TOKEN = Array("uuid", (uuid4(),))


@pytest.mark.parametrize(
    ("operation", "body", "status"),
    [
        ("com.microsoft:get-session-state", {}, 400),
        (7, {}, 400),
        (RENEW, "no map", 400),
        (RENEW, {}, 400),
        (RENEW, {"lock-tokens": Array("uuid", ())}, 400),
        (RENEW, {"lock-tokens": ["text"]}, 400),
        (RENEW, {"lock-tokens": TOKEN}, 410),
        (SETTLE, {"lock-tokens": TOKEN, "disposition-status": "completed"}, 410),
        (SETTLE, {"lock-tokens": TOKEN, "disposition-status": "defered"}, 410),
        (SETTLE, {"lock-tokens": TOKEN, "disposition-status": "moved"}, 501),
        (RECEIVE, {}, 400),
        (RECEIVE, {"sequence-numbers": Array("long", (1,))}, 400),
        (RECEIVE, {"sequence-numbers": Array("long", (1,)), "receiver-settle-mode": UInt(2)}, 400),
        (RECEIVE, {"sequence-numbers": Array("long", ()), "receiver-settle-mode": UInt(1)}, 400),
        (RECEIVE, {"sequence-numbers": Array("long", tuple(range(1, 1002))), "receiver-settle-mode": UInt(1)}, 400),
        (RECEIVE, {"sequence-numbers": Array("long", (1,)), "receiver-settle-mode": UInt(1)}, 404),
        (RECEIVE, {"sequence-numbers": Array("long", (0, -5)), "receiver-settle-mode": UInt(0)}, 404),
        (RECEIVE, {"sequence-numbers": Array("long", (-(2**63),)), "receiver-settle-mode": UInt(1)}, 400),
        (RECEIVE, {"sequence-numbers": Array("ulong", (2**64 - 1,)), "receiver-settle-mode": UInt(1)}, 400),
        (PEEK, {"from-sequence-number": -1, "message-count": 1}, 400),
        (PEEK, {"from-sequence-number": 1, "message-count": "many"}, 400),
        (PEEK, {"from-sequence-number": 1, "message-count": 1}, 204),
        (PEEK, {"from-sequence-number": 1 << 62, "message-count": 1 << 62}, 204),
        (SCHEDULE, {"messages": []}, 400),
        (SCHEDULE, {"messages": [{"message": "text"}]}, 400),
        (SCHEDULE, {"messages": [{"message": b"noise"}]}, 400),
        (CANCEL, {"sequence-numbers": Array("long", (1,))}, 404),
        (CANCEL, {"sequence-numbers": Array("long", (0, -5))}, 404),
        (CANCEL, {"sequence-numbers": Array("long", (2**63 - 1,))}, 404),
        (CANCEL, {"sequence-numbers": Array("long", (-(2**63),))}, 400),
    ],
)
def test_a_bad_request_is_answered_and_changes_nothing(m: Manager, operation: object, body: object, status: int) -> None:
    assert m.ask(operation, body)[0] == status
    assert m.script.stage.counts("q") == {}
    assert m.ask(PEEK, {"from-sequence-number": 1, "message-count": 1})[0] == 204, "the link continues"


def test_the_tokens_of_a_locked_message(m: Manager) -> None:
    m.script.stage.service.submit(enqueue("q", b"one"))
    m.script.receiver("q", 4, 1)
    transfer = m.script.expect(Transfer)
    assert transfer.delivery_tag is not None
    token = UUID(bytes_le=transfer.delivery_tag)
    tokens = {"lock-tokens": Array("uuid", (token,))}
    until = m.script.stage.service.wall_ms() + 60_000
    assert m.ask(RENEW, tokens)[2]["expirations"].items == (until,)
    stale = UUID(bytes_le=transfer.delivery_tag[:13] + b"\xff\xff\xff")
    assert m.ask(RENEW, {"lock-tokens": Array("uuid", (token, stale))})[:2] == (410, LOCK_LOST)
    status, _, _ = m.ask(SETTLE, {**tokens, "disposition-status": "completed"})
    assert status == 200
    assert m.script.stage.counts("q") == {"archived": 1}
    assert m.ask(SETTLE, {**tokens, "disposition-status": "completed"})[:2] == (410, LOCK_LOST)


def test_an_expired_lock_is_neither_renewed_nor_settled(m: Manager) -> None:
    m.script.stage.service.submit(enqueue("q", b"one"))
    m.script.receiver("q", 4, 1)
    tag = m.script.expect(Transfer).delivery_tag
    assert tag is not None
    m.script.stage.pass_time(61)
    tokens = {"lock-tokens": Array("uuid", (UUID(bytes_le=tag),))}
    assert m.ask(RENEW, tokens)[:2] == (410, LOCK_LOST)
    assert m.script.stage.counts("q") == {"available": 1}


def test_a_lock_of_the_broker_s_last_run_is_lost(tmp_path: Path) -> None:
    """A new receiver has another token for the same message."""
    tags: list[bytes] = []
    for _ in range(2):
        with stage(tmp_path, listeners=(LISTENER,)) as made:
            if not tags:
                made.declare("q", lockTimeout=60_000)
                made.service.submit(enqueue("q", b"one"))
            manager = Manager(made)
            manager.script.receiver("q", 4, 1)
            tag = manager.script.expect(Transfer).delivery_tag
            assert tag is not None
            for stale in tags:
                tokens = {"lock-tokens": Array("uuid", (UUID(bytes_le=stale),))}
                assert manager.ask(RENEW, tokens)[:2] == (410, LOCK_LOST)
                assert manager.ask(SETTLE, {**tokens, "disposition-status": "completed"})[:2] == (410, LOCK_LOST)
                assert made.counts("q") == {"acquired": 1}
            tags.append(tag)
    assert tags[0] != tags[1]


@pytest.mark.parametrize("address", ["$cbs", "q/$management"])
@pytest.mark.parametrize(("asked", "answered"), [(SND_SETTLED, SND_SETTLED), (SND_UNSETTLED, SND_MIXED), (SND_MIXED, SND_MIXED)])
def test_a_link_of_responses_answers_the_settle_mode(m: Manager, address: str, asked: int, answered: int) -> None:
    """Responses are settled. The SDK for Go asks for this mode, and ends a connection that answers another one."""
    attach = m.script.receiver(address, 9, name="responses", target=Target(address="responses"), snd_settle_mode=asked)
    assert attach.snd_settle_mode == answered
