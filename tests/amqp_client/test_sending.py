"""Sending through the client: in order, confirmed, and with every refusal reported."""

from __future__ import annotations

import pytest

from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import Accepted, Condition, Rejected, Released, events
from penstock.broker_core.amqp.performatives import Error
from penstock.broker_core.client.amqp import connect

from .peer import Peer


def messages(count: int, size: int = 10) -> list[bytes]:
    return [amqp.Message(data=[f"{number:0{size}}".encode()]).encode() for number in range(count)]


def test_what_is_sent_comes_whole_and_in_order_and_is_confirmed() -> None:
    sent = messages(3000)
    with Peer(credit=100) as peer, connect(peer.url) as connection:
        sender = connection.sender("orders")
        sender.send(sent[:1])
        sender.send(sent[1:])
        sender.flush()
        assert (sender.sent, sender.accepted, sender.refused, sender.unsettled) == (3000, 3000, 0, 0)
        assert peer.received == sent


def test_a_message_larger_than_a_frame_and_the_window_goes_in_several_frames() -> None:
    sent = [*messages(3), *messages(2, size=100_000), *messages(3)]
    with Peer(max_frame_size=512, incoming_window=8) as peer, connect(peer.url) as connection:
        sender = connection.sender("orders")
        sender.send(sent)
        sender.flush()
        assert peer.received == sent


def test_the_first_refusal_is_raised_once_and_all_are_listed() -> None:
    def some(session: amqp.Session, deliveries: list) -> None:
        for delivery in deliveries:
            place = int.from_bytes(delivery.tag, "big")
            bad = Rejected(error=Error(condition="amqp:decode-error", description="no AMQP message"))
            session.dispose([delivery], bad if place in (3, 7) else Released() if place == 8 else Accepted())

    with Peer(on_deliveries=some) as peer, connect(peer.url) as connection:
        sender = connection.sender("orders")
        sender.send(messages(10))
        with pytest.raises(errors.InvalidRequest, match=r"3 of 10 messages to 'orders' were rejected: no AMQP message"):
            sender.flush()
        assert [refusal.sequence for refusal in sender.refusals] == [3, 7, 8]
        assert (sender.accepted, sender.refused) == (7, 3)
        sender.send(messages(1))
        sender.flush()


def test_an_outcome_that_the_receiver_does_not_settle_is_settled_by_us() -> None:
    def unsettled(session: amqp.Session, deliveries: list) -> None:
        session.dispose(deliveries, Accepted(), settled=False)

    with Peer(on_deliveries=unsettled) as peer, connect(peer.url) as connection:
        sender = connection.sender("orders")
        sender.send(messages(5))
        sender.flush()
        assert (sender.accepted, sender.unsettled) == (5, 0)


def test_presettled_messages_wait_for_nobody() -> None:
    with Peer() as peer:
        with connect(peer.url) as connection:
            sender = connection.sender("orders", presettled=True)
            sender.send(messages(10))
            sender.flush()
        assert len(peer.received) == 10


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        (Condition.NOT_FOUND, errors.NotFound),
        (Condition.UNAUTHORIZED_ACCESS, errors.NotAllowed),
        (Condition.RESOURCE_LIMIT_EXCEEDED, errors.ResourceLimit),
        (Condition.INTERNAL_ERROR, errors.PeerError),
    ],
)
def test_a_refused_attach_is_the_error_of_its_condition_and_the_connection_lives_on(condition: str, kind: type) -> None:
    def refuse(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached) and event.attach.target.address == "nowhere":
            event.link.refuse(condition, "because")
            return True
        return False

    with Peer(hook=refuse) as peer, connect(peer.url) as connection:
        with pytest.raises(kind, match="because"):
            connection.sender("nowhere")
        sender = connection.sender("orders")
        sender.send(messages(1))
        sender.flush()


def test_a_message_beyond_the_brokers_limit_is_refused_here_and_those_before_it_are_sent() -> None:
    with Peer(max_message_size=1000) as peer, connect(peer.url) as connection:
        sender = connection.sender("orders")
        with pytest.raises(errors.ResourceLimit, match="message 2 was not sent to 'orders'"):
            sender.send([*messages(2), *messages(1, size=2000)])
        sender.flush()
        assert sender.accepted == 2


def test_without_credit_it_gives_up_and_says_what_it_waited_for() -> None:
    with Peer(credit=0) as peer, connect(peer.url, timeout_s=0.2) as connection:
        sender = connection.sender("orders")
        with pytest.raises(errors.PeerError, match="no credit for 'orders'"):
            sender.send(messages(1))


def test_without_outcomes_it_gives_up_and_says_how_many_are_open() -> None:
    with Peer(on_deliveries=lambda session, deliveries: None) as peer, connect(peer.url, timeout_s=0.2) as connection:
        sender = connection.sender("orders")
        sender.send(messages(7))
        with pytest.raises(errors.PeerError, match="7 messages to 'orders' are not confirmed"):
            sender.flush()
        assert sender.unsettled == 7


def test_a_connection_that_breaks_is_an_error_for_every_later_call() -> None:
    def nothing(session: amqp.Session, deliveries: list) -> None:
        peer.cut()

    with Peer(on_deliveries=nothing) as peer, connect(peer.url) as connection:
        sender = connection.sender("orders")
        sender.send(messages(1))
        for _ in range(2):
            with pytest.raises(errors.PeerError):
                sender.flush()
        with pytest.raises(errors.PeerError):
            connection.sender("orders")


def test_a_detach_by_the_broker_ends_the_link_with_its_reason() -> None:
    def detach(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Delivered):
            event.link.detach(error=Error(condition=Condition.RESOURCE_DELETED, description="the queue is deleted"))
            return True
        return False

    with Peer(hook=detach) as peer, connect(peer.url) as connection:
        sender = connection.sender("orders")
        sender.send(messages(1))
        with pytest.raises(errors.PeerError, match="the queue is deleted"):
            sender.flush()
        connection.sender("other").close()


def test_a_close_by_the_broker_is_told_with_its_reason() -> None:
    def close(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Delivered):
            machine.close(Error(condition=Condition.CONNECTION_FORCED, description="maintenance"))
            return True
        return False

    with Peer(hook=close) as peer, connect(peer.url) as connection:
        sender = connection.sender("orders")
        sender.send(messages(1))
        with pytest.raises(errors.PeerError, match="maintenance"):
            sender.flush()
