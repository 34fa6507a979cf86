"""Receiving through the client: credit, batches, outcomes."""

from __future__ import annotations

import select

import pytest

from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import Accepted, Modified, Rejected, Released, events
from penstock.broker_core.client.amqp import connect
from penstock.broker_core.client.amqp.dial import MAX_MESSAGE_OCTETS

from .peer import Peer
from .test_sending import messages


def test_everything_comes_in_order_within_the_credit() -> None:
    sent = messages(3000)
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["orders"] += sent
        receiver = connection.receiver("orders", credit=64)
        got: list[bytes] = []
        while len(got) < len(sent):
            deliveries = receiver.receive(timeout_s=30)
            assert 0 < len(deliveries) <= 64
            got += [delivery.payload for delivery in deliveries]
            receiver.accept(deliveries)
        assert got == sent
        connection.close()
        assert len(peer.outcomes) == 3000
        assert {type(state) for _, state in peer.outcomes} == {Accepted}


def test_messages_come_to_who_only_waits_for_the_socket() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["orders"] += messages(3)
        receiver = connection.receiver("orders")
        assert select.select([connection], [], [], 30)[0], "the broker received no credit"
        assert receiver.receive(timeout_s=0)


def test_a_message_in_many_frames_is_one_delivery() -> None:
    sent = messages(2, size=1_000_000)
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["orders"] += sent
        receiver = connection.receiver("orders", credit=2)
        assert [delivery.payload for _ in range(2) for delivery in receiver.receive(1, timeout_s=30)] == sent


def heedless(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
    """The peer ignores the client's largest message size."""
    if isinstance(event, events.Attached):
        event.attach.max_message_size = None
    return False


@pytest.mark.parametrize("size", [99_000, 1_000_000], ids=["small enough", "too large"])
def test_a_message_beyond_the_limit_ends_its_link_and_fills_no_memory(size: int) -> None:
    with Peer(hook=heedless) as peer, connect(peer.url, max_message_octets=100_000) as connection:
        peer.queues["orders"] += messages(1, size=size)
        peer.queues["others"] += messages(1)
        receiver, others = connection.receiver("orders", credit=1), connection.receiver("others", credit=1)
        if size < 100_000:
            assert len(receiver.receive(1, timeout_s=30)) == 1
        else:
            with pytest.raises(
                errors.ResourceLimit, match=r"from 'orders', where this client takes 100,000 .* max_message_octets"
            ):
                receiver.receive(1, timeout_s=30)
        assert len(others.receive(1, timeout_s=30)) == 1  # the connection continues


def test_a_message_without_an_end_is_cut_off() -> None:
    """The client keeps no more than the limit of it, and drops the rest as it comes."""
    with Peer(hook=heedless) as peer, connect(peer.url, max_message_octets=100_000) as connection:
        peer.queues["orders"] += messages(1, size=20_000_000)
        receiver = connection.receiver("orders", credit=1)
        held = [0]

        def receive() -> None:
            while True:
                receiver.receive(1, timeout_s=0)
                held.append(receiver.link.session.connection.unfinished_size)

        with pytest.raises(errors.ResourceLimit):
            receive()
        assert max(held) <= 100_000
        assert receiver.link.session.connection.unfinished_size == 0


def test_the_peer_is_told_how_large_a_message_may_be() -> None:
    sizes = []

    def hook(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached):
            sizes.append(event.attach.max_message_size)
        return False

    with Peer(hook=hook) as peer:
        for options in ({}, {"max_message_octets": 1000}):
            with connect(peer.url, **options) as connection:
                connection.receiver("orders")
    assert sizes == [MAX_MESSAGE_OCTETS, 1000]


def test_credit_that_is_lowered_is_taken_back() -> None:
    """For a client that finds out that messages are large: the broker stops at the new credit."""
    with Peer() as peer, connect(peer.url) as connection:
        receiver = connection.receiver("orders", credit=1000)
        receiver.receive(timeout_s=0)
        receiver.credit = 10
        receiver.receive(timeout_s=0)
        assert receiver.link.link_credit == 10
        receiver.drain()  # the answer follows the flow
        assert receiver.receive(timeout_s=0) == []


def test_a_limit_never_asks_for_more() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["orders"] += messages(50)
        receiver = connection.receiver("orders", credit=16, limit=20)
        got = []
        while not receiver.exhausted or not got:
            got += receiver.receive(7, timeout_s=30)
        while more := receiver.receive(7):  # without a time limit: the limit is reached, so no message can come
            got += more
        assert len(got) == 20
        assert len(peer.queues["orders"]) == 30


def test_an_empty_queue_gives_an_empty_list_after_the_time() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        assert connection.receiver("orders").receive(timeout_s=0.05) == []
        assert connection.receiver("orders").receive(timeout_s=0) == []


def test_drain_takes_what_is_there_and_the_credit_back() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["orders"] += messages(5)
        receiver = connection.receiver("orders", credit=100)
        receiver.drain()
        assert receiver.link.link_credit == 0
        assert len(receiver.receive(timeout_s=0)) == 5


def test_each_outcome_says_what_it_means() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["orders"] += messages(5)
        receiver = connection.receiver("orders")
        receiver.drain()
        first, second, third, fourth, _ = receiver.receive(timeout_s=0)
        receiver.accept([first])
        receiver.release([second])
        receiver.reject([third], "not JSON")
        receiver.modify([fourth], failed=True, undeliverable=True, annotations={"x-opt-why": "busy"})
        connection.close()
        states = [state for _, state in peer.outcomes]
        assert states[:2] == [Accepted(), Released()]
        assert isinstance(states[2], Rejected)
        assert (states[2].error.condition, states[2].error.description) == ("amqp:not-allowed", "not JSON")
        assert isinstance(states[3], Modified)
        assert (states[3].delivery_failed, states[3].undeliverable_here) == (True, True)
        assert dict(states[3].message_annotations) == {"x-opt-why": "busy"}
        assert len(states) == 4  # the fifth has returned to the broker


def test_neighbours_share_one_disposition() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["orders"] += messages(500)
        receiver = connection.receiver("orders")
        receiver.drain()
        receiver.accept(receiver.receive(timeout_s=0))
        connection.close()
        assert [len(event.deliveries) for event in peer.seen if isinstance(event, events.Disposed)] == [500]


def test_browsing_asks_for_copies() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        connection.receiver("orders", browse=True)
        connection.receiver("orders", presettled=True)
        browsing, taking = [event.attach for event in peer.seen if isinstance(event, events.Attached)]
        assert (browsing.source.distribution_mode, taking.source.distribution_mode) == ("copy", None)
        assert taking.snd_settle_mode == 1


def test_two_links_of_a_connection_do_not_mix() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["a"] += messages(10)
        a, b = connection.receiver("a"), connection.receiver("b")
        sender = connection.sender("c")
        sender.send(messages(10))
        sender.flush()
        a.drain()
        assert len(a.receive(timeout_s=0)) == 10
        assert b.receive(timeout_s=0) == []
        assert sender.accepted == 10


def test_a_broken_connection_ends_the_waiting() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        receiver = connection.receiver("orders")
        peer.cut()
        with pytest.raises(errors.PeerError):
            receiver.receive()


def test_heartbeats_are_answered_while_waiting() -> None:
    octets = bytearray()

    def opened(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Opened):
            taken = machine.receive_data
            machine.receive_data = lambda data, now=None: octets.extend(data) or taken(data, now)  # type: ignore[method-assign]
        return False

    with Peer(hook=opened, idle_time_out=200) as peer, connect(peer.url) as connection:
        assert connection.next_heartbeat_s() is not None
        receiver = connection.receiver("orders")
        while octets.count(b"\0\0\0\x08\x02\0\0\0") < 3:
            assert receiver.receive(timeout_s=0.05) == []


def test_a_broker_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.broker_core.client.amqp import dial

    monkeypatch.setattr(dial, "IDLE_TIME_OUT_MS", 100)
    # This peer never ticks, so it sends no heartbeats.
    with Peer() as peer, connect(peer.url) as connection, pytest.raises(errors.PeerError, match="idle time-out"):
        connection.receiver("orders").receive()
