"""Acknowledge modes of the application's client: the side that acknowledges, and the time of the disposition (C7)."""

from __future__ import annotations

import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import Message, Modified, Rejected, Released, events
from penstock.broker_core.amqp.performatives import Header, Properties
from penstock.broker_core.amqp.types import Symbol
from penstock.broker_core.client.app import AcknowledgeMode
from penstock.broker_core.client.app.modes import PendingAcknowledgements
from penstock.broker_core.client.app.received import expiry_ms

from .applications import LIMIT_S, Gate, bodies, connect, outcomes_by_body, round_trip
from .peer import Peer

FOUR = bodies("a", "b", "c", "d")


def test_c7_auto_accepts_each_message_that_receive_returns_and_no_other() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["q"] += FOUR
        session = connection.session()
        consumer = session.consumer("q")
        assert [consumer.receive(LIMIT_S).body for _ in range(2)] == [b"a", b"b"]
        round_trip(session)
        assert outcomes_by_body(peer) == [(b"a", "Accepted"), (b"b", "Accepted")]


def test_c7_client_acknowledges_all_of_the_session_up_to_the_message() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["q"] += FOUR[:2]
        peer.queues["r"] += FOUR[2:]
        session = connection.session(AcknowledgeMode.CLIENT)
        q, r = session.consumer("q"), session.consumer("r")
        _, c, b, d = (consumer.receive(LIMIT_S) for consumer in (q, r, q, r))
        round_trip(session)
        assert outcomes_by_body(peer) == []
        b.acknowledge()
        c.acknowledge()  # already acknowledged
        round_trip(session)
        assert sorted(outcomes_by_body(peer)) == [(b"a", "Accepted"), (b"b", "Accepted"), (b"c", "Accepted")]
        d.acknowledge(Rejected())
        with pytest.raises(errors.InvalidRequest, match="settled already, as rejected"):
            d.acknowledge()


def test_c7_individual_is_for_one_message() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["q"] += FOUR
        with connection.session(AcknowledgeMode.INDIVIDUAL) as session:
            consumer = session.consumer("q")
            _, b, c, _ = (consumer.receive(LIMIT_S) for _ in range(4))
            c.acknowledge()
            b.acknowledge(Released())
            round_trip(session)
            assert outcomes_by_body(peer) == [(b"c", "Accepted"), (b"b", "Released")]
        round_trip(connection.session())
        # The remaining messages return with the session, as failed deliveries.
        assert outcomes_by_body(peer)[2:] == [(b"a", "Modified"), (b"d", "Modified")]
        # Only after the credit has ended: they would come again, to a closed session, and that would count.
        assert flows_of_the_first_link(peer) == [False, True]


def test_c7_dups_ok_waits_for_65_percent_of_the_window_or_its_time() -> None:
    gathered = PendingAcknowledgements(window=10, delay_s=3.0)
    due = []
    for number in range(7):
        gathered.add(number, None, now=100.0)  # type: ignore[arg-type]
        due.append(gathered.due(100.0))
    assert due == [False] * 6 + [True]  # 7 is the first above 6.5
    assert [number for number, _ in gathered.take()] == list(range(7))
    gathered.add(7, None, now=200.0)  # type: ignore[arg-type]
    assert gathered.deadline == 203.0
    assert (gathered.due(202.9), gathered.due(203.0)) == (False, True)
    assert PendingAcknowledgements(window=0, delay_s=3.0).deadline is None


def test_c7_dups_ok_tells_the_broker_in_one_frame() -> None:
    with Peer() as peer, connect(peer.url, clock=lambda: 0.0) as connection:  # no time passes
        peer.queues["q"] += bodies(*"abcdefghij")
        session = connection.session(AcknowledgeMode.DUPS_OK)
        consumer = session.consumer("q", prefetch=10)
        for _ in range(6):
            consumer.receive(LIMIT_S)
        round_trip(session)
        assert outcomes_by_body(peer) == []
        consumer.receive(LIMIT_S)
        round_trip(session)
        assert [len(event.deliveries) for event in peer.seen if isinstance(event, events.Disposed)] == [7]
        consumer.receive(LIMIT_S)
        session.close()  # sent at the close: the application has had them
        round_trip(connection.session())
        assert outcomes_by_body(peer)[7:] == [(b"h", "Accepted"), (b"i", "Released"), (b"j", "Released")]


def test_c7_dups_ok_tells_the_broker_when_its_time_is_over_though_nobody_calls() -> None:
    gate = Gate(events.Disposed)
    with Peer(hook=gate) as peer, connect(peer.url) as connection:
        peer.queues["q"] += FOUR
        consumer = connection.session(AcknowledgeMode.DUPS_OK).consumer("q", gather_s=0.01)
        consumer.receive(LIMIT_S)
        gate.wait()


@pytest.mark.parametrize("mode", list(AcknowledgeMode))
def test_c7_what_expires_in_the_prefetch_is_settled_as_such_and_counts(mode: AcknowledgeMode) -> None:
    """As modified and undeliverable here. AMQP has no outcome for it, and the broker then sees that it has expired."""
    old = Message(properties=Properties(absolute_expiry_time=999_999), data=[b"old"]).encode()
    with Peer() as peer, connect(peer.url, clock=lambda: 0.0, wall=lambda: 1000.0) as connection:
        # Twice the window: a client that did not count them would wait forever for the last one.
        peer.queues["q"] += [old] * 20 + FOUR[:1]
        session = connection.session(mode)
        consumer = session.consumer("q", prefetch=10)
        message = consumer.receive(LIMIT_S)
        assert message is not None
        assert (message.body, consumer.expired) == (b"a", 20)
        round_trip(session)
        # dups-ok acknowledges batches of 7, the first above 65 % of 10; the other modes acknowledge each message.
        count = 14 if mode is AcknowledgeMode.DUPS_OK else 20
        assert [state for _, state in peer.outcomes[:count]] == [Modified(delivery_failed=False, undeliverable_here=True)] * count


def test_c7_time_to_live_counts_from_the_arrival() -> None:
    header, properties = Header(ttl=50), Properties(absolute_expiry_time=1200)
    assert expiry_ms(Message(header=header), arrived_ms=1000) == 1050
    assert expiry_ms(Message(properties=properties), arrived_ms=1000) == 1200
    assert expiry_ms(Message(header=header, properties=properties), arrived_ms=1199) == 1200
    assert expiry_ms(Message(), arrived_ms=1000) is None
    dead = {Symbol("x-opt-death-reason"): "expired"}
    assert expiry_ms(Message(message_annotations=dead, properties=properties), arrived_ms=9999) is None
    assert expiry_ms(Message(message_annotations=dead, properties=properties, header=header), arrived_ms=9999) == 10_049


@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL])
def test_c7_recover_gives_back_in_order_and_begins_with_the_oldest(mode: AcknowledgeMode) -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["q"] += FOUR
        session = connection.session(mode)
        consumer = session.consumer("q")
        a, _, c = (consumer.receive(LIMIT_S) for _ in range(3))
        a.acknowledge()
        session.recover()
        with pytest.raises(errors.PeerError, match="delivered again"):
            c.acknowledge()
        round_trip(session)
        # The application had b and c, which count; d only waited here.
        assert outcomes_by_body(peer) == [(b"a", "Accepted"), (b"b", "Modified"), (b"c", "Modified"), (b"d", "Released")]
        assert flows_of_the_first_link(peer) == [False, True, False]  # no later message overtakes them, and there is credit again


def test_c7_a_transacted_session_is_rolled_back_not_recovered() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        with pytest.raises(errors.InvalidRequest, match="rolled back"):
            connection.session(AcknowledgeMode.TRANSACTED).recover()
        with pytest.raises(errors.InvalidRequest, match=r"AcknowledgeMode\.TRANSACTED"):
            connection.session().commit()


def test_c7_a_closed_consumer_keeps_its_link_until_what_it_handed_out_is_settled() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["q"] += FOUR
        session = connection.session(AcknowledgeMode.CLIENT)
        consumer = session.consumer("q")
        consumer.receive(LIMIT_S)
        b = consumer.receive(LIMIT_S)
        consumer.close()
        round_trip(session)
        assert outcomes_by_body(peer) == [(b"c", "Released"), (b"d", "Released")]
        assert not [event for event in peer.seen if isinstance(event, events.Detached) and event.link.name == consumer_link(peer)]
        b.acknowledge()
        round_trip(session)
        assert outcomes_by_body(peer)[2:] == [(b"a", "Accepted"), (b"b", "Accepted")]
        assert [event for event in peer.seen if isinstance(event, events.Detached) and event.link.name == consumer_link(peer)]


def consumer_link(peer: Peer) -> str:
    """The name of the first link."""
    return next(event.link.name for event in peer.seen if isinstance(event, events.Attached))


def flows_of_the_first_link(peer: Peer) -> list[bool]:
    """Flows of the first link, by whether they drain."""
    flows = [event for event in peer.seen if isinstance(event, events.Flowed) and event.link is not None]
    return [event.flow.drain for event in flows if event.link.name == consumer_link(peer)]
