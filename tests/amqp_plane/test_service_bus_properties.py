"""Properties that a receiver changes when it abandons or dead-letters a message: by its outcome, and by lock token."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.broker_core.amqp import Accepted, Message, Modified, Rejected, decode_message
from penstock.broker_core.amqp.performatives import Detach, Disposition, Error, Transfer
from penstock.broker_core.amqp.types import Array, Symbol, UInt
from penstock.broker_core.amqp_plane.service_bus.vendor import DESCRIPTION, REASON
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.limits import MAX_OVERLAYS

from ..service.helpers import Clock, enqueue
from .frames import detach, says
from .harness import Stage, stage
from .service_bus import LISTENER
from .test_service_bus_requests import RENEW, SETTLE, Manager

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


def abandoned(**properties: object) -> Modified:
    return Modified(delivery_failed=True, message_annotations={Symbol(name): value for name, value in properties.items()})


def deferred(**properties: object) -> Modified:
    return Modified(undeliverable_here=True, message_annotations={Symbol(name): value for name, value in properties.items()})


def dead(**properties: object) -> Rejected:
    info = {Symbol(name): value for name, value in properties.items()}
    return Rejected(error=Error(condition="com.microsoft:dead-letter", info=info))


def test_a_receiver_abandons_messages_again_and_again_with_other_properties(consumer: Consumer) -> None:
    """Q14: the number of changes of one message, and of one link, has no limit."""
    made = consumer.script.stage
    made.service.submit(c.AlterQueue("q", {"maxAttempts": 0}))
    consumer.send(Message(application_properties={"first": True}, data=[b"x"]))
    for attempt in range(MAX_OVERLAYS + 8):
        delivery, message = consumer.receive()
        consumer.settle(delivery, abandoned(attempt=attempt, why=f"no route {attempt % 3}"))
    _, message = consumer.receive()
    assert message.application_properties == {"first": True, "attempt": attempt, "why": f"no route {attempt % 3}"}
    made.service.submit(enqueue("q", *[b"x"] * 20))
    several = [consumer.receive()[0].delivery_id for _ in range(20)]
    consumer.script.send(*(says(abandoned(number=number), number, settled=True) for number in several if number is not None))
    assert [consumer.receive()[1].application_properties for _ in several] == [{"number": number} for number in several]


@pytest.mark.parametrize("outcome", [abandoned, deferred, dead])
def test_properties_that_are_too_large_are_refused_and_the_message_stays_locked(consumer: Consumer, outcome: Any) -> None:
    """JavaScript's SDK raises the error of a *rejected* that the broker has settled; Java's, if it has asked for another."""
    made = consumer.script.stage
    made.service.submit(enqueue("q", b"one", b"two"))
    (first, _), (second, _) = consumer.receive(), consumer.receive()
    for delivery, is_settled in ((first, False), (second, True)):
        assert delivery.delivery_id is not None
        consumer.script.send(says(outcome(a="x" * 5000), delivery.delivery_id, settled=is_settled))
    answer = consumer.script.expect(Disposition, first=first.delivery_id, settled=True)
    assert isinstance(answer.state, Rejected)
    assert answer.state.error is not None
    assert answer.state.error.condition == "amqp:invalid-field"
    assert made.counts("q") == {"acquired": 2}
    made.service.submit(enqueue("q", b"three"))
    third, message = consumer.receive()
    assert message.data == [b"three"], "the link stays open"
    consumer.settle(third, Accepted())
    made.pass_time(50)
    for delivery in (first, second):
        assert delivery.delivery_tag is not None
        tokens = {"lock-tokens": Array("uuid", (UUID(bytes_le=delivery.delivery_tag),))}
        assert consumer.ask(RENEW, tokens)[0] == 200, "the lock stays"
    made.pass_time(50)
    assert consumer.settle_by_token(first, "completed", None) == 200
    assert consumer.settle_by_token(first, "completed", None) == 410
    assert made.counts("q") == {"acquired": 1, "archived": 2}
    made.pass_time(20)
    again, message = consumer.receive()
    assert message.data == [b"two"], "the lock ends by its time"
    assert consumer.settle_by_token(second, "completed", None) == 410, "a token of its former lock"
    assert consumer.settle_by_token(again, "completed", None) == 200


def test_one_message_at_its_limit_does_not_refuse_the_outcome_of_another(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["penstock.broker_core.engine.decide.links"], "MAX_ROW_OVERLAYS", 1000)
    made = consumer.script.stage
    made.service.submit(enqueue("q", b"one", b"two"))
    (first, _), (second, _) = consumer.receive(), consumer.receive()
    consumer.settle(first, abandoned(a="x" * 600))
    first, _ = consumer.receive()
    assert first.delivery_id is not None
    assert second.delivery_id is not None
    both = [says(abandoned(b="x" * 600), delivery.delivery_id, settled=False) for delivery in (first, second)]
    consumer.script.send(*both)
    answers = {answer.first: answer.state for answer in (consumer.script.expect(Disposition) for _ in range(2))}
    assert isinstance(answers[second.delivery_id], Modified)
    refused = answers[first.delivery_id]
    assert isinstance(refused, Rejected)
    assert refused.error is not None
    assert refused.error.condition == "amqp:resource-limit-exceeded"
    assert consumer.receive()[1].application_properties == {"b": "x" * 600}
    assert consumer.settle_by_token(first, "completed", None) == 200


def test_a_message_whose_outcome_was_refused_counts_an_attempt_when_its_link_ends(consumer: Consumer) -> None:
    made = consumer.script.stage
    consumer.send(Message(data=[b"x"]))
    delivery, _ = consumer.receive()
    consumer.script.send(says(abandoned(a="x" * 5000), delivery.delivery_id, settled=True))
    consumer.script.send(detach(FROM_Q))
    consumer.script.expect(Detach)
    assert made.messages("q") == [(0, 1)]
    assert consumer.settle_by_token(delivery, "completed", None) == 410
