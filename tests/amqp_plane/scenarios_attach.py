"""Termini, refusals, names: 2.6.1 to 2.6.6, 3.5, and how the connection around them begins and ends."""

from __future__ import annotations

from penstock.broker_core.amqp.frames import protocol_header
from penstock.broker_core.amqp.performatives import (
    SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Source,
    Target,
)
from penstock.broker_core.amqp.types import Described, Symbol
from penstock.broker_core.amqp_plane.connections.containers import POLICY, SOLE

from .frames import begin, detach, flow, receives, sends, symbol, transfer
from .harness import Script, Stage


def attach_as_source_and_as_target(s: Stage) -> None:
    a = s.script().usual()
    a.sender(source=Source(address="here"), target=Target(address="q", capabilities=(symbol("queue"), symbol("topic"))))
    a.receiver(handle=1, source=Source(address="q", capabilities=(symbol("queue"),), timeout=30, durable=2))
    a.send(detach(0), detach(1))
    a.expect(Detach, closed=True, error=None)
    a.expect(Detach, closed=True, error=None)
    a.send(End())
    a.expect(End, error=None)
    a.send(Close())
    a.expect(Close, error=None)
    a.expect_end()


def _refused(a: Script, attach: Attach, condition: str) -> None:
    a.send(attach)
    answer = a.expect(Attach)
    if attach.role == SENDER:
        assert answer.target is None
    else:
        assert answer.source is None
    refusal = a.expect(Detach, closed=True)
    assert refusal.error is not None
    assert refusal.error.condition == condition, refusal.error
    a.send(detach(attach.handle))


def refused_attaches(s: Stage) -> None:
    a = s.script().usual()
    s.note("the queue does not exist, and is not created")
    _refused(a, sends("none"), "amqp:not-found")
    _refused(a, receives("none"), "amqp:not-found")
    s.note("no target, no source")
    _refused(a, sends(target=None), "amqp:invalid-field")
    s.note("without a source, the link's name names a durable subscription")
    _refused(a, receives(source=None), "amqp:not-found")
    s.note("a source needs an address, and an address is a nonempty string")
    _refused(a, receives(None), "amqp:invalid-field")
    _refused(a, receives(""), "amqp:invalid-field")
    _refused(a, sends(""), "amqp:invalid-field")
    _refused(a, sends(target=Target(address=7)), "amqp:invalid-field")
    _refused(a, receives(source=Source(address=b"q")), "amqp:invalid-field")
    s.note("unknown nodes, lifetimes, termini and selectors: the error contains the allowed values")
    _refused(a, receives("q/key"), "amqp:not-found")
    _refused(a, receives(source=Source(address="q", capabilities=(symbol("topic"),))), "amqp:not-found")
    _refused(a, receives(source=Source(address="q", dynamic=True)), "amqp:invalid-field")
    policy = {symbol("lifetime-policy"): Described(Symbol("com.example:for-ever"), [])}
    _refused(a, sends(target=Target(dynamic=True, dynamic_node_properties=policy)), "amqp:not-implemented")
    policy = {symbol("lifetime-policy"): symbol("amqp:delete-on-close:list")}
    _refused(a, sends(target=Target(dynamic=True, dynamic_node_properties=policy)), "amqp:invalid-field")
    _refused(a, sends(target=Described(Symbol("com.example:target"), [])), "amqp:not-implemented")
    selector = Described(Symbol("apache.org:selector-filter:string"), "a = = 1")
    _refused(a, receives(source=Source(address="q", filter={symbol("jms-selector"): selector})), "amqp:invalid-field")
    unnamed = {symbol("apache.org:selector-filter:string"): "a = = 1"}
    _refused(a, receives(source=Source(address="q", filter=unnamed)), "amqp:invalid-field")
    s.note("the connection stays open")
    a.sender()
    a.send(transfer(0))
    a.expect(Disposition, state=Accepted(), settled=True)
    s.show("q")


def unknown_filters_are_not_in_our_source(s: Stage) -> None:
    a = s.script().usual()
    answer = a.receiver(source=Source(address="q", filter={symbol("x"): Described(Symbol("com.example:filter"), "y")}))
    assert isinstance(answer.source, Source)
    assert not answer.source.filter


def everything_in_one_write(s: Stage) -> None:
    s.note("the client waits for no answer: open, begin, attach, flow, the first message's transfer, detach, end, close")
    first = s.script("A").usual()
    first.sender()
    first.send(transfer(0))
    first.expect(Disposition)
    a = s.script("B", open=False)
    a.say("header AMQP 0.1.0.0", protocol_header(0))
    a.send(Open(container_id="eager"), begin(), receives(handle=3), flow(3, 5))
    a.hear_header()
    a.expect(Open)
    a.expect(Begin)
    a.expect(Attach)
    a.expect_messages(b"m0")
    a.send(Disposition(role=True, first=0, settled=True, state=Accepted()), detach(3), End(), Close())
    a.expect(Detach)
    a.expect(End)
    a.expect(Close)
    a.expect_end()
    s.show("q")


def detach_before_the_attach_is_answered(s: Stage) -> None:
    a = s.script().usual()
    a.send(receives(), flow(0, 5), detach())
    a.expect(Attach, role=SENDER)
    a.expect(Detach, closed=True, error=None)
    a.send(sends(), detach())
    a.expect(Attach)
    a.expect(Detach, closed=True, error=None)
    s.note("an end and a close before the attach is answered")
    a.send(receives(handle=7), End())
    a.expect(Attach)
    a.expect(End)
    a.send(begin(), channel=0)
    a.expect(Begin)
    a.send(receives(), Close())
    a.expect(Attach)
    a.expect(Close)
    a.expect_end()


def a_link_is_stolen_on_one_connection(s: Stage) -> None:
    a = s.script().usual()
    a.begin(1)
    a.sender()
    a.send(transfer(0), transfer(1))
    a.expect(Disposition)
    a.receiver(handle=1, credit=5)
    a.expect_messages(b"m0", b"m1")
    s.note("the same name in the other session: the first link is detached, and its messages go to the second")
    a.send(receives(handle=0), flow(0, 5), channel=1)
    stolen = a.expect(Detach, 0)
    assert stolen.error is not None
    assert stolen.error.condition == "amqp:link:stolen"
    a.expect(Attach, 1)
    a.expect_messages(b"m0", b"m1")
    a.send(detach(1))
    s.show("q")


def two_attaches_of_one_name_in_one_write(s: Stage) -> None:
    a = s.script().usual()
    a.send(receives(handle=0), receives(handle=1))
    a.expect(Attach)
    stolen = a.expect(Detach)
    assert stolen.error is not None
    assert stolen.error.condition == "amqp:link:stolen"
    a.expect(Attach)
    a.send(detach(0))
    a.nothing()


def a_link_is_stolen_between_two_connections(s: Stage) -> None:
    a = s.script("A").usual()
    a.sender()
    a.send(transfer(0))
    a.expect(Disposition)
    a.receiver(handle=1, credit=5)
    a.expect_messages(b"m0")
    b = s.script("B").usual()
    b.send(receives(), flow(0, 5))
    stolen = a.expect(Detach)
    assert stolen.error is not None
    assert stolen.error.condition == "amqp:link:stolen"
    b.expect(Attach)
    b.expect_messages(b"m0")
    a.send(detach(1))
    s.note("a sender and a receiver with the same name are two links")
    b.send(sends(handle=1, name="from q"))
    b.expect(Attach)
    b.expect(Flow)
    s.note("names of another container are separate")
    c = s.script("C", container_id="other").usual()
    c.receiver(credit=5)
    b.nothing()
    s.show("q")


def sole_connection_refuses_the_newer(s: Stage) -> None:
    a = s.script("A", open=False)
    a.say("header AMQP 0.1.0.0", protocol_header(0))
    a.send(Open(container_id="client", desired_capabilities=(symbol(SOLE),)))
    a.hear_header()
    assert (a.expect(Open).properties or {})[symbol(POLICY)] == 0
    b = s.script("B", open=False)
    b.say("header AMQP 0.1.0.0", protocol_header(0))
    b.send(Open(container_id="client", desired_capabilities=(symbol(SOLE),), properties={symbol(POLICY): 0}), begin())
    _establishment_fails(b)
    s.note("a connection that does not ask for the capability is also refused, because the older one has it")
    c = s.script("C", open=False)
    c.say("header AMQP 0.1.0.0", protocol_header(0))
    c.send(Open(container_id="client"))
    _establishment_fails(c)
    s.note("another container is accepted")
    s.script("D", container_id="other")


def _establishment_fails(b: Script) -> None:
    b.hear_header()
    answer = b.expect(Open)
    assert answer.properties is not None
    assert answer.properties[symbol("amqp:connection-establishment-failed")] is True
    assert answer.properties.get(symbol(POLICY), 0) == 0  # the enforced policy
    close = b.expect(Close)
    assert close.error is not None
    assert close.error.condition == "amqp:invalid-field"
    assert close.error.info == {symbol("invalid-field"): symbol("container-id")}
    b.send(Close())
    b.expect_end()


def sole_connection_closes_the_older(s: Stage) -> None:
    asked = {"desired_capabilities": (symbol(SOLE),), "properties": {symbol(POLICY): 1}}
    a = s.script("A", **asked).usual()
    a.sender()
    a.send(transfer(0))
    a.expect(Disposition)
    a.receiver(handle=1, credit=5)
    a.expect_messages(b"m0")
    b = s.script("B", **asked).usual()
    close = a.expect(Close)
    assert close.error is not None
    assert close.error.condition == "amqp:resource-locked"
    assert close.error.info == {symbol("sole-connection-enforcement"): True}
    b.receiver(credit=5)
    b.expect_messages(b"m0")
    a.send(Close())
    a.expect_end()
    s.show("q")


def the_older_connection_says_what_holds(s: Stage) -> None:
    s.note("the older connection asked to refuse newer ones; its policy counts")
    s.script("A", desired_capabilities=(symbol(SOLE),), properties={symbol(POLICY): 0})
    b = s.script("B", open=False)
    b.say("header AMQP 0.1.0.0", protocol_header(0))
    b.send(Open(container_id="client", desired_capabilities=(symbol(SOLE),), properties={symbol(POLICY): 1}))
    _establishment_fails(b)


def more_links_than_the_peer_has_handles(s: Stage) -> None:
    a = s.script()
    a.begin(handle_max=0)
    a.send(sends(handle=0))
    a.expect(Attach)
    a.expect(Flow)
    s.note("our answer needs a handle above the peer's limit: only its session ends")
    a.send(receives(handle=1))
    end = a.expect(End)
    assert end.error is not None
    assert end.error.condition == "amqp:not-allowed"
    a.send(End())
    a.begin()
    a.sender()


def frames_of_512_octets(s: Stage) -> None:
    a = s.script(max_frame_size=512)
    a.frame_size = 512
    a.usual()
    _refused(a, sends("ü" * 150, name="long"), "amqp:not-found")
    s.note("a message of several frames")
    a.sender()
    a.send(transfer(0, b"\x00\x53\x75\xb0" + (1000).to_bytes(4, "big") + b"x" * 1000))
    a.expect(Disposition)
    a.receiver(handle=1, credit=1)
    a.expect_message()
    s.note("an attach whose answer fits no frame: the session ends")
    a.send(sends(handle=2, name="n" * 300, source=Source(address="s" * 300)))
    end = a.expect(End)
    assert end.error is not None
    assert end.error.condition == "amqp:frame-size-too-small"
    a.send(End())
    a.begin()
    a.sender()


SCENARIOS = [
    attach_as_source_and_as_target,
    refused_attaches,
    unknown_filters_are_not_in_our_source,
    everything_in_one_write,
    detach_before_the_attach_is_answered,
    a_link_is_stolen_on_one_connection,
    two_attaches_of_one_name_in_one_write,
    a_link_is_stolen_between_two_connections,
    sole_connection_refuses_the_newer,
    sole_connection_closes_the_older,
    the_older_connection_says_what_holds,
    more_links_than_the_peer_has_handles,
    frames_of_512_octets,
]
