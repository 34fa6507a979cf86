"""Producers of the application's client: when a send waits, and the limit of unconfirmed octets (C9)."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import Accepted, Message, Rejected, events
from penstock.broker_core.amqp.deliveries import Delivery
from penstock.broker_core.amqp.performatives import Error, Header
from penstock.broker_core.client.app import AcknowledgeMode, Confirmation, callbacks, connect

from .applications import LIMIT_S, Transactions, body_of
from .peer import Peer, accept_all


def never(session: amqp.Session, deliveries: list[Delivery]) -> None:
    """No outcome."""


class Withheld:
    """Settles nothing until `release`, which must run on the peer's thread: send a message with the body `now`."""

    def __init__(self) -> None:
        self.held: list[Delivery] = []

    def __call__(self, session: amqp.Session, deliveries: list[Delivery]) -> None:
        self.held += deliveries
        if body_of(deliveries[-1].payload) == b"now":
            accept_all(session, self.held)
            self.held = []


def header_of(payload: bytes) -> Any:
    return amqp.decode_message(payload).header


@pytest.mark.parametrize(("persistent", "waits"), [(True, True), (False, False)])
def test_c9_outside_a_transaction_only_persistent_messages_are_waited_for(persistent: bool, waits: bool) -> None:
    with Peer(on_deliveries=never) as peer:
        connection = connect(peer.url)
        producer = connection.session().producer("q", send_timeout_s=0.05)
        if waits:
            with pytest.raises(errors.PeerError, match="is not confirmed within the time limit"):
                producer.send("hello", durable=persistent)
        else:
            assert not producer.send("hello", durable=persistent).done
        connection.close(flush=False)
        assert [header_of(payload).durable for payload in peer.received] == [persistent]


def test_c9_in_a_transaction_nothing_is_waited_for_and_either_way_can_be_asked_for() -> None:
    with Peer(on_deliveries=never) as peer:
        connection = connect(peer.url)
        producer = connection.session().producer("q", send_timeout_s=0.05)
        producer.send("hello", synchronous=False)
        with pytest.raises(errors.PeerError, match="not confirmed"):
            producer.send("hello", durable=False, synchronous=True)
        connection.close(flush=False)
    hook = Transactions()
    with Peer(hook=hook) as peer, connect(peer.url) as connection:
        session = connection.session(AcknowledgeMode.TRANSACTED)
        confirmation = session.producer("q").send("hello")
        confirmation.wait(LIMIT_S)
        assert confirmation.outcome == Accepted()


def test_c9_what_the_message_says_of_itself_stays_and_each_gets_an_id() -> None:
    with Peer() as peer, connect(peer.url, client_id="me") as connection:
        producer = connection.session().producer("q")
        producer.send(Message(header=Header(durable=False, priority=7), data=[b"x"]))
        producer.send(b"x", priority=9, ttl=5)
        producer.flush()
        first, second = (amqp.decode_message(payload) for payload in peer.received)
        assert (first.header.durable, first.header.priority) == (False, 7)
        assert (second.header.durable, second.header.priority, second.header.ttl) == (True, 9, 5000)
        ids = [re.fullmatch("me:([0-9a-f]{12}):([12])", str(message.properties.message_id)) for message in (first, second)]
        assert [(match[1], match[2]) for match in ids if match] == [(ids[0][1], "1"), (ids[0][1], "2")]
        with pytest.raises(errors.InvalidRequest, match="a body of type int cannot be sent"):
            producer.send(17)  # type: ignore[arg-type]


def test_c9_a_full_window_is_waited_for_and_opens_with_the_confirmations() -> None:
    withheld = Withheld()
    with Peer(on_deliveries=withheld) as peer, connect(peer.url) as connection:
        session = connection.session()
        producer = session.producer("q", window_octets=1000)
        producer.send(b"x" * 600, synchronous=False)
        with pytest.raises(errors.PeerError, match=r"was not sent: 6\d\d octets before it are not confirmed"):
            producer.send(b"x" * 600, synchronous=False, timeout_s=0.05)
        assert len(producer._unconfirmed) == 1  # never sent, not even late
        session.producer("q").send("", synchronous=False)
        sent = threading.Event()

        def send() -> None:
            producer.send(b"y" * 600, synchronous=False, timeout_s=LIMIT_S)
            sent.set()

        waiting = threading.Thread(target=send)
        waiting.start()
        session.producer("q").send(Message(data=[b"now"]), synchronous=False)
        waiting.join(LIMIT_S)
        assert sent.is_set()
        session.producer("q").send(Message(data=[b"now"]))
        producer.flush(LIMIT_S)
        assert producer.unconfirmed_octets == 0


def test_c9_a_message_larger_than_the_window_goes_alone() -> None:
    with Peer(max_frame_size=512, incoming_window=8) as peer, connect(peer.url) as connection:
        producer = connection.session().producer("q", window_octets=1000)
        for _ in range(3):
            producer.send(b"x" * 50_000, synchronous=False)
        producer.flush(LIMIT_S)
        assert [len(body_of(payload)) for payload in peer.received] == [50_000] * 3


def test_c9_a_refused_send_is_told_once_by_send_or_by_flush_or_by_the_callback() -> None:
    def refuse(session: amqp.Session, deliveries: list[Delivery]) -> None:
        session.dispose(deliveries, Rejected(error=Error(condition="amqp:resource-limit-exceeded", description="full")))

    with Peer(on_deliveries=refuse) as peer, connect(peer.url) as connection:
        producer = connection.session().producer("q")
        with pytest.raises(errors.ResourceLimit, match="full"):
            producer.send("synchronous")
        producer.flush()  # already reported
        producer.send("asynchronous", synchronous=False)
        with pytest.raises(errors.ResourceLimit, match="full"):
            producer.flush()
        producer.flush()
        confirmed: list[Confirmation] = []
        came = threading.Event()

        def callback(confirmation: Confirmation) -> None:
            confirmed.append(confirmation)
            came.set()

        producer.send("with a callback", on_outcome=callback)
        assert came.wait(LIMIT_S)
        assert isinstance(confirmed[0].error, errors.ResourceLimit)
        assert producer.refused == 3


def test_c9_closing_confirms_what_is_under_way_and_tells_a_refusal() -> None:
    def refuse(session: amqp.Session, deliveries: list[Delivery]) -> None:
        session.dispose(deliveries, Rejected())

    with Peer(on_deliveries=refuse) as peer:
        with pytest.raises(errors.InvalidRequest, match="rejected"), connect(peer.url) as connection:
            connection.session().producer("q").send("asynchronous", synchronous=False)
        connection = connect(peer.url)
        connection.session().producer("q").send("asynchronous", synchronous=False)
        connection.__exit__(KeyError, KeyError(), None)  # the first error is not hidden


def test_c9_beyond_the_brokers_limit_nothing_is_sent_and_the_link_lives_on() -> None:
    with Peer(max_message_size=1000) as peer, connect(peer.url) as connection:
        producer = connection.session().producer("q")
        with pytest.raises(errors.ResourceLimit, match="takes 1,000"):
            producer.send(b"x" * 2000)
        producer.send("small")
        assert producer.unconfirmed_octets == 0


def test_c9_without_credit_a_send_says_that_it_was_not_sent() -> None:
    with Peer(credit=0) as peer, connect(peer.url) as connection:
        producer = connection.session().producer("q")
        with pytest.raises(errors.PeerError, match="was not sent: the broker gives no credit"):
            producer.send("hello", timeout_s=0.05)


def test_c9_a_link_that_the_broker_ends_fails_its_producer_only() -> None:
    def detach(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Delivered) and event.link.target.address == "bad":
            event.link.detach(error=Error(condition="amqp:resource-deleted", description="the queue is deleted"))
            return True
        return False

    with Peer(hook=detach) as peer, connect(peer.url) as connection:
        session = connection.session()
        bad, good = session.producer("bad"), session.producer("good")
        for _ in range(2):
            with pytest.raises(errors.PeerError, match="the queue is deleted"):
                bad.send("hello")
        good.send("hello")


def test_c9_outcomes_that_wait_for_their_callback_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "MAX_PENDING_OUTCOMES", 2)
    running, go_on = threading.Event(), threading.Event()
    confirmed: list[Confirmation] = []

    def slow(confirmation: Confirmation) -> None:
        running.set()
        assert go_on.wait(LIMIT_S)
        confirmed.append(confirmation)

    with Peer() as peer, connect(peer.url) as connection:
        producer = connection.session().producer("q")
        producer.send("runs", on_outcome=slow)
        assert running.wait(LIMIT_S)
        for _ in range(2):
            producer.send("waits", on_outcome=slow).wait(LIMIT_S)
        with pytest.raises(errors.PeerError, match="was not sent"):
            producer.send("too much", on_outcome=slow, timeout_s=0.05)
        producer.send("without a callback")
        go_on.set()
    assert len(confirmed) == 3
