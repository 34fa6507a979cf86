"""Credit of senders that follows the room of their queue: `overflow=block` (Q15, C9)."""

from __future__ import annotations

from penstock.broker_core.amqp import TransactionalState
from penstock.broker_core.amqp.messages import Properties
from penstock.broker_core.amqp.performatives import Accepted, Attach, Detach, Disposition, Flow, Rejected, Target
from penstock.broker_core.engine import commands as c

from .frames import detach, message, says, sends, symbol, transfer
from .harness import Script, Stage
from .transacting import control, declare, within


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
    s.note("half of the room is reserved for other senders; the queue never holds more than four messages")
    a.send(transfer(0))
    a.expect(Disposition, state=Accepted())
    a.expect(Flow, link_credit=2)
    a.send(transfer(1), transfer(2))
    a.expect(Disposition, state=Accepted())
    a.expect(Flow, link_credit=1)
    _fill(a, 3)
    a.nothing()
    s.note("another sender finds the queue full")
    b = _sender(s, "B")
    b.nothing()
    s.note("with room for one message, each sender may send one")
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
    s.note("room for two messages: one for each sender, in any order")
    r.send(says(Accepted(), 1, 3))
    a.expect(Flow, link_credit=1)
    b.expect(Flow, link_credit=1)


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
    s.note("before the first message, the size of messages is unknown")
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


def _to(queue: str, body: bytes = b"m") -> bytes:
    return message(body, properties=Properties(to=queue))


def _relay(s: Stage, name: str = "A") -> Script:
    a = s.script(name, container_id=name).usual()
    a.send(sends(name="relay", target=Target()))
    a.expect(Attach)
    a.expect(Flow)
    return a


def the_anonymous_terminus_waits_with_its_outcome(s: Stage) -> None:
    s.declare("few", maxMessages=2, overflow="block")
    s.declare("other")
    a = _relay(s)
    a.send(*(transfer(number, _to("few", b"m%d" % number)) for number in range(5)))
    a.expect(Disposition, first=0, last=1, state=Accepted())
    s.note("messages for another queue are not delayed")
    a.send(transfer(5, _to("other")))
    a.expect(Disposition, first=5, state=Accepted())
    a.nothing()
    s.show("few", "other")
    s.note("waiting messages are stored in their order, and later ones do not overtake them")
    r = s.script("R", container_id="R").usual()
    r.receiver("few", credit=10)
    r.expect_messages(b"m0", b"m1")
    r.send(says(Accepted(), 0))
    a.expect(Disposition, first=2, state=Accepted())
    r.expect_messages(b"m2")
    a.send(transfer(6, _to("few", b"m6")))
    r.send(says(Accepted(), 1, 2))
    a.expect(Disposition, first=3, last=4, state=Accepted())
    r.expect_messages(b"m3", b"m4")
    r.send(says(Accepted(), 3))
    a.expect(Disposition, first=6, state=Accepted())
    r.expect_messages(b"m6")


def a_line_shares_the_room_with_links(s: Stage) -> None:
    s.declare("few", maxMessages=2, overflow="block")
    b = _sender(s, "B")
    b.expect(Flow, link_credit=1)
    a = _relay(s)
    s.note("one message is promised to B; room for one remains")
    a.send(transfer(0, _to("few")), transfer(1, _to("few")))
    a.expect(Disposition, first=0, state=Accepted())
    s.note("with room for one message, each sender may send one")
    a.expect(Disposition, first=1, state=Accepted())
    a.send(transfer(2, _to("few")))
    a.nothing()
    s.show("few")


def what_waits_at_the_anonymous_terminus_ends(s: Stage) -> None:
    s.declare("few", "fewer", maxMessages=1, overflow="block")
    a = _relay(s)
    a.send(transfer(0, _to("few")), transfer(1, _to("few")), transfer(2, _to("fewer")), transfer(3, _to("fewer")))
    a.expect(Disposition, first=0, state=Accepted())
    a.expect(Disposition, first=2, state=Accepted())
    a.nothing()
    s.delete("few")
    gone = a.expect(Disposition, first=1)
    assert isinstance(gone.state, Rejected)
    s.note("an operator changes the overflow option: the queue rejects the waiting message")
    s.service.submit(c.AlterQueue("fewer", {"overflow": "reject"}))
    full = a.expect(Disposition, first=3)
    assert isinstance(full.state, Rejected)
    s.note("its link ends: the waiting message is not stored")
    s.service.submit(c.AlterQueue("fewer", {"overflow": "block"}))
    a.send(transfer(4, _to("fewer")), detach(0))
    a.expect(Detach)
    s.service.submit(c.Purge("fewer"))
    s.show("fewer")
    s.until(lambda: not s.plane.sender_credit.waiting_lists and not s.plane.sender_credit.waiting_bytes, "nothing of it is kept")


def nobody_waits_for_room_at_once_or_in_a_transaction(s: Stage) -> None:
    s.declare("few", maxMessages=1, overflow="block")
    a = _relay(s)
    a.send(transfer(0, _to("few")))
    a.expect(Disposition, state=Accepted())
    s.note("in a transaction: a discharge may follow")
    control(a)
    txn = declare(a, 1)
    a.send(transfer(2, _to("few"), state=within(txn)))
    refused = a.expect(Disposition, first=2)
    assert isinstance(refused.state, TransactionalState)
    assert isinstance(refused.state.outcome, Rejected)
    s.note("*immediate*")
    a.send(sends(handle=2, name="now", target=Target(capabilities=(symbol("immediate"),))))
    a.expect(Attach)
    a.expect(Flow)
    a.send(transfer(3, _to("few"), handle=2))
    assert isinstance(a.expect(Disposition, first=3).state, Rejected)
    s.show("few")


SCENARIOS = [
    credit_follows_the_room_of_a_queue,
    a_sender_that_does_not_send_keeps_nobody_waiting,
    room_in_bytes,
    the_anonymous_terminus_waits_with_its_outcome,
    a_line_shares_the_room_with_links,
    what_waits_at_the_anonymous_terminus_ends,
    nobody_waits_for_room_at_once_or_in_a_transaction,
]
