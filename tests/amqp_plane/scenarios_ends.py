"""Links, sessions and connections that end with deliveries under way: C8, 2.4 to 2.6, and the messages of the next link."""

from __future__ import annotations

from penstock.broker_core.amqp.frames import protocol_header
from penstock.broker_core.amqp.performatives import (
    Accepted,
    Attach,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Released,
    Transfer,
)
from penstock.broker_core.engine import commands as c

from ..journal.lying_disk import LyingDisk
from .frames import begin, detach, flow, message, receives, says, sends, transfer
from .harness import Script, Stage, staged
from .scenarios_outgoing import filled, numbered


def _holding(s: Stage, name: str) -> Script:
    """Attach a receiver that accepts the first of four messages and holds two more."""
    a = s.script(name, container_id=name).usual()
    a.receiver(credit=3)
    a.expect_messages(b"m0", b"m1", b"m2")
    a.send(says(Accepted(), 0))
    a.nothing()
    return a


def _returned(s: Stage, a: Script) -> None:
    """Expect the messages at their places: only the one that the client works on has a failed attempt."""
    s.until(lambda: "acquired" not in s.counts("q"), "its messages are back")
    s.show("q")
    assert s.messages("q") == [(1, 1), (2, 0), (3, 0)]
    b = s.script("B", container_id="B").usual()
    b.receiver(credit=5)
    b.expect_messages(b"m1", b"m2", b"m3")


def a_detach_returns_what_the_link_held(s: Stage) -> None:
    filled(s, *numbered(4))
    a = _holding(s, "A")
    a.send(detach())
    a.expect(Detach, closed=True)
    _returned(s, a)


def a_detach_that_does_not_close(s: Stage) -> None:
    s.note("the link keeps its messages until its session ends or its terminus expires at the detach: see scenarios_detached")
    filled(s, *numbered(4))
    a = _holding(s, "A")
    a.send(detach(closed=False))
    a.expect(Detach, closed=False, error=None)
    s.show("q")
    a.send(End())
    a.expect(End)
    _returned(s, a)


def an_end_returns_what_its_links_held(s: Stage) -> None:
    filled(s, *numbered(4))
    a = _holding(s, "A")
    a.send(End())
    a.expect(End, error=None)
    _returned(s, a)


def a_close_returns_what_its_links_held(s: Stage) -> None:
    filled(s, *numbered(4))
    a = _holding(s, "A")
    a.send(Close(error=Error(condition="com.example:enough")))
    a.expect(Close, error=None)
    a.expect_end()
    _returned(s, a)


def a_lost_connection_returns_what_its_links_held(s: Stage) -> None:
    filled(s, *numbered(4))
    a = _holding(s, "A")
    a.drop()
    _returned(s, a)


def a_violation_returns_what_the_links_held(s: Stage) -> None:
    filled(s, *numbered(4))
    a = _holding(s, "A")
    s.note("garbage instead of a frame")
    a.say("eight octets of garbage", b"\x00\x00\x00\x08\x01\x02\x00\x00")
    close = a.expect(Close)
    assert close.error is not None
    assert close.error.condition == "amqp:connection:framing-error"
    a.expect_end()
    _returned(s, a)


def a_session_error_ends_its_links_alone(s: Stage) -> None:
    filled(s, *numbered(4))
    a = s.script("A", container_id="A")
    a.begin()
    a.begin(1)
    a.send(receives(name="one"), flow(0, 2), channel=1)
    a.expect(Attach, 1)
    a.expect_messages(b"m0", b"m1")
    a.receiver(name="two", credit=1)
    a.expect_messages(b"m2")
    s.note("a flow for a handle that is not attached")
    a.send(flow(9, 1), channel=1)
    end = a.expect(End, 1)
    assert end.error is not None
    assert end.error.condition == "amqp:session:unattached-handle"
    a.send(End(), channel=1)
    s.until(lambda: s.counts("q") == {"available": 3, "acquired": 1}, "the messages of the session are back")
    a.send(flow(0, 2, count=1))
    a.expect_messages(b"m0", b"m1")


@staged(disk=LyingDisk)
def what_was_not_sent_yet_is_not_counted(s: Stage) -> None:
    filled(s, *numbered(3))
    a = s.script("A", container_id="A").usual()
    a.receiver(credit=1)
    a.expect_messages(b"m0")
    s.slow_disk()
    s.note("the messages are acquired while the disk writes; then the link ends")
    a.send(flow(0, 2, count=1, echo=True))
    a.expect(Flow)
    s.until(lambda: s.counts("q") == {"acquired": 3}, "the messages are acquired")
    a.send(detach(), flow(None, echo=True))
    a.expect(Flow)
    s.quick_disk()
    a.expect(Detach)
    a.nothing()
    assert s.messages("q") == [(0, 1), (1, 0), (2, 0)]


def what_no_window_took_is_not_counted(s: Stage) -> None:
    filled(s, *numbered(3))
    a = s.script("A", container_id="A").usual()
    a.begin(1, incoming_window=1)
    a.send(receives(), channel=1)
    a.expect(Attach, 1)
    a.send(flow(0, 3, incoming_window=1), channel=1)
    a.expect_messages(b"m0")
    s.show("q")
    a.send(End(), channel=1)
    a.expect(End, 1)
    assert s.messages("q") == [(0, 1), (1, 0), (2, 0)]


def returns_keep_their_place(s: Stage) -> None:
    filled(s, *numbered(6))
    a = s.script("A", container_id="A").usual()
    a.receiver(credit=4)
    a.expect_messages(b"m0", b"m1", b"m2", b"m3")
    b = s.script("B", container_id="B").usual()
    b.receiver(credit=1)
    b.expect_messages(b"m4")
    s.note("the second and the fourth come back: a link with credit gets them before later messages")
    a.send(says(Released(), 3), says(Released(), 1))
    a.nothing()
    b.send(flow(0, 3, count=1))
    b.expect_messages(b"m1", b"m3", b"m5")


def outcomes_before_an_end_hold(s: Stage) -> None:
    filled(s, *numbered(3))
    a = s.script("A", container_id="A").usual()
    a.receiver(credit=3)
    a.expect_messages(b"m0", b"m1", b"m2")
    s.note("one write: an unsettled outcome, a settled one, and a close; the first is confirmed before the close is answered")
    a.send(says(Accepted(), 0, settled=False), says(Accepted(), 1), Close())
    a.expect(Disposition, first=0, settled=True, state=Accepted())
    a.expect(Close)
    a.expect_end()
    s.show("q")


def a_lost_connection_is_over_before_the_next_attach(s: Stage) -> None:
    filled(s, *numbered(2))
    a = s.script("A").usual()
    a.receiver(credit=5)
    a.expect_messages(b"m0", b"m1")
    b = s.script("B").usual()
    a.drop()
    b.receiver(credit=5)
    b.expect_messages(b"m0", b"m1")


def transfers_of_a_lost_connection_are_kept(s: Stage) -> None:
    a = s.script("A").usual()
    a.sender()
    whole = message(b"half")
    s.note("one complete delivery, and half of another one, which is dropped")
    a.send(transfer(0, settled=True), transfer(1, whole[:4], more=True))
    a.drop()
    s.until(lambda: s.counts("q") == {"available": 1}, "the complete one is in the queue")
    s.show("q")


def errors_name_their_scope(s: Stage) -> None:
    s.note("an error of a link ends the link; the session and its other links continue")
    a = s.script().usual()
    a.sender()
    a.send((Transfer(handle=0, delivery_id=0), message(b"no tag")))
    refusal = a.expect(Detach)
    assert refusal.error is not None
    assert refusal.error.condition == "amqp:invalid-field"
    s.note("frames that were sent to the link before its end are dropped")
    a.send(transfer(1), detach())
    a.sender()
    a.send(transfer(2))
    a.expect(Disposition, first=2)
    s.note("a handle in use ends the connection")
    a.send(sends(name="again"))
    closed = a.expect(Close)
    assert closed.error is not None
    assert closed.error.condition == "amqp:session:handle-in-use"
    a.send(Close())
    a.expect_end()
    s.show("q")


@staged(amqp_max_sessions=1, amqp_max_links=2)
def more_sessions_and_links_than_are_allowed(s: Stage) -> None:
    a = s.script().usual()
    a.sender()
    a.receiver(handle=1)
    a.send(sends(handle=2, name="third"))
    close = a.expect(Close)
    assert close.error is not None
    assert close.error.condition == "amqp:connection:framing-error"
    a.send(Close())
    a.expect_end()
    b = s.script("B").usual()
    b.send(begin(), channel=1)
    close = b.expect(Close)
    assert close.error is not None
    assert close.error.condition == "amqp:connection:framing-error"
    b.send(Close())
    b.expect_end()


@staged(amqp_max_connections=1)
def more_connections_than_are_allowed(s: Stage) -> None:
    s.script("A")
    b = s.script("B", open=False)
    b.say("header AMQP 0.1.0.0", protocol_header(0))
    b.send(Open(container_id="B"))
    b.hear_header()
    b.expect(Open)
    close = b.expect(Close)
    assert close.error is not None
    assert close.error.condition == "amqp:resource-limit-exceeded"
    b.send(Close())
    b.expect_end()


@staged(amqp_max_unsettled=2, amqp_max_unsettled_per_connection=3)
def no_more_unsettled_than_are_allowed(s: Stage) -> None:
    filled(s, *numbered(6))
    a = s.script().usual()
    a.receiver(credit=5)
    a.expect_messages(b"m0", b"m1")
    a.receiver(handle=1, name="another", credit=5)
    a.expect_messages(b"m2")
    a.nothing()
    s.note("room on the first link is room on the connection: first for the link that has waited for it")
    a.send(says(Accepted(), 0))
    a.expect_message(handle=1)
    a.send(says(Accepted(), 1))
    a.expect_message(handle=0)
    a.nothing()
    s.note("a drain is answered although the limit holds messages back: neither peer waits for the other")
    a.send(flow(1, 5, count=2, drain=True))
    a.expect(Flow, handle=1, link_credit=0)


def the_broker_stops(s: Stage) -> None:
    filled(s, *numbered(1))
    a = s.script().usual()
    a.receiver(credit=1)
    a.expect_messages(b"m0")
    s.lines.append("!  the broker stops")
    s.stop()
    close = a.expect(Close)
    assert close.error is not None
    assert close.error.condition == "amqp:connection:forced"
    a.send(Close())
    a.expect_end()
    assert s.service.submit(c.Stat("q"))[0]["available"] == 1


SCENARIOS = [
    a_detach_returns_what_the_link_held,
    a_detach_that_does_not_close,
    an_end_returns_what_its_links_held,
    a_close_returns_what_its_links_held,
    a_lost_connection_returns_what_its_links_held,
    a_violation_returns_what_the_links_held,
    a_session_error_ends_its_links_alone,
    what_was_not_sent_yet_is_not_counted,
    what_no_window_took_is_not_counted,
    returns_keep_their_place,
    outcomes_before_an_end_hold,
    a_lost_connection_is_over_before_the_next_attach,
    transfers_of_a_lost_connection_are_kept,
    errors_name_their_scope,
    more_sessions_and_links_than_are_allowed,
    more_connections_than_are_allowed,
    no_more_unsettled_than_are_allowed,
    the_broker_stops,
]
