"""Transactions of the application's client, with a coordinator of part 4 of the specification (C11, C7)."""

from __future__ import annotations

import threading

import pytest

from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import Rejected, events
from penstock.broker_core.amqp.performatives import Coordinator, Discharge
from penstock.broker_core.client.app import AcknowledgeMode, Connection, InDoubt, RolledBack, Session

from ..waiting import until
from .applications import LIMIT_S, Transactions, bodies, connect, has_reconnected, outcomes_by_body, round_trip
from .peer import Peer


def transacted(connection: Connection) -> Session:
    return connection.session(AcknowledgeMode.TRANSACTED)


def test_c11_sends_to_several_queues_and_what_was_received_happen_together() -> None:
    hook = Transactions()
    with Peer(hook=hook) as peer, connect(peer.url) as connection:
        peer.queues["in"] += bodies("a", "b", "c")
        session = transacted(connection)
        first, second, source = session.producer("one"), session.producer("two"), session.consumer("in")
        source.receive(LIMIT_S)
        first.send(b"1")
        second.send(b"2")
        source.receive(LIMIT_S).acknowledge(Rejected())
        assert hook.committed == []
        session.commit()
        assert hook.committed == [[("sent", b"1"), ("sent", b"2"), ("Accepted", b"a"), ("Rejected", b"b")]]
        round_trip(session)
        assert outcomes_by_body(peer) == [(b"a", "Accepted"), (b"b", "Rejected")]  # settled once it is committed
        source.receive(LIMIT_S)
        session.commit()
        session.commit()  # an empty transaction sends no request
        assert hook.committed[1:] == [[("Accepted", b"c")]]
        assert hook.log == ["declare", "commit"] * 2


def test_c11_rollback_with_prefetch_gives_everything_back_in_its_order() -> None:
    hook = Transactions()
    with Peer(hook=hook) as peer, connect(peer.url) as connection:
        peer.queues["q"] += bodies(*"abcde")
        session = transacted(connection)
        consumer, producer = session.consumer("q"), session.producer("out")
        for _ in range(3):
            consumer.receive(LIMIT_S)
        producer.send(b"gone")
        session.rollback()
        round_trip(session)
        assert outcomes_by_body(peer) == [(name, "Modified") for name in (b"a", b"b", b"c")] + [
            (b"d", "Released"),
            (b"e", "Released"),
        ]
        assert (hook.committed, hook.log) == ([], ["declare", "rollback"])
        peer.queues["q"] += bodies("a")
        assert consumer.links[0].link.link_credit == 1000  # again
        assert session.consumer("q").receive(LIMIT_S).body == b"a"
        session.commit()
        assert hook.committed == [[("Accepted", b"a")]]


def test_c11_a_transaction_larger_than_the_credit_does_not_stall() -> None:
    hook = Transactions()
    with Peer(hook=hook, credit=10) as peer, connect(peer.url) as connection:
        peer.queues["q"] += bodies(*map(str, range(100)))
        session = transacted(connection)
        consumer, producer = session.consumer("q", prefetch=10), session.producer("out", window_octets=300)
        for _ in range(100):
            producer.send(consumer.receive(LIMIT_S).message)
        session.commit()
        (work,) = hook.committed
        assert len(work) == 200
        dispositions = [e for e in peer.seen if isinstance(e, events.Disposed) and not e.settled]
        assert len(dispositions) == 1  # neighbours of one outcome share a frame


@pytest.mark.parametrize("how", ["refuse", "detach"])
def test_c11_a_commit_that_the_broker_refuses_is_a_rollback(how: str) -> None:
    hook = Transactions()
    setattr(hook, how, True)
    with Peer(hook=hook) as peer, connect(peer.url) as connection:
        peer.queues["q"] += bodies("a", "b")
        session = transacted(connection)
        consumer, producer = session.consumer("q"), session.producer("out")
        consumer.receive(LIMIT_S)
        producer.send(b"x")
        with pytest.raises(RolledBack, match=r"out of disk|too late"):
            session.commit()
        round_trip(session)
        assert outcomes_by_body(peer) == [(b"a", "Modified"), (b"b", "Released")]
        setattr(hook, how, False)
        producer.send(b"y")
        session.commit()
        assert hook.committed == [[("sent", b"y")]]


def test_c11_a_refused_send_rolls_back_the_whole_transaction() -> None:
    hook = Transactions()
    hook.rejected.add(b"bad")
    with Peer(hook=hook) as peer, connect(peer.url) as connection:
        session = transacted(connection)
        producer = session.producer("out")
        for body in (b"good", b"bad"):
            producer.send(body)
        with pytest.raises(RolledBack, match="rejected"):
            session.commit()
        assert (hook.committed, hook.log) == ([], ["declare", "rollback"])
        producer.send(b"good")
        session.commit()
        assert hook.committed == [[("sent", b"good")]]


def test_c11_losing_the_control_link_rolls_back() -> None:
    hook = Transactions()

    def expire(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        """The coordinator ends its link during the transaction, whose time is over."""
        if isinstance(event, events.Attached) and event.attach.source and event.attach.source.address == "expire":
            for link in event.link.session.links.values():
                if isinstance(link.target, Coordinator):
                    link.detach(error=amqp.performatives.Error(condition="amqp:transaction:timeout", description="too slow"))
                    break
        return hook(peer, machine, event)

    with Peer(hook=expire) as peer, connect(peer.url) as connection:
        peer.queues["q"] += bodies("a")
        session = transacted(connection)
        consumer, producer = session.consumer("q"), session.producer("out")
        producer.send(b"x")
        consumer.receive(LIMIT_S)
        session.consumer("expire")
        with pytest.raises(RolledBack, match="too slow"):
            session.commit()
        round_trip(session)
        assert (outcomes_by_body(peer), hook.committed) == ([(b"a", "Modified")], [])
        producer.send(b"y")
        session.commit()
        assert hook.committed == [[("sent", b"y")]]


def test_c11_closing_rolls_back() -> None:
    hook = Transactions()
    with Peer(hook=hook) as peer:
        with connect(peer.url) as connection:
            peer.queues["q"] += bodies("a", "b")
            session = transacted(connection)
            session.consumer("q").receive(LIMIT_S)
            session.producer("out").send("x")
        assert outcomes_by_body(peer) == [(b"a", "Modified"), (b"b", "Released")]
        assert (hook.committed, hook.log) == ([], ["declare", "rollback"])


def test_c11_a_consumer_may_be_closed_before_the_commit() -> None:
    hook = Transactions()
    with Peer(hook=hook) as peer, connect(peer.url) as connection:
        peer.queues["q"] += bodies("a", "b")
        session = transacted(connection)
        with_one, producer = session.consumer("q"), session.producer("out")
        with_one.receive(LIMIT_S)
        with_one.close()
        producer.send(b"x")
        producer.close()
        session.commit()
        assert hook.committed == [[("sent", b"x"), ("Accepted", b"a")]]


def test_c11_transactions_of_two_sessions_are_apart() -> None:
    hook = Transactions()
    with Peer(hook=hook) as peer, connect(peer.url) as connection:
        first, second = transacted(connection), transacted(connection)
        for session, name in ((first, "1"), (second, "2")):
            session.producer("out").send(name.encode())
        second.commit()
        first.rollback()
        assert hook.committed == [[("sent", b"2")]]
        assert hook.log == ["declare", "declare", "commit", "rollback"]


def test_c11_a_connection_lost_during_the_commit_leaves_it_in_doubt_and_says_so() -> None:
    hook = Transactions()

    def cut(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Delivered) and isinstance(event.link.target, Coordinator):
            value = amqp.composites.compose(amqp.decode_message(event.deliveries[0].payload).value)
            if isinstance(value, Discharge) and not hook.committed:
                hook(peer, machine, event)  # committed, and the answer is lost
                peer.cut()
                return True
        return hook(peer, machine, event)

    with Peer(hook=cut) as peer, connect(peer.url, random=lambda: 1.0, pause=lambda seconds, closing: None) as connection:
        session = transacted(connection)
        producer = session.producer("out")
        producer.send(b"x")
        with pytest.raises(InDoubt, match="it is unknown whether"):
            session.commit()
        producer.send(b"y")
        session.commit()  # the session continues with a new transaction
        assert hook.committed == [[("sent", b"x")], [("sent", b"y")]]


def test_c11_what_was_received_in_a_transaction_in_doubt_does_not_roll_back_the_next_one() -> None:
    hook = Transactions()

    def cut(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        asked = isinstance(event, events.Delivered) and isinstance(event.link.target, Coordinator)
        if asked and hook.work and not hook.committed:
            hook(peer, machine, event)
            peer.cut()
            return True
        return hook(peer, machine, event)

    with Peer(hook=cut) as peer, connect(peer.url, pause=lambda seconds, closing: None) as connection:
        peer.queues["q"] += bodies("a")
        session = transacted(connection)
        producer, consumer = session.producer("out"), session.consumer("q")
        message = consumer.receive(LIMIT_S)
        producer.send(b"x")
        with pytest.raises(InDoubt):
            session.commit()
        with pytest.raises(errors.PeerError, match="connection that is lost"):
            message.acknowledge()
        until(lambda: has_reconnected(connection), "it is connected again")
        producer.send(b"y")
        session.commit()
        assert hook.committed == [[("sent", b"x"), ("Accepted", b"a")], [("sent", b"y")]]


def test_c11_a_connection_lost_before_the_commit_rolls_back_what_was_done_before_and_after() -> None:
    hook = Transactions()
    with Peer(hook=hook) as peer, connect(peer.url, pause=lambda seconds, closing: None) as connection:
        peer.queues["q"] += bodies("a")
        session = transacted(connection)
        producer, consumer = session.producer("out"), session.consumer("q")
        sent = producer.send(b"before")
        consumer.receive(LIMIT_S)
        sent.wait(LIMIT_S)
        peer.cut()
        with connection.changed:
            assert connection.changed.wait_for(lambda: has_reconnected(connection), LIMIT_S)
        producer.send(b"after")
        with pytest.raises(RolledBack):
            session.commit()
        assert hook.committed == []
        producer.send(b"again")
        session.commit()
        assert hook.committed == [[("sent", b"again")]]


class WithoutCredit(Transactions):
    """A coordinator whose links to *scarce* get credit only when a link to *go* is attached."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: list[amqp.Receiver] = []

    def __call__(self, peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached) and getattr(event.attach.target, "address", None) == "scarce":
            event.link.attach(source=event.attach.source, target=event.attach.target)
            assert isinstance(event.link, amqp.Receiver)
            self._waiting.append(event.link)
            return True
        if isinstance(event, events.Attached) and getattr(event.attach.source, "address", None) == "go":
            for link in self._waiting:
                link.grant(10)
        return super().__call__(peer, machine, event)


def test_c11_a_send_that_waits_over_a_loss_is_in_no_other_session_s_transaction() -> None:
    """Both servers number their transactions in the same way. The first transaction was rolled back with its server."""
    hooks = WithoutCredit(), WithoutCredit()
    with (
        Peer(hook=hooks[1]) as second,
        Peer(hook=hooks[0]) as first,
        connect([first.url, second.url], pause=lambda seconds, closing: None) as connection,
    ):
        left, right = transacted(connection), transacted(connection)
        waiting, ready = left.producer("scarce"), right.producer("plenty")
        sending = threading.Thread(target=waiting.send, args=(b"mine",))
        sending.start()
        until(lambda: left.transaction.id, "the sender has a transaction, and waits for credit")
        first.cut()
        with connection.changed:
            assert connection.changed.wait_for(lambda: connection.url == second.url, LIMIT_S)
        ready.send(b"yours")
        connection.session().consumer("go")
        sending.join(LIMIT_S)
        assert not sending.is_alive()
        with pytest.raises(RolledBack):
            left.commit()
        right.commit()
        assert hooks[1].committed == [[("sent", b"yours")]]
        waiting.send(b"again")  # the producer and the session continue
        left.commit()
        assert hooks[1].committed[1:] == [[("sent", b"again")]]


def test_c11_a_declaration_that_is_lost_is_made_at_the_next_server() -> None:
    hook = Transactions()

    def cut(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Delivered):
            peer.cut()
            return True
        return False

    with (
        Peer(hook=hook) as second,
        Peer(hook=cut) as first,
        connect([first.url, second.url], pause=lambda seconds, closing: None) as connection,
    ):
        session = transacted(connection)
        session.producer("out").send(b"x")
        session.commit()
        assert (first.received, hook.committed) == ([], [[("sent", b"x")]])


def test_a_broker_without_transactions_is_an_error_at_the_first_send() -> None:
    def refuse(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached) and isinstance(event.attach.target, Coordinator):
            event.link.refuse("amqp:not-implemented", "this version has no transactions")
            return True
        return False

    with Peer(hook=refuse) as peer, connect(peer.url) as connection:
        session = transacted(connection)
        with pytest.raises(errors.InvalidRequest, match="has no transactions"):
            session.producer("out").send("x")
        connection.session().producer("out").send("x")
