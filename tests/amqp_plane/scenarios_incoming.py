"""Clients send: 2.6.7, 2.6.12, 2.6.14, 3.2, 3.4, and the OASIS anonymous terminus."""

from __future__ import annotations

from typing import Any

from penstock.broker_core.amqp.performatives import (
    RCV_SECOND,
    SENDER,
    SND_SETTLED,
    SND_UNSETTLED,
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Properties,
    Rejected,
    Source,
    Target,
)

from ..journal.lying_disk import LyingDisk
from .frames import begin, detach, flow, message, more, sends, symbol, transfer
from .harness import Script, Stage, staged

MIB = 1 << 20


def _conditions(body: Disposition | Detach) -> str | None:
    outcome = body.state if isinstance(body, Disposition) else body
    assert isinstance(outcome, (Rejected, Detach))
    return outcome.error and outcome.error.condition


def send_unsettled_settled_and_mixed(s: Stage) -> None:
    a = s.script().usual()
    a.sender(snd_settle_mode=SND_UNSETTLED)
    a.send(transfer(0), transfer(1), transfer(2))
    a.expect(Disposition, first=0, last=2, settled=True, state=Accepted())
    a.sender(handle=1, name="settled", snd_settle_mode=SND_SETTLED)
    a.send(transfer(3, handle=1, settled=True), transfer(4, handle=1, settled=True))
    a.nothing()
    a.sender(handle=2, name="mixed")
    s.note("a settled delivery between two unsettled ones")
    a.send(transfer(5, handle=2), transfer(6, handle=2, settled=True), transfer(7, handle=2))
    a.expect(Disposition, first=5, last=None)
    a.expect(Disposition, first=7)
    s.show("q")


@staged(disk=LyingDisk)
def confirmed_when_the_disk_has_it(s: Stage) -> None:
    a = s.script().usual()
    a.sender()
    s.slow_disk()
    a.send(transfer(0), transfer(1), flow(None, echo=True))
    a.expect(Flow)
    a.send(transfer(2), flow(None, echo=True))
    a.expect(Flow)
    s.quick_disk()
    a.expect(Disposition, first=0, last=1)
    a.expect(Disposition, first=2)


@staged(disk=LyingDisk)
def ends_are_answered_behind_confirmations(s: Stage) -> None:
    a = s.script().usual()
    a.sender()
    s.slow_disk()
    s.note("a detach, an end and a close are answered after earlier messages are durable and confirmed")
    a.send(transfer(0), detach())
    s.quick_disk()
    a.expect(Disposition, first=0)
    a.expect(Detach)
    a.sender()
    s.slow_disk()
    a.send(transfer(1), transfer(2, settled=True), End())
    s.quick_disk()
    a.expect(Disposition, first=1)
    a.expect(End)
    a.begin()
    a.sender()
    s.slow_disk()
    a.send(transfer(0), Close())
    s.quick_disk()
    a.expect(Disposition, first=0)
    a.expect(Close)
    a.expect_end()
    s.show("q")


def the_receiver_settles_second(s: Stage) -> None:
    a = s.script().usual()
    assert a.sender(rcv_settle_mode=RCV_SECOND).rcv_settle_mode == RCV_SECOND
    a.send(transfer(0), transfer(1))
    a.expect(Disposition, first=0, last=1, settled=False, state=Accepted())
    a.send(Disposition(role=SENDER, first=0, last=1, settled=True, state=Accepted()))
    s.note("mode first for one delivery of the same link")
    a.send(transfer(2, rcv_settle_mode=0), transfer(3))
    a.expect(Disposition, first=3, settled=False)
    a.expect(Disposition, first=2, settled=True)
    a.nothing()


@staged(amqp_credit=10)
def credit_is_a_window_of_what_is_not_finished(s: Stage) -> None:
    a = s.script().usual()
    a.sender()
    a.send(*[transfer(number) for number in range(4)])
    a.expect(Disposition)
    a.expect(Flow, delivery_count=4, link_credit=10)
    s.note("in mode second, deliveries that the sender has not settled use part of the window")
    a.sender(handle=1, name="second", rcv_settle_mode=RCV_SECOND)
    a.send(*[transfer(number, handle=1) for number in range(4, 14)])
    a.expect(Disposition, first=4, last=13, settled=False)
    a.nothing()
    a.send(Disposition(role=SENDER, first=4, last=8, settled=True))
    a.expect(Flow, delivery_count=10, link_credit=5)
    s.note("one message above the credit")
    a.send(*[transfer(number, handle=1) for number in range(14, 20)])
    a.expect(Disposition, first=14, last=18, settled=False)
    refused = a.expect(Detach, handle=1)
    assert _conditions(refused) == "amqp:link:transfer-limit-exceeded"
    a.send(detach(1))
    a.sender(handle=1, name="second")
    s.show("q")


def several_frames_and_aborted(s: Stage) -> None:
    a = s.script().usual()
    a.sender()
    a.sender(handle=1, name="other")
    whole = message(b"one, two, three")
    s.note("a delivery in three frames, with one of another link in between")
    a.send(transfer(0, whole[:5], more=True), more(whole[5:9], more=True), transfer(1, handle=1), more(whole[9:]))
    a.expect(Disposition, first=1)
    a.expect(Disposition, first=0)
    s.note("an aborted delivery is not stored")
    a.send(transfer(2, whole[:5], more=True), more(b"", aborted=True), transfer(3))
    a.expect(Disposition, first=3, last=None)
    s.note("an empty last frame")
    a.send(transfer(4, whole, more=True), more(b""))
    a.expect(Disposition, first=4)
    s.show("q")


@staged(max_message_bytes=1024)
def larger_than_max_message_size(s: Stage) -> None:
    a = s.script().usual()
    assert a.sender().max_message_size == 1024
    a.send(transfer(0, message(b"x" * 2000)))
    assert _conditions(a.expect(Detach)) == "amqp:link:message-size-exceeded"
    a.send(detach())
    a.sender()
    s.note("in several frames: the link ends when the limit is exceeded, and the remaining frames are dropped")
    a.send(transfer(1, message(b"x" * 2000)[:800], more=True), more(b"x" * 800, more=True), more(b"x" * 400))
    assert _conditions(a.expect(Detach)) == "amqp:link:message-size-exceeded"
    a.send(detach())
    a.sender()
    a.send(transfer(2))
    a.expect(Disposition, state=Accepted())
    s.show("q")


def malformed_messages(s: Stage) -> None:
    a = s.script().usual()
    a.sender()
    s.note("only the bad one is rejected")
    a.send(transfer(0), transfer(1, b"\x00\x53\x75\xa0\xff"), transfer(2))
    a.expect(Disposition, first=0, state=Accepted())
    a.expect(Disposition, first=2, state=Accepted())
    assert _conditions(a.expect(Disposition, first=1)) == "amqp:decode-error"
    s.note("no section, sections out of order, a header's field of a wrong type, half a message")
    bad = {
        b"junk": "amqp:decode-error",
        message(b"a") + b"\x00\x53\x70\x45": "amqp:decode-error",
        b"\x00\x53\x70\xc0\x03\x01\xa1\x00": "amqp:invalid-field",
        message(b"half")[:-2]: "amqp:decode-error",
    }
    for number, (payload, condition) in enumerate(bad.items(), 3):
        a.send(transfer(number, payload))
        assert _conditions(a.expect(Disposition, first=number, settled=True)) == condition
    s.note("an empty payload is a message without a body, which several clients send")
    a.send(transfer(7, b""))
    a.expect(Disposition, first=7, state=Accepted())
    s.note("a settled delivery has no outcome, so the link ends")
    a.send(transfer(8, b"junk", settled=True), transfer(9))
    a.expect(Disposition, first=9)
    ended = a.expect(Detach)
    assert _conditions(ended) == "amqp:decode-error"
    assert ended.error is not None
    assert ended.error.info == {symbol("delivery-tag"): b"t8"}
    a.send(detach())
    s.show("q")


def delivery_times_that_are_none(s: Stage) -> None:
    s.note("wrong types, and delays above ten years: only these messages are rejected, and the link stays")
    a = s.script().usual()
    a.sender()
    bad: list[tuple[str, Any]] = [
        ("x-opt-delivery-time", "tomorrow"),
        ("x-opt-delivery-delay", 1.5),
        ("x-opt-delivery-delay", 316_224_000_000),
        ("x-opt-delivery-time", (1 << 63) - 1),
    ]
    for number, (name, value) in enumerate(bad):
        a.send(transfer(number, message(b"x", message_annotations={symbol(name): value})))
        assert _conditions(a.expect(Disposition, first=number)) == "amqp:invalid-field"
    s.note("a time in the past, or a delay below 0, means immediately")
    past = [("x-opt-delivery-time", -1), ("x-opt-delivery-delay", -5)]
    notes = [{symbol(name): value} for name, value in past]
    a.send(*[transfer(number, message(b"x", message_annotations=note)) for number, note in enumerate(notes, 4)])
    a.expect(Disposition, first=4, last=5, state=Accepted())
    s.show("q")


def other_message_formats(s: Stage) -> None:
    a = s.script().usual()
    a.sender()
    a.send(transfer(0, message_format=1), transfer(1))
    rejected = a.expect(Disposition, first=0)
    assert _conditions(rejected) == "amqp:not-implemented"
    a.expect(Disposition, first=1, state=Accepted())
    a.send(transfer(2, message_format=0x80000000, settled=True))
    assert _conditions(a.expect(Detach)) == "amqp:not-implemented"
    a.send(detach())
    s.show("q")


def _to(address: str | None) -> bytes:
    return message(b"m", properties=Properties(to=address))


def anonymous_relay(s: Stage) -> None:
    s.declare("r")
    a = s.script().usual()
    a.sender(name="relay", target=Target())
    a.send(transfer(0, _to("q")), transfer(1, _to("r")), transfer(2, _to("q")))
    a.expect(Disposition, first=0, state=Accepted())
    a.expect(Disposition, first=2, state=Accepted())
    a.expect(Disposition, first=1, state=Accepted())
    s.show("q", "r")
    s.note("an unknown queue, no `to`, no properties, an invalid message")
    for number, (payload, condition) in enumerate(
        [
            (_to("none"), "amqp:not-found"),
            (_to(None), "amqp:invalid-field"),
            (message(b"m"), "amqp:invalid-field"),
            (b"junk", "amqp:decode-error"),
        ],
        3,
    ):
        a.send(transfer(number, payload))
        assert _conditions(a.expect(Disposition, first=number)) == condition
    s.note("a settled delivery to an unknown queue ends the link; the error names the delivery")
    a.send(transfer(7, _to("q"), settled=True), transfer(8, _to("none"), settled=True))
    ended = a.expect(Detach)
    assert _conditions(ended) == "amqp:not-found"
    assert ended.error is not None
    assert ended.error.info == {symbol("delivery-tag"): b"t8"}
    a.send(detach())
    s.show("q", "r")


def anonymous_relay_without_rejected(s: Stage) -> None:
    s.note("a sender without the outcome *rejected* is detached instead; earlier messages are confirmed first")
    a = s.script().usual()
    outcomes = (symbol("amqp:accepted:list"), symbol("amqp:released:list"))
    a.sender(name="relay", target=Target(), source=Source(outcomes=outcomes))
    a.send(transfer(0, _to("q")), transfer(1, _to("none")))
    a.expect(Disposition, first=0, state=Accepted())
    ended = a.expect(Detach)
    assert _conditions(ended) == "amqp:not-found"
    assert ended.error is not None
    assert ended.error.info == {symbol("delivery-tag"): b"t1"}
    a.send(detach())
    s.show("q")


@staged(disk=LyingDisk, free_space_mark_bytes=2 * MIB)
def the_disk_is_full(s: Stage) -> None:
    a = s.script().usual()
    a.sender()
    a.send(transfer(0), transfer(1))
    a.expect(Disposition)
    s.room(MIB + MIB // 2)
    a.send(transfer(2))
    assert _conditions(a.expect(Disposition, first=2, settled=True)) == "amqp:resource-limit-exceeded"
    s.note("settling is still possible, because it frees space")
    a.receiver(handle=1, credit=1)
    a.expect_messages(b"m0")
    a.send(Disposition(role=True, first=0, settled=False, state=Accepted()))
    a.expect(Disposition, role=SENDER, first=0, settled=True)
    s.note("a settled delivery has no outcome, so the link ends")
    a.send(transfer(3, settled=True))
    assert _conditions(a.expect(Detach, handle=0)) == "amqp:resource-limit-exceeded"
    a.send(detach())
    s.room(None)
    a.sender()
    a.send(transfer(4))
    a.expect(Disposition, first=4, state=Accepted())
    s.show("q")


@staged(disk=LyingDisk)
def the_journal_has_no_room(s: Stage) -> None:
    s.note("the journal's buffer is full: senders are not read, and later frames do not overtake their messages")
    s.declare("other")
    a = s.script().usual()
    a.sender()
    s.slow_disk()
    s.crowd("other")
    a.send(transfer(0), transfer(1, settled=True), Close())
    s.until(lambda: bool(s.plane.commit_loop._batch._paused), "the sender is held")
    s.quick_disk()
    a.expect(Disposition, first=0)
    a.expect(Close)
    a.expect_end()
    s.show("q")


def an_attach_without_a_source_sends_as_well(s: Stage) -> None:
    a = s.script().usual()
    a.send(sends(source=None))
    a.expect(Attach)
    a.expect(Flow)
    a.send(transfer(0))
    a.expect(Disposition)


def windows_renew(s: Stage) -> None:
    s.note("the session's window counts frames, and is renewed when half of it is used")
    a = Script(s, "")
    s._clients.append(a)
    a.open()
    a.send(begin(outgoing_window=5000))
    a.expect(type(begin()))
    a.sender()
    whole = message(b"x" * 1100)
    a.send(transfer(0, whole[:1], more=True), *[more(whole[at : at + 1], more=True) for at in range(1, 1023)], more(whole[1023:]))
    del s.lines[-1023:-1]
    s.lines.insert(-1, "   … 1,022 frames of one octet")
    a.expect(Flow, handle=None, incoming_window=2048)
    a.expect(Disposition, first=0)


SCENARIOS = [
    send_unsettled_settled_and_mixed,
    confirmed_when_the_disk_has_it,
    ends_are_answered_behind_confirmations,
    the_receiver_settles_second,
    credit_is_a_window_of_what_is_not_finished,
    several_frames_and_aborted,
    larger_than_max_message_size,
    malformed_messages,
    delivery_times_that_are_none,
    other_message_formats,
    anonymous_relay,
    anonymous_relay_without_rejected,
    the_disk_is_full,
    the_journal_has_no_room,
    an_attach_without_a_source_sends_as_well,
    windows_renew,
]
