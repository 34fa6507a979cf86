"""A client that does not wait for answers: each error ends its connection, session or link, after the answers to all earlier
frames.

A `send` is one write, and one read of the broker's; `test_splits` cuts the same octets otherwise.
"""

from __future__ import annotations

from typing import Any

from penstock.broker_core.amqp.composites import Composite
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.frames import encode_frame, protocol_header
from penstock.broker_core.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Source,
    Transfer,
)
from penstock.broker_core.amqp.types import Described, UInt, ULong

from .frames import begin, detach, flow, message, more, receives, says, sends, transfer
from .harness import Script, Stage
from .scenarios_outgoing import filled, numbered

ZERO = UInt(0)
UNATTACHED = "amqp:session:unattached-handle"
NO_CREDIT = "amqp:link:transfer-limit-exceeded"


def _condition(answer: End | Detach | Close) -> str | None:
    return None if answer.error is None else answer.error.condition


def _still_served(a: Script, number: int = 0, handle: int = 0) -> None:
    """Send a message over session 0, which has a sender."""
    a.send(transfer(number, handle=handle))
    a.expect(Disposition, 0, first=number, state=Accepted())


def an_error_with_its_begin(s: Stage) -> None:
    a = s.script().usual()
    a.sender()
    a.send(begin(), flow(77, 1), channel=1)
    a.expect(Begin, 1)
    assert _condition(a.expect(End, 1)) == UNATTACHED
    a.send(End(), channel=1)
    _still_served(a)
    s.note("an error after the attach: the attach is answered before the session ends")
    a.send(begin(), receives(), flow(77, 1), flow(78, 1), channel=1)
    a.expect(Begin, 1)
    a.expect(Attach, 1)
    assert _condition(a.expect(End, 1)) == UNATTACHED
    a.send(End(), channel=1)
    s.show("q")


def an_error_with_its_attach(s: Stage) -> None:
    s.note("a message without credit ends its link; its session and connection continue")
    a = s.script().usual()
    a.sender()
    a.send(begin(), sends(name="other"), transfer(0), transfer(1), channel=1)
    a.expect(Begin, 1)
    a.expect(Attach, 1)
    assert _condition(a.expect(Detach, 1)) == NO_CREDIT
    a.send(detach(), receives(), channel=1)
    a.expect(Attach, 1)
    _still_served(a)
    s.note("the same with a detach behind it, and the name attached again")
    a.send(sends(handle=1, name="other"), transfer(1, handle=1), detach(1), sends(handle=1, name="other"))
    a.expect(Attach, 0, handle=1)
    assert _condition(a.expect(Detach, handle=1)) == NO_CREDIT
    a.expect(Attach, 0)
    a.expect(Flow)
    s.note("a refused attach")
    a.send(sends("nowhere", handle=2), transfer(1, handle=2))
    a.expect(Attach, handle=2, target=None)
    assert _condition(a.expect(Detach, handle=2)) == "amqp:not-found"
    s.show("q")


def an_error_with_its_open(s: Stage) -> None:
    frames = (Open(container_id="client"), begin(), receives(), flow(77, 1))
    a = s.script(open=False)
    a.say("header, open, begin, attach, and a flow of another handle", protocol_header(0), *_octets(*frames))
    a.hear_header()
    a.expect(Open)
    a.expect(Begin)
    a.expect(Attach)
    assert _condition(a.expect(End)) == UNATTACHED
    a.send(End())
    a.usual().sender()
    _still_served(a)
    s.note("an end of an unknown session ends the connection")
    b = s.script("B", open=False)
    b.say("header, open, begin, an end on channel 1", protocol_header(0), *_octets(*frames[:2]), encode_frame(1, End().encode()))
    b.hear_header()
    b.expect(Open)
    b.expect(Begin)
    assert _condition(b.expect(Close)) == "amqp:not-allowed"
    b.send(Close())
    b.expect_end()
    s.note("an error in the open itself: the broker still answers with an open")
    c = s.script("C", open=False)
    c.say("header, an open with frames of 100 octets, a begin", protocol_header(0), *_octets(_small(), begin()))
    c.hear_header()
    c.expect(Open)
    assert _condition(c.expect(Close)) == "amqp:invalid-field"
    c.send(Close())
    c.expect_end()


def _small() -> Open:
    return Open(container_id="client", max_frame_size=100)


def _octets(*bodies: Open | Begin | Attach | Flow | Close) -> list[bytes]:
    return [encode_frame(0, body.encode()) for body in bodies]


def what_came_before_an_error_is_served(s: Stage) -> None:
    s.note("messages of a session, then a second one whose first frame is an error, in one write")
    a = s.script().usual()
    a.sender()
    a.say(
        "two messages on channel 0, then begin(1) and a flow of another handle",
        *(encode_frame(0, body.encode(), payload) for body, payload in (transfer(0), transfer(1))),
        *(encode_frame(1, body.encode()) for body in (begin(), flow(77, 1))),
        *(encode_frame(0, body.encode(), payload) for body, payload in (transfer(2),)),
    )
    a.expect(Begin, 1)
    a.expect(Disposition, 0, first=0, last=2)
    assert _condition(a.expect(End, 1)) == UNATTACHED
    a.send(End(), channel=1)
    s.note("a message in three frames, an error of its session behind it: accepted, then the session ends")
    whole = message(b"x" * 100)
    a.send(transfer(3, whole[:40], more=True), more(whole[40:80], more=True), more(whole[80:]), flow(77, 1))
    a.expect(Disposition, first=3)
    assert _condition(a.expect(End)) == UNATTACHED
    a.send(End())
    s.note("a partial message is not stored")
    a.usual().sender()
    a.send(transfer(0, whole[:40], more=True), flow(77, 1))
    assert _condition(a.expect(End)) == UNATTACHED
    a.send(End())
    s.show("q")


def what_looks_like_an_error_and_is_none(s: Stage) -> None:
    a = s.script()
    s.note("a detach before the attach is answered, an end before the begin, a close before the open")
    a.send(begin(), receives(), detach(), End())
    a.expect(Begin)
    a.expect(Attach)
    a.expect(Detach, error=None)
    a.expect(End, error=None)
    s.note("dispositions of unknown deliveries, and an echo directly after the begin")
    a.send(begin(), says(Accepted(), 0, 99), flow(None, echo=True))
    a.expect(Begin)
    a.expect(Flow, handle=None)
    a.nothing()
    b = s.script("B", open=False)
    b.say("header, open and close", protocol_header(0), *_octets(Open(container_id="b"), Close()))
    b.hear_header()
    b.expect(Open)
    b.expect(Close, error=None)
    b.expect_end()


def two_errors_in_one_write(s: Stage) -> None:
    s.note("errors of two links: both end")
    a = s.script().usual()
    a.sender()
    a.sender(handle=1, name="other")
    bad = [(Transfer(handle=handle, delivery_id=handle), message(b"no tag")) for handle in range(2)]
    a.send(*bad)
    assert _condition(a.expect(Detach, handle=0)) == "amqp:invalid-field"
    assert _condition(a.expect(Detach, handle=1)) == "amqp:invalid-field"
    a.send(detach(), detach(1))
    s.note("errors of a link and its session: both end with an error")
    a.sender()
    a.send(bad[0], flow(77, 1))
    assert _condition(a.expect(Detach, handle=0)) == "amqp:invalid-field"
    assert _condition(a.expect(End)) == UNATTACHED
    a.send(End())
    s.note("errors of a session and the connection, followed by a close with an error")
    a.usual()
    a.send(flow(77, 1), begin(), Close(error=Error(condition="com.example:enough")))
    assert _condition(a.expect(End)) == UNATTACHED
    assert _condition(a.expect(Close)) == "amqp:illegal-state"
    a.expect_end()


def invalid_fields_end_what_they_name(s: Stage) -> None:
    s.declare("r")
    filled(s, *numbered(2))
    a = s.script().usual()
    a.sender("r")
    a.receiver(handle=1, credit=1)
    a.expect_messages(b"m0")
    s.note("modified, with a number as the key of an annotation: the link ends, and the message is back")
    texts = Described(ULong(Modified.CODE), [True, None, {UInt(7): 1}])
    a.say("disposition(first=0, state=modified(annotations={7: 1}))", _raw(Disposition, True, ZERO, None, True, texts))
    assert _condition(a.expect(Detach, handle=1)) == "amqp:invalid-field"
    a.send(detach(1))
    s.show("q")
    s.note("a second and a third detach, which cross our own")
    a.send(detach(1), detach(1))
    a.receiver(handle=1, name="again", credit=1)
    a.expect_messages(b"m0")
    s.note("an attach with an invalid source, in one write with its begin: refused, and detached twice, as fe2o3-amqp does")
    source = Described(ULong(Source.CODE), ["q", UInt(9)])
    attach = _raw(Attach, "invalid", ZERO, True, None, None, source, channel=1)
    a.say("begin(1), attach(source=source(durable=9))", _raw(Begin, None, ZERO, UInt(9), UInt(9), channel=1), attach)
    a.expect(Begin, 1)
    a.expect(Attach, 1, source=None)
    assert _condition(a.expect(Detach, 1)) == "amqp:invalid-field"
    a.send(detach(), detach(), End(), channel=1)
    a.expect(End, 1, error=None)
    s.note("a second end")
    a.send(End(), channel=1)
    _still_served(a)


def _raw(kind: type[Composite], *fields: Any, channel: int = 0) -> bytes:
    return encode_frame(channel, encode(Described(ULong(kind.CODE), list(fields))))


SCENARIOS = [
    invalid_fields_end_what_they_name,
    an_error_with_its_begin,
    an_error_with_its_attach,
    an_error_with_its_open,
    what_came_before_an_error_is_served,
    what_looks_like_an_error_and_is_none,
    two_errors_in_one_write,
]
