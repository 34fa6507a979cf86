"""Retries (Q23): when a message that a receiver *modified* comes again. The clock advances only when the test does it."""

from __future__ import annotations

from typing import Any

from penstock.broker_core.amqp.performatives import (
    Attach,
    Detach,
    Discharge,
    Disposition,
    Modified,
    Properties,
    Rejected,
    Source,
)
from penstock.broker_core.engine.commands import AlterQueue
from penstock.broker_core.messages.annotations import DELIVERY_DELAY, DELIVERY_TIME, RETRY_DELAY
from penstock.broker_core.quantities import MAX_MILLISECONDS

from ..service.helpers import START, Clock
from .frames import annotations_of, detach, flow, header_of, message, receives, says, symbol
from .harness import Scenario, Stage, staged
from .scenarios_outgoing import filled, numbered
from .transacting import asked, control, declare, within


@staged(clock=Clock)
def a_retry_that_its_receiver_delays(s: Stage) -> None:
    filled(s, *numbered(3))
    a = s.script().usual()
    a.receiver(credit=2)
    a.expect_messages(b"m0", b"m1")
    s.note("the first message again in a minute, with an annotation; the second in two minutes, without an attempt")
    notes = {DELIVERY_DELAY: 60_000, symbol("x-opt-new"): 1}
    a.send(says(Modified(delivery_failed=True, message_annotations=notes), 0))
    a.send(says(Modified(message_annotations={DELIVERY_TIME: START // 1000 + 120_000}), 1))
    a.nothing()
    s.show("q")
    a.send(flow(0, 9, count=2))
    a.expect_messages(b"m2")
    s.note("no message comes before its time")
    s.pass_time(59)
    a.nothing()
    s.pass_time(1)
    again = a.expect_message()
    assert header_of(again).delivery_count == 1
    assert annotations_of(again) == {"x-opt-new": 1}, "annotations for the broker are not kept"
    s.pass_time(60)
    again = a.expect_message()
    assert header_of(again).delivery_count == 0
    assert annotations_of(again) == {}
    s.show("q")


@staged(clock=Clock)
def a_retry_at_no_time(s: Stage) -> None:
    filled(s, *numbered(3))
    s.note("a time that is a string, a delay above ten years: the link ends, and its messages are back")
    a = s.script().usual()
    bad: list[dict[Any, Any]] = [
        {DELIVERY_TIME: "tomorrow"},
        {DELIVERY_DELAY: MAX_MILLISECONDS},
        {DELIVERY_TIME: START // 1000 + MAX_MILLISECONDS},
        {RETRY_DELAY: True},
    ]
    for number, notes in enumerate(bad):
        a.receiver(credit=1)
        a.expect_message()
        a.send(says(Modified(delivery_failed=True, message_annotations=notes), number))
        error = a.expect(Detach).error
        assert error is not None
        assert error.condition == "amqp:invalid-field"
        a.send(detach())
    s.show("q")
    s.note("the attach is refused if its default outcome has such an annotation")
    source = Source(address="q", default_outcome=Modified(message_annotations={DELIVERY_DELAY: "1"}))
    a.send(receives(source=source))
    a.expect(Attach, source=None)
    a.expect(Detach)
    a.send(detach())
    s.note("in a transaction: it can no longer be committed")
    control(a)
    txn = declare(a, 0)
    a.receiver(credit=1)
    a.expect_message()
    notes = {DELIVERY_DELAY: "soon"}
    a.send(says(within(txn, Modified(message_annotations=notes)), len(bad)))
    a.expect(Detach)
    a.send(detach(), asked(1, Discharge(txn_id=txn)))
    refused = a.expect(Disposition).state
    assert isinstance(refused, Rejected)
    s.show("q")


@staged(clock=Clock)
def a_retry_that_the_queue_delays(s: Stage) -> None:
    filled(s, *numbered(2))
    s.service.submit(AlterQueue("q", {"retryDelay": 10_000, "retryBackoff": 2}))
    s.note("the queue has a retryDelay of 10 s, which doubles")
    a = s.script().usual()
    a.receiver(credit=1)
    a.expect_messages(b"m0")
    a.send(says(Modified(delivery_failed=True), 0))
    a.nothing()
    s.show("q")
    s.pass_time(10)
    s.note("the message keeps its place before later messages")
    a.send(flow(0, 1, count=1))
    assert header_of(a.expect_message()).delivery_count == 1
    s.note("a lost transport also counts as a failed attempt")
    a.drop()
    s.until(lambda: s.counts("q").get("delayed") == 1, "its link has ended")
    s.pass_time(19)
    s.show("q")
    s.pass_time(1)
    b = s.script("B", container_id="other").usual()
    b.receiver(credit=2)
    b.expect_messages(b"m0", b"m1")


@staged(clock=Clock)
def a_retry_that_a_group_waits_for(s: Stage) -> None:
    s.declare("shipments", groups="held", retryDelay=10_000)
    of_group = [message(body, properties=Properties(group_id=body[:1].decode())) for body in (b"a0", b"a1", b"b2")]
    filled(s, *of_group, queue="shipments")
    a = s.script().usual()
    a.receiver("shipments", credit=1)
    a.expect_messages(b"a0")
    a.send(says(Modified(delivery_failed=True), 0))
    a.nothing()
    a.send(flow(0, 5, count=1))
    s.note("the next message of its group waits with it, a message of another group does not")
    a.expect_messages(b"b2")
    a.nothing()
    s.pass_time(10)
    a.expect_messages(b"a0", b"a1")


SCENARIOS: list[Scenario] = [
    a_retry_that_its_receiver_delays,
    a_retry_at_no_time,
    a_retry_that_the_queue_delays,
    a_retry_that_a_group_waits_for,
]
