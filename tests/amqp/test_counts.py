"""Counts, handles and frames of a peer cost little, and give the peer no advantage."""

from __future__ import annotations

import gc
import os
import tracemalloc
from typing import Any

import pytest

from penstock.broker_core.amqp import events, serial
from penstock.broker_core.amqp.errors import LocalProtocolError
from penstock.broker_core.amqp.performatives import Flow, Source, Target, Transfer

from .values import Pair, calls


def claim(pair: Pair, sender: Any, count: int) -> None:
    """Let the sender claim that its delivery-count has moved by `count`."""
    known = sender.delivery_count
    sender.delivery_count = serial.add(known, count)
    sender.send_flow()
    sender.delivery_count = known
    pair.pump()


@pytest.mark.parametrize("first", [0, 2**32 - 5])
@pytest.mark.parametrize("steps", [(-(2**31) + 11,), (-1,), (-(2**31),), (2**31 - 1, -2), (2**30,) * 3, (4, -3)])
def test_a_sender_gets_no_credit_by_its_delivery_count(steps: tuple[int, ...], first: int) -> None:
    """The count moves back, or so far ahead that the numbers wrap."""
    pair = Pair().opened()
    sender, receiver = pair.link(credit=10, initial_delivery_count=first)
    at = 0
    for step in steps:
        at += step
        claim(pair, sender, at)
        assert receiver.link_credit <= 10
    sender.link_credit = 5000
    came = 0
    for number in range(20):
        if sender.can_send:
            sender.send(b"%d" % number, b"m")
        _, server_events = pair.pump()
        came += sum(len(event.deliveries) for event in server_events if isinstance(event, events.Delivered))
    assert came <= 10
    assert receiver.state.value != "attached"


def test_a_delivery_is_counted_once_that_its_sender_counts_before_its_end() -> None:
    pair = Pair().opened()
    sender, receiver = pair.link(credit=3)
    sender.send(b"1", b"m", more=True)
    pair.pump()
    claim(pair, sender, 1)
    assert (receiver.delivery_count, receiver.link_credit) == (1, 2)
    sender.session.outbox.put(sender, Transfer(handle=sender.handle), b"m")
    pair.pump()
    assert (receiver.delivery_count, receiver.link_credit) == (1, 2)
    sender.send_many([b"2", b"3"], [b"m", b"m"])
    pair.pump()
    assert (receiver.delivery_count, receiver.link_credit) == (3, 0)
    assert receiver.state.value == "attached"


@pytest.mark.parametrize("ahead", [0, 1, 1000, 2**31 - 1])
def test_no_count_of_a_receiver_makes_a_credit_that_cannot_be_told(ahead: int) -> None:
    pair = Pair().opened()
    sender, receiver = pair.link()
    receiver.delivery_count = ahead
    receiver.link_credit = 2**32 - 1
    receiver.send_flow(echo=True)
    at_client, at_server = pair.pump()
    assert not any(isinstance(event, events.Violated) for event in (*at_client, *at_server))
    assert sender.link_credit == 2**32 - 1


def test_an_answer_beyond_the_peers_limits_is_the_applications_error() -> None:
    """A link is refused with the source that it came with, here larger than the peer's largest frame."""
    pair = Pair(client={"max_frame_size": 512}, server={"answers_violations": False}).opened()
    ours, _ = pair.session()
    link = ours.sender("link")
    link.attach(source=Source(address="long" * 200), target=Target(address="there"))
    ours.send(Flow(next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1))
    ours.send(Transfer(handle=link.handle, delivery_id=0, delivery_tag=b"1", message_format=0), b"without credit")
    ours.send(Flow(next_incoming_id=0, incoming_window=1, next_outgoing_id=1, outgoing_window=1))
    at_client, at_server = pair.pump()
    assert [type(event) for event in at_server] == [events.Attached, events.Flowed, events.Violated, events.Flowed]
    assert at_client == []
    with pytest.raises(LocalProtocolError, match="frame-size-too-small"):
        pair.server.answer(at_server[2])  # type: ignore[arg-type]


def test_a_frame_in_small_pieces_takes_its_own_size() -> None:
    pair = Pair(server={"max_frame_size": 1 << 20}).opened()
    sender, receiver = pair.link(credit=1)
    payload = os.urandom(100_000)
    sender.send(b"1", payload)
    octets = pair.client.data_to_send()
    pieces = [octets[at : at + 2] for at in range(0, len(octets), 2)]
    gc.collect()
    tracemalloc.start()
    for piece in pieces[:-1]:
        assert pair.server.receive_data(bytes(bytearray(piece))) == []  # a copy, as a socket would make
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 2 * len(octets)
    [event] = pair.server.receive_data(pieces[-1])
    assert isinstance(event, events.Delivered)
    assert [delivery.payload for delivery in event.deliveries] == [payload]
    assert receiver.delivery_count == 1


def test_an_attach_costs_no_more_where_there_are_many_links() -> None:
    def cost(links: int) -> int:
        pair = Pair(handle_max=1000).opened()
        session = pair.session()
        for number in range(links):
            pair.link(f"link {number}", session=session)
        session[0].sender("one more").attach(source=Source(), target=Target(address="there"))
        octets = pair.client.data_to_send()
        server_events: list[events.Event] = []

        def answer() -> None:
            server_events.extend(pair.server.receive_data(octets))
            server_events[0].link.attach(source=Source(), target=Target(address="there"))  # type: ignore[union-attr]

        made = calls(answer)
        assert server_events[0].link.handle == links  # type: ignore[union-attr]
        return made

    assert cost(200) < cost(2) + 50


def test_handles_are_the_lowest_that_are_free() -> None:
    pair = Pair().opened()
    session = pair.session()
    links = [pair.link(f"link {number}", session=session) for number in range(5)]
    for number in (3, 1):
        for end in links[number]:
            end.detach()
            pair.pump()
    assert [pair.link(f"more {number}", session=session)[1].handle for number in range(3)] == [1, 3, 5]
    assert sorted(session[1].links) == list(range(6))
    assert {link for same in session[1].handles.named.values() for link in same} == set(session[1].links.values())
