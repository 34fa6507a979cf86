"""Detached links that are kept: settled later, attached again, resumed (2.6.3 to 2.6.5, 2.6.13, 3.4.6, 3.5.3, 3.5.4)."""

from __future__ import annotations

from typing import Any

from penstock.broker_core.amqp.performatives import (
    RCV_SECOND,
    SENDER,
    Accepted,
    Attach,
    Detach,
    Disposition,
    End,
    Flow,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from penstock.broker_core.engine.commands import AlterQueue

from .frames import detach, flow, header_of, message, receives, says, sends, symbol, transfer
from .harness import Script, Stage, staged
from .scenarios_outgoing import filled, numbered
from .transacting import commit, control, declare, discharged, roll_back, within

MINUTE = {"expiry_policy": symbol("connection-close"), "timeout": 60}


def tag(sequence: int) -> bytes:
    return sequence.to_bytes(8, "big")


def _holding(s: Stage, count: int, name: str = "A", **source: Any) -> Script:
    """Attach a receiver that holds `count` of four messages, unsettled."""
    filled(s, *numbered(4))
    a = s.script(name, container_id="reader").usual()
    a.receiver(credit=count, source=Source(address="q", **source))
    a.expect_messages(*[b"m%d" % number for number in range(count)])
    return a


def _detached(a: Script, handle: int = 0) -> None:
    a.send(detach(handle, closed=False))
    a.expect(Detach, closed=False, error=None)


def _again(s: Stage, name: str = "B", **fields: Any) -> tuple[Script, Attach]:
    """Connect the same container again, with the link of the same name."""
    b = s.script(name, container_id="reader").usual()
    return b, b.receiver(**fields)


def deliveries_of_a_detached_link_are_settled(s: Stage) -> None:
    a = _holding(s, 3)
    _detached(a)
    s.note("the link keeps its messages, because its session is open")
    s.show("q")
    a.send(says(Accepted(), 0), says(Released(), 1, settled=False))
    a.expect(Disposition, role=SENDER, first=1, settled=True, state=Released())
    s.show("q")
    s.note("the session ends: the remaining messages go back")
    a.send(End())
    a.expect(End)
    s.show("q")
    assert s.messages("q") == [(1, 0), (2, 1), (3, 0)]


def a_detached_link_of_which_all_is_settled_is_not_kept(s: Stage) -> None:
    a = _holding(s, 2)
    s.note("it is the only one that may consume, as long as it is there")
    _detached(a)
    a.send(says(Accepted(), 0, 1))
    s.until(lambda: not s.service.state.queues["q"].consumers.subscriptions, "the link ends")
    s.show("q")


def attached_again_on_the_same_session(s: Stage) -> None:
    a = _holding(s, 2)
    _detached(a)
    s.note("without an unsettled map its deliveries keep their ids, and are not sent again")
    answer = a.receiver(credit=5)
    assert answer.unsettled is None
    a.expect_messages(b"m2", b"m3")
    a.send(says(Accepted(), 0, 3, settled=False))
    a.expect(Disposition, role=SENDER, first=0, last=3, settled=True, state=Accepted())
    s.show("q")
    a.send(detach())
    a.expect(Detach, closed=True)


def detached_and_attached_in_one_write(s: Stage) -> None:
    a = _holding(s, 2)
    a.send(detach(closed=False), receives(), says(Accepted(), 0), flow(0, 5))
    a.expect(Detach)
    a.expect(Attach)
    a.expect_messages(b"m2", b"m3")
    a.send(says(Accepted(), 1, 3))
    s.until(lambda: s.counts("q") == {"archived": 4}, "all are settled")


def settled_in_a_transaction_when_detached(s: Stage) -> None:
    a = _holding(s, 3)
    control(a)
    txn = declare(a, 0)
    _detached(a)
    a.send(says(within(txn, Accepted()), 0, settled=False), says(within(txn, Accepted()), 1))
    commit(a, 1, txn)
    a.expect(Disposition, role=SENDER, first=0, settled=True, state=Accepted())
    discharged(a, 1)
    s.show("q")
    s.note("after a rollback the link still holds the delivery, and is attached again")
    txn = declare(a, 2)
    a.send(says(within(txn, Accepted()), 2, settled=False))
    a.receiver()
    roll_back(a, 3, txn)
    discharged(a, 3)
    s.show("q")
    a.send(says(Accepted(), 2))
    s.until(lambda: s.counts("q") == {"available": 1, "archived": 3}, "it is settled")
    s.note("the outcome arrives while the link is detached, the commit after it is attached again")
    a.send(flow(0, 1))
    a.expect_messages(b"m3")
    txn = declare(a, 4)
    _detached(a)
    a.send(says(within(txn, Accepted()), 3, settled=False))
    a.receiver()
    commit(a, 5, txn)
    a.expect(Disposition, role=SENDER, first=3, settled=True, state=Accepted())
    discharged(a, 5)
    s.show("q")


def resumed_on_another_connection(s: Stage) -> None:
    a = _holding(s, 4, **MINUTE)
    a.drop()
    s.note("four deliveries: one without a state, one accepted, one missing from the map, one half received")
    unsettled = {tag(0): None, tag(1): Accepted(), tag(3): Received(section_number=1, section_offset=2), tag(9): None}
    s.settle()
    s.show("q")
    b, answer = _again(s, unsettled=unsettled, source=Source(address="q", **MINUTE))
    assert answer.unsettled == {tag(0): None, tag(1): Accepted(), tag(3): None}
    s.show("q")
    b.send(flow(0, 10))
    s.note("first the outcome is confirmed; then deliveries without one, from the requested byte; then new deliveries")
    delivery = b.expect(Transfer, delivery_tag=tag(1), resume=True, settled=True)
    assert delivery.state == Accepted()
    assert header_of(b.expect_message(delivery_tag=tag(0), resume=True)).delivery_count == 0
    half = b.expect_message(delivery_tag=tag(3), resume=True, state=Received(section_number=1, section_offset=2))
    assert half == message(b"m3")[2:]
    assert header_of(b.expect_message(delivery_tag=tag(2), resume=False)).delivery_count == 0
    b.send(says(Accepted(), 1, 3, settled=False))
    b.expect(Disposition, role=SENDER, first=1, last=3, settled=True, state=Accepted())
    s.show("q")


def a_receiver_that_remembers_nothing(s: Stage) -> None:
    a = _holding(s, 2, **MINUTE)
    a.drop()
    s.note("without an unsettled map, on another connection: the held messages come again")
    b, answer = _again(s, credit=5, source=Source(address="q", **MINUTE))
    assert answer.unsettled is None
    b.expect_messages(b"m0", b"m1", b"m2", b"m3")
    assert s.messages("q") == [(0, 1), (1, 0), (2, 0), (3, 0)]


def resumed_twice_without_credit(s: Stage) -> None:
    a = _holding(s, 2, **MINUTE)
    a.drop()
    unsettled = {tag(0): None, tag(1): None}
    b, _ = _again(s, unsettled=unsettled, source=Source(address="q", **MINUTE))
    b.send(flow(0, 1))
    b.expect_message(delivery_tag=tag(0), resume=True)
    b.drop()
    s.note("one was sent again, one was not: both are held")
    s.settle()
    s.show("q")
    c, answer = _again(s, "C", unsettled=unsettled, source=Source(address="q", **MINUTE))
    assert answer.unsettled == unsettled
    c.send(flow(0, 2))
    c.expect_message(delivery_tag=tag(0), resume=True)
    c.expect_message(delivery_tag=tag(1), resume=True)
    c.send(says(Accepted(), 0, 1))
    s.until(lambda: s.counts("q") == {"available": 2, "archived": 2}, "they are settled")


def an_incomplete_unsettled_map(s: Stage) -> None:
    a = _holding(s, 2, **MINUTE)
    a.drop()
    source = Source(address="q", **MINUTE)
    b, answer = _again(s, unsettled={tag(1): None}, incomplete_unsettled=True, source=source)
    assert answer.unsettled == {tag(0): None, tag(1): None}
    s.note("deliveries outside the map stay unsettled, and no new delivery is sent")
    b.send(flow(0, 10))
    b.expect_message(delivery_tag=tag(1), resume=True)
    b.send(says(Accepted(), 0))
    b.nothing()
    s.show("q")
    _detached(b)
    s.note("the rest of the map")
    b.receiver(unsettled={tag(0): None}, source=source)
    b.send(flow(0, 10))
    b.expect_message(delivery_tag=tag(0), resume=True)
    b.expect_messages(b"m2", b"m3")


def an_unsettled_map_larger_than_a_frame(s: Stage) -> None:
    filled(s, *numbered(40))
    a = s.script("A", container_id="reader").usual()
    source = {"address": "q", **MINUTE}
    a.receiver(credit=40, source=Source(**source))
    a.expect_messages(*[b"m%d" % number for number in range(40)])
    a.drop()
    s.note("the receiver accepts frames of 600 bytes: our map has room for some deliveries")
    b = s.script("B", container_id="reader", max_frame_size=600)
    b.frame_size = 600
    b.begin()
    unsettled: dict[bytes, Any] = {tag(number): None for number in range(40)}
    b.send(receives(unsettled=unsettled, source=Source(**source)))
    answer = b.expect(Attach, incomplete_unsettled=True)
    assert answer.unsettled is not None
    first = len(answer.unsettled)
    assert 0 < first < 40
    b.send(flow(0, 100))
    for number in range(first):
        b.expect_message(delivery_tag=tag(number), resume=True)
    b.send(says(Accepted(), 0, first - 1))
    b.nothing()
    _detached(b)
    s.note("then the map has room for the others")
    for number in range(first):
        del unsettled[tag(number)]
    b.send(receives(unsettled=unsettled, source=Source(**source)))
    answer = b.expect(Attach, incomplete_unsettled=False)
    assert len(answer.unsettled or ()) == 40 - first
    b.send(detach())
    b.expect(Detach)


def another_terminus_under_the_same_name(s: Stage) -> None:
    s.declare("other")
    a = _holding(s, 2)
    _detached(a)
    s.note("this is another link: the messages of the previous one go back first")
    a.receiver("other", name="from q")
    s.show("q")
    assert s.messages("q") == [(0, 1), (1, 0), (2, 0), (3, 0)]


def a_closing_detach_ends_it_at_once(s: Stage) -> None:
    a = _holding(s, 2, **MINUTE)
    a.send(detach())
    a.expect(Detach, closed=True)
    s.show("q")
    assert s.messages("q") == [(0, 1), (1, 0), (2, 0), (3, 0)]


def who_expires_at_the_detach(s: Stage) -> None:
    a = _holding(s, 2, expiry_policy=symbol("link-detach"))
    _detached(a)
    s.show("q")
    s.note("with a timeout of a second, the messages go back a second later")
    a.receiver(credit=2, name="again", source=Source(address="q", expiry_policy=symbol("link-detach"), timeout=1))
    a.expect_messages(b"m0", b"m1")
    _detached(a)
    s.show("q")
    s.until(lambda: s.counts("q") == {"available": 4}, "its time is over")


@staged(amqp_max_expiry_timeout_s=1)
def nobody_is_kept_for_ever(s: Stage) -> None:
    filled(s, *numbered(2))
    a = s.script("A", container_id="reader").usual()
    source = a.receiver(credit=2, source=Source(address="q", expiry_policy=symbol("never"), durable=2)).source
    assert isinstance(source, Source)
    assert (source.expiry_policy, source.timeout, source.durable) == ("connection-close", 1, 0)
    a.expect_messages(b"m0", b"m1")
    a.drop()
    s.until(lambda: s.counts("q") == {"available": 2}, "its time is over")


def a_sender_resumes(s: Stage) -> None:
    target = Target(address="q", **MINUTE)
    a = s.script("A", container_id="writer").usual()
    a.sender(target=target, rcv_settle_mode=RCV_SECOND)
    a.send(transfer(0), transfer(1, b"no message"))
    a.expect(Disposition, first=0, settled=False, state=Accepted())
    a.expect(Disposition, first=1, settled=False)
    a.drop()
    s.note("the outcome of two deliveries is unknown to the sender; the third was not sent")
    s.settle()
    b = s.script("B", container_id="writer").usual()
    unsettled = {b"t0": None, b"t1": None, b"t2": None}
    answer = b.sender(target=target, rcv_settle_mode=RCV_SECOND, unsettled=unsettled)
    assert answer.unsettled is not None
    assert set(answer.unsettled) == {b"t0", b"t1"}
    assert answer.unsettled[b"t0"] == Accepted()
    assert isinstance(answer.unsettled[b"t1"], Rejected)
    s.note("known deliveries are answered, not stored again; a delivery that the sender settles is forgotten")
    b.send(_resumes(0, state=Accepted()), _resumes(1, settled=True), transfer(2))
    b.expect(Disposition, first=0, settled=False, state=Accepted())
    b.expect(Disposition, first=2, settled=False, state=Accepted())
    b.send(Disposition(role=SENDER, first=0, last=2, settled=True))
    s.show("q")
    _detached(b)
    s.note("without unsettled deliveries, the link ends")
    s.until(lambda: not len(s.plane.registry), "it ends")


def _resumes(number: int, **fields: Any) -> tuple[Transfer, bytes]:
    return transfer(number, b"", resume=True, **fields)


def a_sender_is_told_when_it_is_detached(s: Stage) -> None:
    a = s.script("A").usual()
    a.sender()
    a.send(transfer(0), transfer(1), detach(closed=False))
    a.expect(Disposition, first=0, last=1, settled=True, state=Accepted())
    a.expect(Detach, closed=False)
    s.show("q")


def a_dynamic_node_lives_as_long_as_its_link(s: Stage) -> None:
    a = s.script("A", container_id="A").usual()
    made = a.sender(target=Target(dynamic=True), name="maker").target
    assert isinstance(made, Target)
    a.send(transfer(0))
    a.expect(Disposition)
    _detached(a)
    s.nodes()
    s.note("attached again with the same link name: the same node")
    answer = a.sender(target=Target(address=made.address), name="maker")
    assert isinstance(answer.target, Target)
    assert answer.target.address == made.address
    assert answer.target.dynamic
    _detached(a)
    a.send(sends(target=Target(dynamic=True), name="maker"))
    answer = a.expect(Attach)
    a.expect(Flow)
    assert isinstance(answer.target, Target)
    assert answer.target.address == made.address
    s.note("closed")
    a.send(detach())
    a.expect(Detach)
    s.nodes()
    s.note("the end of the session deletes the node of a detached link")
    a.send(receives(source=Source(dynamic=True), name="receiver"))
    a.expect(Attach)
    _detached(a)
    s.nodes()
    a.send(End())
    a.expect(End)
    s.nodes()


def a_subscriber_comes_back(s: Stage) -> None:
    s.exchange("news")
    p = s.script("P", container_id="publisher").usual()
    p.sender("news")
    a = s.script("A", container_id="A").usual()
    a.receiver("news", credit=5)
    _detached(a)
    s.note("new messages are kept for the detached link while its session is open")
    p.send(transfer(0))
    p.expect(Disposition)
    s.nodes()
    a.receiver("news", credit=5)
    a.expect_messages(b"m0")
    a.send(detach())
    a.expect(Detach)
    s.nodes()


def a_lock_ends_while_its_link_is_detached(s: Stage) -> None:
    s.declare("locked", lockTimeout=1)
    a = s.script("A", container_id="A").usual()
    a.sender("locked", 1)
    a.send(transfer(0, handle=1))
    a.expect(Disposition)
    a.receiver("locked", credit=1)
    a.expect_messages(b"m0")
    _detached(a)
    s.until(lambda: s.counts("locked") == {"available": 1}, "the lock ends")
    s.service.submit(AlterQueue("locked", {"lockTimeout": 0}))
    s.note("at the next attach the broker settles the lost delivery, and sends the message again")
    a.receiver("locked", credit=1)
    lost = a.expect(Disposition, role=SENDER, first=0, settled=True)
    assert lost.state is not None
    a.expect_messages(b"m0")


@staged(amqp_max_detached_links_per_user=1, amqp_max_detached_deliveries_per_user=2)
def more_detached_links_than_are_allowed(s: Stage) -> None:
    filled(s, *numbered(9))
    a = s.script("A", container_id="A").usual()
    a.receiver(credit=1, name="one")
    a.expect_messages(b"m0")
    a.receiver(handle=1, credit=1, name="two")
    a.expect_messages(b"m1")
    a.send(detach(0, closed=False), detach(1, closed=False))
    a.expect(Detach, handle=0)
    a.expect(Detach, handle=1)
    s.note("the second link ends: its message is back")
    s.show("q")
    a.send(End())
    a.expect(End)
    s.note("a link with too many deliveries also ends, when its session ends")
    b = s.script("B", container_id="B").usual()
    b.receiver(credit=3, source=Source(address="q", **MINUTE))
    b.expect_messages(b"m0", b"m1", b"m2")
    _detached(b)
    s.show("q")
    b.send(End())
    b.expect(End)
    s.show("q")
    b.begin()
    b.receiver(credit=2, source=Source(address="q", **MINUTE))
    b.expect_messages(b"m0", b"m1")
    b.drop()
    s.until(lambda: len(s.plane.registry) == 1, "the connection is gone")
    s.show("q")


SCENARIOS = [
    deliveries_of_a_detached_link_are_settled,
    a_detached_link_of_which_all_is_settled_is_not_kept,
    attached_again_on_the_same_session,
    detached_and_attached_in_one_write,
    settled_in_a_transaction_when_detached,
    resumed_on_another_connection,
    a_receiver_that_remembers_nothing,
    resumed_twice_without_credit,
    an_incomplete_unsettled_map,
    an_unsettled_map_larger_than_a_frame,
    another_terminus_under_the_same_name,
    a_closing_detach_ends_it_at_once,
    who_expires_at_the_detach,
    nobody_is_kept_for_ever,
    a_sender_resumes,
    a_sender_is_told_when_it_is_detached,
    a_dynamic_node_lives_as_long_as_its_link,
    a_subscriber_comes_back,
    a_lock_ends_while_its_link_is_detached,
    more_detached_links_than_are_allowed,
]
