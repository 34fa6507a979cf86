"""Properties that a receiver changes when it abandons or dead-letters a message: by its outcome, and by lock token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.broker_core.amqp import Message, Modified, Rejected, decode_message
from penstock.broker_core.amqp.performatives import Detach, Disposition, Error, Transfer
from penstock.broker_core.amqp.types import Array, Symbol, UInt
from penstock.broker_core.amqp_plane.service_bus.vendor import DESCRIPTION, REASON

from ..service.helpers import Clock
from .frames import says
from .harness import Stage, stage
from .service_bus import LISTENER
from .test_service_bus_requests import SETTLE, Manager

FROM_Q, FROM_DEAD, TO_Q = 4, 5, 6


class Consumer(Manager):
    """A receiver from `q` that has `credit`, and a manager of `q`."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.script.sender("q", TO_Q)
        self.script.receiver("q", FROM_Q, 100)

    def send(self, message: Message) -> None:
        self._count += 1
        transfer = Transfer(handle=TO_Q, delivery_id=self._count, delivery_tag=bytes([self._count]), message_format=0)
        self.script.send((transfer, message.encode()))
        self.script.expect(Disposition)

    def receive(self) -> tuple[Transfer, Message]:
        frame = self.script._frame()
        assert frame is not None
        assert isinstance(frame[1], Transfer)
        return frame[1], decode_message(frame[2])

    def settle(self, delivery: Transfer, state: Any) -> None:
        assert delivery.delivery_id is not None
        self.script.send(says(state, delivery.delivery_id, settled=False))
        self.script.expect(Disposition, first=delivery.delivery_id)

    def settle_by_token(self, delivery: Transfer, status: str, properties: object) -> int:
        assert delivery.delivery_tag is not None
        token = Array("uuid", (UUID(bytes_le=delivery.delivery_tag),))
        body = {"lock-tokens": token, "disposition-status": status, "properties-to-modify": properties}
        return self.ask(SETTLE, body)[0]

    def dead_letter(self) -> Message:
        self.script.receiver("q/$DeadLetterQueue", FROM_DEAD, 1)
        return self.receive()[1]


@pytest.fixture
def consumer(tmp_path: Path) -> Iterator[Consumer]:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,), clock=Clock()) as made:
        made.declare("dead")
        made.declare("q", lockTimeout=60_000, deadLetterQueue="dead", maxAttempts=20)
        yield Consumer(made)


def test_an_abandoned_message_comes_back_with_changed_properties(consumer: Consumer) -> None:
    consumer.send(Message(application_properties={"colour": "blue", "size": 1}, data=[b"x"]))
    first, _ = consumer.receive()
    consumer.settle(first, Modified(delivery_failed=True, message_annotations={Symbol("colour"): "red"}))
    second, message = consumer.receive()
    assert message.application_properties == {"colour": "red", "size": 1}
    assert consumer.settle_by_token(second, "abandoned", {"size": 2, "new": True}) == 200
    _, message = consumer.receive()
    assert message.application_properties == {"colour": "red", "size": 2, "new": True}
    assert message.header is not None
    assert message.header.delivery_count == 2
    assert (message.message_annotations or {})["x-opt-sequence-number"] == 1, "it keeps its place"


@pytest.mark.parametrize("by_token", [False, True])
def test_a_dead_letter_has_changed_properties(consumer: Consumer, by_token: bool) -> None:
    consumer.send(Message(application_properties={"colour": "blue", "size": 1}, data=[b"x"]))
    delivery, _ = consumer.receive()
    if by_token:
        assert consumer.settle_by_token(delivery, "suspended", {"colour": "red"}) == 200
    else:
        info = {Symbol(REASON): "Odd", Symbol(DESCRIPTION): "It is.", Symbol("colour"): "red"}
        consumer.settle(delivery, Rejected(error=Error(condition="com.microsoft:dead-letter", info=info)))
    reasons = {REASON: "", DESCRIPTION: ""} if by_token else {REASON: "Odd", DESCRIPTION: "It is."}
    assert consumer.dead_letter().application_properties == {"colour": "red", "size": 1, **reasons}


def test_a_deferred_message_has_changed_properties(consumer: Consumer) -> None:
    consumer.send(Message(application_properties={"colour": "blue", "size": 1}, data=[b"x"]))
    delivery, _ = consumer.receive()
    consumer.settle(delivery, Modified(undeliverable_here=True, message_annotations={Symbol("colour"): "red"}))
    for properties in ({"size": 2}, {}):
        body = {"sequence-numbers": Array("long", (1,)), "receiver-settle-mode": UInt(1)}
        status, _, answer = consumer.ask("com.microsoft:receive-by-sequence-number", body)
        assert status == 200
        (entry,) = answer["messages"]
        seen = decode_message(entry["message"]).application_properties
        assert seen == {"colour": "red", "size": 1 if properties else 2}
        request = {"lock-tokens": Array("uuid", (entry["lock-token"],)), "disposition-status": "defered"}
        assert consumer.ask(SETTLE, {**request, "properties-to-modify": properties})[0] == 200


def test_changed_properties_outlive_the_broker(tmp_path: Path) -> None:
    with stage(tmp_path, listeners=(LISTENER,)) as made:
        made.declare("dead")
        made.declare("q", deadLetterQueue="dead")
        consumer = Consumer(made)
        consumer.send(Message(application_properties={"colour": "blue"}, data=[b"x"]))
        delivery, _ = consumer.receive()
        info = {Symbol("colour"): "red"}
        consumer.settle(delivery, Rejected(error=Error(condition="com.microsoft:dead-letter", info=info)))
    with stage(tmp_path, listeners=(LISTENER,)) as made:
        properties = Consumer(made).dead_letter().application_properties or {}
        assert properties["colour"] == "red"


def test_bad_properties_change_nothing(consumer: Consumer) -> None:
    consumer.send(Message(data=[b"x"]))
    delivery, _ = consumer.receive()
    for properties in ("colour", {"a": {"b": 1}}, {1: "a"}, {"a": "x" * 5000}):
        for status in ("abandoned", "suspended"):
            assert consumer.settle_by_token(delivery, status, properties) == 400
    assert consumer.script.stage.counts("q") == {"acquired": 1}
    assert consumer.settle_by_token(delivery, "completed", None) == 200


def test_properties_that_are_too_long_end_the_link(consumer: Consumer) -> None:
    consumer.send(Message(data=[b"x"]))
    delivery, _ = consumer.receive()
    assert delivery.delivery_id is not None
    consumer.script.send(says(Modified(message_annotations={Symbol("a"): "x" * 5000}), delivery.delivery_id, settled=False))
    error = consumer.script.expect(Detach).error
    assert error is not None
    assert error.condition == "amqp:invalid-field"
    consumer.script.stage.until(lambda: consumer.script.stage.counts("q") == {"available": 1}, "the message is available")
