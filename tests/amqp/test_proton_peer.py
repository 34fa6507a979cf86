"""Our Connection and python-qpid-proton's engine, paired in memory: each as client and as server, sender and receiver."""

from __future__ import annotations

import os
from typing import Any

import pytest

from penstock.broker_core.amqp import Connection, ConnectionSettings, Role, SaslClient, SaslServer, events
from penstock.broker_core.amqp.messages import Message, decode_message
from penstock.broker_core.amqp.performatives import Accepted, Error, Modified, Rejected, Released, Source, Target

proton = pytest.importorskip("proton")


class ProtonPeer:
    """Proton's engine over memory; `took` is every event it has reported."""

    def __init__(self, ours: Connection, server: bool, mechanism: str | None = None, max_frame: int = 65536) -> None:
        self.ours = ours
        self.connection = proton.Connection()
        self.connection.container = "proton"
        self.connection.hostname = "broker"
        self.collector = proton.Collector()
        self.connection.collect(self.collector)
        self.transport = proton.Transport(proton.Transport.SERVER if server else proton.Transport.CLIENT)
        self.transport.max_frame_size = max_frame
        if mechanism:
            sasl = self.transport.sasl()
            sasl.allowed_mechs(mechanism)
            sasl.allow_insecure_mechs = True
            if not server:
                self.connection.user, self.connection.password = "user", "pencil"
        self.transport.bind(self.connection)
        self.took: list[Any] = []

    def pump(self) -> tuple[list[events.Event], list[Any]]:
        """Until both are silent: our events, proton's."""
        our_events: list[events.Event] = []
        theirs: list[Any] = []
        for _ in range(1000):
            data = self.ours.data_to_send()
            if data:
                view = memoryview(data)
                while view:
                    room = self.transport.capacity()
                    if room <= 0:
                        break
                    self.transport.push(bytes(view[:room]))
                    view = view[room:]
            pending = self.transport.pending()
            octets = bytes(self.transport.peek(pending)) if pending > 0 else b""
            if octets:
                self.transport.pop(len(octets))
                our_events += self.ours.receive_data(octets)
            while (event := self.collector.peek()) is not None:
                theirs.append((event.type.name, event.context))
                self.collector.pop()
            if not data and not octets:
                return our_events, theirs
        raise AssertionError("they never fall silent")


def pair(we_serve: bool = True, max_frame: int = 65536, **settings: Any) -> ProtonPeer:
    ours = Connection(Role.SERVER if we_serve else Role.CLIENT, ConnectionSettings(container_id="ours", **settings))
    peer = ProtonPeer(ours, server=not we_serve, max_frame=max_frame)
    peer.connection.open()
    peer.pump()
    ours.open()
    peer.pump()
    assert peer.connection.remote_container == "ours"
    assert ours.remote_open is not None
    assert ours.remote_open.container_id == "proton"
    return peer


def with_session(peer: ProtonPeer) -> tuple[Any, Any]:
    theirs = peer.connection.session()
    theirs.open()
    our_events, _ = peer.pump()
    session = our_events[-1].session  # type: ignore[union-attr]
    session.begin()
    peer.pump()
    assert theirs.state & proton.Endpoint.REMOTE_ACTIVE
    return session, theirs


def their_sender(peer: ProtonPeer, credit: int = 10) -> tuple[Any, Any, Any]:
    session, theirs = with_session(peer)
    sender = theirs.sender("to-us")
    sender.target.address = "queue"
    sender.open()
    our_events, _ = peer.pump()
    link, attach = our_events[-1].link, our_events[-1].attach  # type: ignore[union-attr]
    assert attach.target.address == "queue"
    link.attach(source=attach.source, target=attach.target)
    link.grant(credit)
    peer.pump()
    assert sender.credit == credit
    return session, link, sender


def their_receiver(peer: ProtonPeer, credit: int = 10) -> tuple[Any, Any, Any]:
    session, theirs = with_session(peer)
    receiver = theirs.receiver("from-us")
    receiver.source.address = "queue"
    receiver.open()
    receiver.flow(credit)
    our_events, _ = peer.pump()
    attached = next(event for event in our_events if isinstance(event, events.Attached))
    attached.link.attach(source=attached.attach.source, target=attached.attach.target)
    peer.pump()
    assert attached.link.link_credit == credit
    return session, attached.link, receiver


def receive(receiver: Any) -> tuple[Any, bytes]:
    delivery = receiver.current
    payload = bytes(receiver.recv(delivery.pending)) if delivery.pending else b""
    receiver.advance()
    return delivery, payload


@pytest.mark.parametrize("we_serve", [True, False])
def test_open_and_close(we_serve: bool) -> None:
    peer = pair(we_serve, idle_time_out=30000, channel_max=9)
    assert peer.transport.remote_idle_timeout == 30.0
    assert peer.transport.remote_channel_max == 9
    peer.connection.close()
    our_events, _ = peer.pump()
    assert isinstance(our_events[-1], events.Closed)
    peer.ours.close()
    peer.pump()
    assert peer.ours.finished
    assert peer.connection.state & proton.Endpoint.REMOTE_CLOSED


@pytest.mark.parametrize("we_serve", [True, False])
@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_they_send(we_serve: bool, size: int) -> None:
    peer = pair(we_serve, max_frame=4096, max_frame_size=4096)
    session, link, sender = their_sender(peer)
    deliveries = []
    for number in range(3):
        deliveries.append(sender.delivery(f"t{number}"))
        sender.send(proton.Message(body=b"x" * size, inferred=True).encode())
        sender.advance()
    our_events, _ = peer.pump()
    came = [d for event in our_events if isinstance(event, events.Delivered) for d in event.deliveries]
    assert [d.tag for d in came] == [b"t0", b"t1", b"t2"]
    assert all(decode_message(d.payload).data == [b"x" * size] for d in came)
    session.dispose(came[:2], Accepted())
    session.dispose(came[2:], Rejected(error=Error(condition="app:bad", description="no")))
    peer.pump()
    assert [d.remote_state for d in deliveries] == [proton.Delivery.ACCEPTED, proton.Delivery.ACCEPTED, proton.Delivery.REJECTED]
    assert all(d.settled for d in deliveries)
    assert deliveries[2].remote.condition.name == "app:bad"
    assert sender.credit == 7 == link.link_credit


def test_they_send_settled_and_aborted() -> None:
    peer = pair()
    _, link, sender = their_sender(peer)
    delivery = sender.delivery("settled")
    sender.send(b"\x00\x53\x77\x40")
    delivery.settle()
    peer_events, _ = peer.pump()
    assert peer_events[-1].deliveries[0].settled  # type: ignore[union-attr]
    delivery = sender.delivery("aborted")
    sender.send(b"half")
    peer.pump()
    delivery.abort()
    peer_events, _ = peer.pump()
    assert isinstance(peer_events[-1], events.Aborted)
    assert link.link_credit == sender.credit == 8


@pytest.mark.parametrize("we_serve", [True, False])
@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_we_send(we_serve: bool, size: int) -> None:
    peer = pair(we_serve, max_frame=4096, max_frame_size=4096)
    session, link, receiver = their_receiver(peer)
    payload = Message(data=[b"y" * size]).encode()
    for number in range(3):
        link.send(b"t%d" % number, payload)
    peer.pump()
    outcomes = [proton.Delivery.ACCEPTED, proton.Delivery.RELEASED, proton.Delivery.MODIFIED]
    for outcome in outcomes:
        delivery, octets = receive(receiver)
        assert octets == payload
        delivery.local.failed = True
        delivery.update(outcome)
        delivery.settle()
    our_events, _ = peer.pump()
    states = {d.tag: d.remote_state for event in our_events if isinstance(event, events.Disposed) for d in event.deliveries}
    modified = Modified(delivery_failed=True, undeliverable_here=False)
    assert states == {b"t0": Accepted(), b"t1": Released(), b"t2": modified}
    assert not session.outgoing
    assert not link.unsettled


def test_we_send_many_at_once() -> None:
    peer = pair()
    _, link, receiver = their_receiver(peer, credit=500)
    payloads = [Message(data=[b"%d" % number]).encode() for number in range(400)]
    assert len(link.send_many([b"%d" % number for number in range(400)], payloads)) == 400
    peer.pump()
    for number in range(400):
        delivery, octets = receive(receiver)
        assert (delivery.tag, octets) == (str(number), payloads[number])
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()
    our_events, _ = peer.pump()
    assert sum(len(event.deliveries) for event in our_events if isinstance(event, events.Disposed)) == 400


def test_we_abort() -> None:
    peer = pair()
    _, link, receiver = their_receiver(peer)
    delivery = link.send(b"t", b"half", more=True)
    peer.pump()
    link.abort(delivery)
    peer.pump()
    assert receiver.current.aborted


def test_we_drain_them() -> None:
    peer = pair()
    _, link, sender = their_sender(peer, credit=5)
    link.grant(5, drain=True)
    peer.pump()
    assert sender.drain_mode
    sender.drained()
    our_events, _ = peer.pump()
    assert isinstance(our_events[-1], events.Flowed)
    assert (link.link_credit, link.delivery_count) == (0, 5)


def test_they_drain_us() -> None:
    peer = pair()
    _, link, receiver = their_receiver(peer, credit=5)
    receiver.drain(0)
    peer.pump()
    assert link.drain
    link.send(b"t", b"\x00\x53\x77\x40")
    link.drained()
    peer.pump()
    assert receive(receiver)[0].tag == "t"
    assert receiver.credit == 0
    assert not receiver.draining()


def test_receiver_settles_second() -> None:
    peer = pair()
    session, theirs = with_session(peer)
    sender = theirs.sender("to-us")
    sender.rcv_settle_mode = proton.Link.RCV_SECOND
    sender.open()
    our_events, _ = peer.pump()
    link = our_events[-1].link  # type: ignore[union-attr]
    link.attach(source=Source(), target=Target())
    link.grant(1)
    peer.pump()
    delivery = sender.delivery("t")
    sender.send(b"\x00\x53\x77\x40")
    sender.advance()
    peer.pump()
    session.dispose(list(session.incoming.values()), Accepted(), settled=False)
    peer.pump()
    assert delivery.remote_state == proton.Delivery.ACCEPTED
    assert not delivery.settled
    delivery.settle()
    our_events, _ = peer.pump()
    assert our_events[-1].settled  # type: ignore[union-attr]
    assert not link.unsettled


def test_detach_end_and_refusal() -> None:
    peer = pair()
    session, theirs = with_session(peer)
    sender = theirs.sender("unwanted")
    sender.target.address = "nowhere"
    sender.open()
    our_events, _ = peer.pump()
    our_events[-1].link.refuse("amqp:not-found", "no such node")  # type: ignore[union-attr]
    peer.pump()
    assert sender.remote_target.address is None
    assert sender.remote_condition.name == "amqp:not-found"
    sender.close()
    our_events, _ = peer.pump()
    assert isinstance(our_events[-1], events.Detached)
    session.end(Error(condition="amqp:resource-limit-exceeded"))
    peer.pump()
    assert theirs.remote_condition.name == "amqp:resource-limit-exceeded"
    theirs.close()
    peer.pump()
    assert peer.ours.remote_sessions == {}
    assert peer.ours.sessions == {}


def test_our_refusal_of_a_frame_reaches_them_by_its_condition() -> None:
    peer = pair()
    _, link, sender = their_sender(peer, credit=1)
    link.delivery_count += 5  # as if we had counted messages that were never sent
    sender.delivery("t")
    sender.send(b"x")
    sender.advance()
    our_events, _ = peer.pump()
    assert isinstance(our_events[-1], events.Violated)
    assert sender.remote_condition.name == "amqp:link:transfer-limit-exceeded"


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "PLAIN"])
def test_they_authenticate(mechanism: str) -> None:
    from .scenarios_sasl import RFC_USER

    sasl = SaslServer([mechanism], {"user": RFC_USER}.get)
    ours = Connection(Role.SERVER, ConnectionSettings(container_id="ours"), sasl)
    peer = ProtonPeer(ours, server=False, mechanism=mechanism)
    peer.connection.open()
    our_events, _ = peer.pump()
    if not our_events:
        pytest.skip(f"this proton has no {mechanism} for clients")
    assert [type(event) for event in our_events] == [events.Authenticated, events.Opened]
    assert peer.transport.authenticated


def test_we_authenticate() -> None:
    ours = Connection(Role.CLIENT, ConnectionSettings(container_id="ours"), SaslClient(random=os.urandom))
    peer = ProtonPeer(ours, server=True, mechanism="ANONYMOUS")
    our_events, _ = peer.pump()
    assert our_events == [events.Authenticated(None, "ANONYMOUS")]
    ours.open()
    peer.connection.open()
    our_events, _ = peer.pump()
    assert isinstance(our_events[-1], events.Opened)
