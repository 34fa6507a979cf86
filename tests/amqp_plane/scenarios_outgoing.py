"""Clients receive (2.6.7, 2.6.12, 3.3 to 3.5): credit, drain, outcomes, and the next receiver of a message."""

from __future__ import annotations

from penstock.broker_core.amqp.performatives import (
    RCV_SECOND,
    SENDER,
    SND_SETTLED,
    Accepted,
    Detach,
    Disposition,
    Error,
    Flow,
    Header,
    Modified,
    Received,
    Rejected,
    Released,
    Source,
    Transfer,
)

from ..journal.lying_disk import LyingDisk
from .frames import annotations_of, detach, flow, header_of, message, says, symbol, transfer
from .harness import Stage, staged


def filled(s: Stage, *payloads: bytes, queue: str = "q") -> None:
    """Fill the queue by a separate client that the transcript omits."""
    lines = list(s.lines)
    a = s.script("filler", container_id="filler").usual()
    a.sender(queue)
    a.send(*[transfer(number, payload) for number, payload in enumerate(payloads)])
    a.expect(Disposition, first=0)
    a.drop(quietly=True)
    s.lines[:] = [*lines, f"!  {len(payloads)} messages are sent to {queue}"]


def numbered(count: int) -> list[bytes]:
    return [message(b"m%d" % number) for number in range(count)]


def credit_and_drain(s: Stage) -> None:
    filled(s, *numbered(5))
    a = s.script().usual()
    a.receiver()
    a.nothing()
    a.send(flow(0, 2))
    a.expect_messages(b"m0", b"m1")
    a.nothing()
    s.note("credit counts from the delivery-count in the receiver's flow: one more message, not two")
    a.send(flow(0, 2, count=1))
    a.expect_messages(b"m2")
    a.nothing()
    s.note("drain: the available messages are sent, and the rest of the credit is used up")
    a.send(flow(0, 10, count=3, drain=True))
    a.expect_messages(b"m3", b"m4")
    a.expect(Flow, handle=0, delivery_count=13, link_credit=0, drain=True)
    s.note("drain of an empty queue")
    a.send(flow(0, 4, count=13, drain=True))
    a.expect(Flow, handle=0, delivery_count=17, link_credit=0)
    s.note("drain without credit is answered")
    a.send(flow(0, 0, count=17, drain=True))
    a.expect(Flow, handle=0, delivery_count=17, link_credit=0)
    s.note("the next message waits for the next credit")
    filled(s, message(b"later"))
    a.nothing()
    a.send(flow(0, 1, count=17))
    a.expect_messages(b"later")


@staged(disk=LyingDisk)
def credit_withdrawn_while_the_disk_writes(s: Stage) -> None:
    filled(s, *numbered(3))
    a = s.script().usual()
    a.receiver()
    s.slow_disk()
    a.send(flow(0, 3, echo=True))
    a.expect(Flow, handle=0, link_credit=3)
    s.until(lambda: s.counts("q") == {"acquired": 3}, "the messages are acquired")
    a.send(flow(0, 1, echo=True))
    a.expect(Flow, handle=0, link_credit=1)
    s.quick_disk()
    s.note("one message is sent; the others go back to their places, and no attempt is counted")
    a.expect_messages(b"m0")
    a.nothing()
    s.show("q")
    assert s.messages("q") == [(0, 0), (1, 0), (2, 0)]
    a.send(flow(0, 2, count=1))
    a.expect_messages(b"m1", b"m2")


def outcomes(s: Stage) -> None:
    filled(s, *numbered(5))
    a = s.script("A").usual()
    a.receiver(credit=5)
    a.expect_messages(b"m0", b"m1", b"m2", b"m3", b"m4")
    s.note("accepted and rejected; after *received* the link still holds the message")
    a.send(says(Accepted(), 0))
    a.send(says(Rejected(error=Error(condition="com.example:bad", description="I do not like it")), 1))
    a.send(says(Received(section_number=0, section_offset=0), 2, settled=False))
    a.nothing()
    s.show("q")
    s.note("released: the message comes back to its place, and no attempt is counted")
    a.send(says(Released(), 2, 4), flow(0, 1, count=5))
    again = a.expect_message()
    assert header_of(again) == Header(first_acquirer=False, delivery_count=0)
    s.note("modified, the four ways")
    a.send(says(Modified(), 5), flow(0, 1, count=6))
    assert header_of(a.expect_message()).delivery_count == 0
    a.send(says(Modified(delivery_failed=True), 6), flow(0, 1, count=7))
    assert header_of(a.expect_message()).delivery_count == 1
    a.send(says(Modified(undeliverable_here=True), 7), flow(0, 1, count=8))
    a.expect_messages(b"m3")
    a.send(says(Modified(delivery_failed=True, undeliverable_here=True), 8), flow(0, 2, count=9))
    a.expect_messages(b"m4")
    a.nothing()
    s.note("undeliverable-here excludes one link: another link gets both, with their failed attempts")
    b = s.script("B", container_id="other").usual()
    b.receiver(credit=5)
    first, second = b.expect_message(), b.expect_message()
    assert (header_of(first).delivery_count, header_of(second).delivery_count) == (1, 1)
    b.nothing()
    s.show("q")


def annotations_are_merged(s: Stage) -> None:
    annotations = {symbol("x-opt-kept"): "sender", symbol("x-opt-changed"): "sender"}
    filled(s, message(b"m0", message_annotations=annotations), message(b"m1"))
    a = s.script().usual()
    a.receiver(credit=2)
    a.expect_messages(b"m0", b"m1")
    a.send(
        says(Modified(message_annotations={symbol("x-opt-changed"): "first", symbol("x-opt-new"): 1}), 0, 1), flow(0, 2, count=2)
    )
    assert annotations_of(a.expect_message()) == {"x-opt-kept": "sender", "x-opt-changed": "first", "x-opt-new": 1}
    assert annotations_of(a.expect_message()) == {"x-opt-changed": "first", "x-opt-new": 1}
    a.send(says(Modified(delivery_failed=True, message_annotations={symbol("x-opt-new"): 2}), 2), flow(0, 1, count=4))
    assert annotations_of(a.expect_message()) == {"x-opt-kept": "sender", "x-opt-changed": "first", "x-opt-new": 2}
    s.note("annotations above the size limit: the link ends, the message comes back")
    a.send(says(Modified(message_annotations={symbol("x-opt-large"): "x" * 5_000}), 3, settled=False))
    ended = a.expect(Detach)
    assert ended.error is not None
    assert ended.error.condition == "amqp:resource-limit-exceeded"
    a.send(detach())
    s.show("q")


def dispositions_in_ranges(s: Stage) -> None:
    filled(s, *numbered(8))
    a = s.script().usual()
    a.receiver(credit=4)
    a.expect_messages(b"m0", b"m1", b"m2", b"m3")
    a.receiver(handle=1, name="another", credit=4)
    a.expect_messages(b"m4", b"m5", b"m6", b"m7")
    s.note("one range over two links, and unknown ids; a second outcome changes nothing")
    a.send(says(Accepted(), 2, 5), says(Released(), 0, 0xFFFF, settled=False), says(Accepted(), 0, 7, settled=False))
    a.expect(Disposition, role=SENDER, first=0, last=1, settled=True, state=Released())
    a.expect(Disposition, role=SENDER, first=6, last=7, settled=True, state=Released())
    s.show("q")


def both_settle_modes_of_a_receiver(s: Stage) -> None:
    filled(s, *numbered(3))
    a = s.script().usual()
    assert a.receiver(rcv_settle_mode=RCV_SECOND, credit=2).rcv_settle_mode == RCV_SECOND
    a.expect_messages(b"m0", b"m1")
    s.note("mode second: the receiver sends an outcome, the broker settles, the receiver forgets")
    a.send(says(Accepted(), 0, 1, settled=False))
    a.expect(Disposition, role=SENDER, first=0, last=1, settled=True, state=Accepted())
    s.note("mode first, with an outcome that does not settle")
    a.receiver(handle=1, name="first", credit=1)
    a.expect_messages(b"m2")
    a.send(says(Accepted(), 2, settled=False))
    a.expect(Disposition, role=SENDER, first=2, settled=True, state=Accepted())
    s.show("q")


def sent_settled(s: Stage) -> None:
    filled(s, *numbered(3))
    a = s.script().usual()
    assert a.receiver(snd_settle_mode=SND_SETTLED, credit=2).snd_settle_mode == SND_SETTLED
    a.expect_message(settled=True)
    a.expect_message(settled=True)
    a.nothing()
    s.show("q")
    a.drop()
    s.until(lambda: not s.service.state.queues["q"].consumers.subscriptions, "the link has ended")
    s.show("q")


def settled_without_an_outcome(s: Stage) -> None:
    filled(s, *numbered(4))
    a = s.script().usual()
    s.note("no default outcome: released")
    a.receiver(credit=1)
    a.expect_messages(b"m0")
    a.send(says(None, 0))
    a.nothing()
    s.note("the source's default outcome")
    for handle, default in enumerate((Accepted(), Rejected(), Modified(delivery_failed=True)), 1):
        name = type(default).__name__.lower()
        a.receiver(handle=handle, name=name, source=Source(address="q", default_outcome=default), credit=1)
        a.expect_message()
        a.send(says(None, handle))
        a.nothing()
        s.show("q")
    assert s.messages("q") == [(2, 1), (3, 0)]


def default_outcome_at_the_end_of_a_link(s: Stage) -> None:
    filled(s, *numbered(5))
    a = s.script().usual()
    notes = {symbol("x-opt-why"): "the link ended"}
    for number, default in enumerate(
        (None, Released(), Modified(delivery_failed=True, message_annotations=notes), Modified(), Accepted(), Rejected())
    ):
        s.note(f"default outcome: {'none' if default is None else type(default).__name__.lower()}")
        a.receiver(source=Source(address="q", default_outcome=default), name=str(number), credit=1)
        a.expect_messages(b"m1" if isinstance(default, Rejected) else b"m0")
        a.send(detach())
        a.expect(Detach)
        s.show("q")
    assert s.messages("q") == [(2, 0), (3, 0), (4, 0)]


def default_outcome_merges_its_annotations(s: Stage) -> None:
    filled(s, *numbered(2))
    a = s.script().usual()
    default = Modified(delivery_failed=True, undeliverable_here=True, message_annotations={symbol("x-opt-why"): "gone"})
    a.receiver(source=Source(address="q", default_outcome=default), credit=2)
    a.expect_messages(b"m0", b"m1")
    a.send(says(Released(), 1), detach())
    a.expect(Detach)
    a.receiver(credit=2)
    first, second = a.expect_message(), a.expect_message()
    assert (annotations_of(first), header_of(first).delivery_count) == ({"x-opt-why": "gone"}, 1)
    assert (annotations_of(second), header_of(second).delivery_count) == ({}, 0)


def windows_of_a_session(s: Stage) -> None:
    filled(s, *numbered(4))
    a = s.script()
    a.begin(incoming_window=2)
    a.receiver()
    a.send(flow(0, 3, incoming_window=2))
    a.expect_messages(b"m0", b"m1")
    a.receiver(handle=1, name="another")
    a.send(flow(1, 0, incoming_window=0, echo=True))
    a.expect(Flow, handle=1)
    s.settle()
    s.note("a flow for one link also opens the window for the other")
    a.send(flow(1, 0, incoming_window=5))
    a.expect_messages(b"m2")


def a_drain_waits_for_the_window(s: Stage) -> None:
    filled(s, *numbered(1))
    a = s.script()
    a.begin(incoming_window=0)
    a.receiver()
    a.send(flow(0, 2, incoming_window=0, drain=True))
    s.note("a message is available, so the drain is not answered yet")
    a.send(flow(None, incoming_window=0, echo=True))
    a.expect(Flow, handle=None)
    s.settle()
    a.send(flow(None, incoming_window=5))
    a.expect_messages(b"m0")
    a.expect(Flow, handle=0, delivery_count=2, link_credit=0, drain=True)
    s.note("if the queue is empty, the drain does not wait")
    a.send(flow(0, 2, count=2, incoming_window=0, drain=True))
    a.expect(Flow, handle=0, delivery_count=4, link_credit=0, drain=True)


def several_frames_in_a_window(s: Stage) -> None:
    filled(s, message(b"x" * 1200), message(b"m1"))
    a = s.script(max_frame_size=512)
    a.frame_size = 512
    a.begin(incoming_window=2)
    a.receiver()
    a.receiver(handle=1, name="another")
    a.send(flow(0, 1, incoming_window=2))
    a.expect(Transfer, handle=0, more=True)
    a.expect(Transfer, handle=0, more=True)
    a.send(flow(1, 1, incoming_window=0))
    s.note("the window is used up within a message; then the rest of it, and the other link's message")
    a.send(flow(None, incoming_window=2))
    a.expect_message()
    a.expect_messages(b"m1")
    s.show("q")


def larger_than_the_receiver_takes(s: Stage) -> None:
    filled(s, message(b"s0"), message(b"x" * 500), message(b"s2"))
    a = s.script("A").usual()
    a.receiver(credit=5, max_message_size=100)
    a.expect_messages(b"s0", b"s2")
    a.nothing()
    s.show("q")
    b = s.script("B", container_id="other").usual()
    b.receiver(credit=5)
    b.expect_message()
    b.nothing()


def browsing_beside_an_acquirer(s: Stage) -> None:
    filled(s, *numbered(3))
    a = s.script("A").usual()
    answer = a.receiver(source=Source(address="q", distribution_mode="copy"), credit=10)
    assert isinstance(answer.source, Source)
    assert answer.source.distribution_mode == "copy"
    a.expect_messages(b"m0", b"m1", b"m2")
    s.show("q")
    b = s.script("B", container_id="other").usual()
    b.receiver(credit=1)
    b.expect_messages(b"m0")
    s.note("outcomes of a browser change nothing in the queue")
    a.send(says(Accepted(), 0, settled=False), says(Rejected(), 1), says(Modified(delivery_failed=True), 2))
    a.expect(Disposition, first=0, settled=True)
    s.show("q")
    s.note("a browser also receives later messages, but not messages that another link holds")
    filled(s, message(b"m3"))
    a.expect_messages(b"m3")
    s.note("at the end of the queue, a drain is answered")
    a.send(flow(0, 10, count=4, drain=True))
    a.expect(Flow, delivery_count=14, link_credit=0)
    s.note("a second browser: two at a time, settled when sent")
    a.receiver(
        handle=1, name="second", source=Source(address="q", distribution_mode="copy"), snd_settle_mode=SND_SETTLED, credit=2
    )
    a.expect_messages(b"m1", b"m2")
    a.send(flow(1, 2, count=2))
    a.expect_messages(b"m3")
    a.nothing()
    a.send(detach(1))
    a.expect(Detach)
    s.show("q")


def a_queue_is_deleted_under_its_links(s: Stage) -> None:
    filled(s, *numbered(2))
    a = s.script().usual()
    a.receiver(credit=5)
    a.expect_messages(b"m0", b"m1")
    a.sender(handle=1)
    s.delete("q")
    conditions = {}
    for _ in range(2):
        ended = a.expect(Detach, closed=True)
        assert ended.error is not None
        conditions[ended.handle] = ended.error.condition
    assert conditions == {0: "amqp:resource-deleted", 1: "amqp:resource-deleted"}
    a.send(detach(0), detach(1))
    s.note("outcomes for messages of the deleted queue have no effect")
    a.send(says(Accepted(), 0, 1))
    a.nothing()
    s.lines.append("!  the queue 'q' is declared")
    s.declare("q")
    a.receiver(credit=1)
    a.nothing()


def modes_of_links_that_are_both(s: Stage) -> None:
    s.note("the same name in both directions is two links")
    a = s.script().usual()
    a.sender(name="x")
    a.receiver(handle=1, name="x", credit=1)
    a.send(transfer(0))
    first, second = a._frame(), a._frame()
    assert first is not None
    assert second is not None
    assert {type(first[1]).__name__, type(second[1]).__name__} == {"Disposition", "Transfer"}
    a.send(Detach(handle=1, closed=True))
    a.expect(Detach, handle=1)
    s.show("q")


SCENARIOS = [
    credit_and_drain,
    credit_withdrawn_while_the_disk_writes,
    outcomes,
    annotations_are_merged,
    dispositions_in_ranges,
    both_settle_modes_of_a_receiver,
    sent_settled,
    settled_without_an_outcome,
    default_outcome_at_the_end_of_a_link,
    default_outcome_merges_its_annotations,
    windows_of_a_session,
    a_drain_waits_for_the_window,
    several_frames_in_a_window,
    larger_than_the_receiver_takes,
    browsing_beside_an_acquirer,
    a_queue_is_deleted_under_its_links,
    modes_of_links_that_are_both,
]
