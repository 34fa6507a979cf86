"""Credit of senders that follows the room of their queue: `overflow=block` (Q15, C9)."""

from __future__ import annotations

from broker_core.amqp.messages import Properties
from broker_core.amqp.performatives import Accepted, Attach, Disposition, Flow, Rejected, Target
from broker_core.engine import commands as c

from .frames import message, says, sends, transfer
from .harness import Script, Stage


def _sender(s: Stage, name: str) -> Script:
    a = s.script(name, container_id=name).usual()
    a.send(sends("few"))
    a.expect(Attach)
    return a


def _fill(a: Script, *numbers: int) -> None:
    for number in numbers:
        a.send(transfer(number))
        a.expect(Disposition, state=Accepted())


def credit_follows_the_room_of_a_queue(s: Stage) -> None:
    s.declare("few", maxMessages=4, overflow="block")
    a = _sender(s, "A")
    a.expect(Flow, link_credit=2)
    s.note("half of the room is for others; what it gets makes no more than four")
    a.send(transfer(0))
    a.expect(Disposition, state=Accepted())
    a.expect(Flow, link_credit=2)
    a.send(transfer(1), transfer(2))
    a.expect(Disposition, state=Accepted())
    a.expect(Flow, link_credit=1)
    _fill(a, 3)
    a.nothing()
    s.note("another sender finds it full")
    b = _sender(s, "B")
    b.nothing()
    s.note("while there is room for one, each may send one")
    r = s.script("R", container_id="R").usual()
    r.receiver("few", credit=10)
    r.expect_messages(b"m0", b"m1", b"m2", b"m3")
    r.send(says(Accepted(), 0))
    a.expect(Flow, link_credit=1)
    b.expect(Flow, link_credit=1)
    _fill(a, 4)
    _fill(b, 0)
    a.nothing()
    b.nothing()
    s.show("few")
    r.expect_messages(b"m4", b"m0")
    r.send(says(Accepted(), 1, 5))
    a.expect(Flow)
    b.expect(Flow)


def a_sender_that_does_not_send_keeps_nobody_waiting(s: Stage) -> None:
    s.declare("few", maxMessages=1, overflow="block")
    idle = _sender(s, "idle")
    idle.expect(Flow, link_credit=1)
    a = _sender(s, "A")
    a.expect(Flow, link_credit=1)
    a.send(transfer(0))
    a.expect(Disposition, state=Accepted())
    a.nothing()
    s.service.submit(c.Purge("few"))
    a.expect(Flow, link_credit=1)


def room_in_bytes(s: Stage) -> None:
    s.declare("few", maxBytes=1000, overflow="block")
    a = _sender(s, "A")
    s.note("before the first message nobody knows how large they are")
    a.expect(Flow, link_credit=1)
    a.send(transfer(0, message(b"x" * 300)))
    a.expect(Flow, link_credit=1)
    a.expect(Disposition, state=Accepted())
    a.expect(Flow, link_credit=2)
    a.send(transfer(1, message(b"x" * 300)), transfer(2, message(b"x" * 500)))
    a.expect(Disposition, state=Accepted(), first=1, last=2)
    a.nothing()
    s.note("an operator makes room")
    s.service.submit(c.Purge("few"))
    a.expect(Flow, link_credit=1)


def the_anonymous_terminus_has_no_credit_of_one_queue(s: Stage) -> None:
    s.declare("few", maxMessages=1, overflow="block")
    a = s.script().usual()
    a.send(sends(name="relay", target=Target()))
    a.expect(Attach)
    a.expect(Flow)
    for number, outcome in enumerate((Accepted, Rejected)):
        a.send(transfer(number, message(b"m", properties=Properties(to="few"))))
        assert isinstance(a.expect(Disposition).state, outcome)
    s.show("few")


SCENARIOS = [
    credit_follows_the_room_of_a_queue,
    a_sender_that_does_not_send_keeps_nobody_waiting,
    room_in_bytes,
    the_anonymous_terminus_has_no_credit_of_one_queue,
]
