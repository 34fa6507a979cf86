"""A lost connection is replaced by one to the next server, with defined effects on messages (C12).

The tests set the waits between attempts and the randomness.
"""

from __future__ import annotations

import threading
from itertools import islice

import pytest

from penstock.broker_core import amqp, errors, executor_modules
from penstock.broker_core.amqp import events
from penstock.broker_core.amqp.deliveries import Delivery
from penstock.broker_core.client.amqp import dial
from penstock.broker_core.client.app import AcknowledgeMode, Backoff, Confirmation, Connection, ReceivedMessage

from ..waiting import until
from .applications import LIMIT_S, Gate, bodies, body_of, connect, has_reconnected, outcomes_by_body, round_trip
from .peer import Peer


def at_once(seconds: float, closing: threading.Event) -> None:
    """A pause that takes no time."""


def lost(connection: Connection) -> None:
    """Wait until the client has noticed the loss and found a server again."""
    with connection.changed:
        assert connection.changed.wait_for(lambda: has_reconnected(connection), LIMIT_S)


# --- the plan


def test_c12_the_plan_takes_the_next_servers_at_once_and_then_waits_longer_and_longer() -> None:
    plan = Backoff(first_s=1, factor=2, most_s=5).plan(["a", "b", "c"], "b", random=lambda: 0.0)
    steps = list(islice(plan, 14))
    assert [url for _, url in steps] == [*"cabcabcabcabca"]
    assert [wait for wait, _ in steps] == [0, 0, 0, 1, 0, 0, 2, 0, 0, 4, 0, 0, 5, 0]


def test_c12_one_server_alone_is_not_asked_again_at_once() -> None:
    plan = Backoff(first_s=1, factor=3, most_s=5, attempts=4).plan(["a"], "a", random=lambda: 0.0)
    assert list(plan) == [(1, "a"), (3, "a"), (5, "a"), (5, "a")]  # and no more


def test_c12_jitter_shortens_a_wait_by_its_share_at_most() -> None:
    for random, wait in ((0.0, 8.0), (0.5, 6.0), (1.0, 4.0)):
        assert next(Backoff(first_s=8, jitter=0.5).plan(["a"], "a", lambda random=random: random)) == (wait, "a")
    with pytest.raises(errors.InvalidRequest, match="0 <= first_s <= most_s"):
        Backoff(first_s=2, most_s=1)


# --- servers


def test_c12_the_first_server_that_answers_is_taken() -> None:
    with Peer() as gone:
        pass
    with Peer() as peer, connect([gone.url, peer.url]) as connection:
        assert connection.url == peer.url
    with pytest.raises(errors.PeerError, match="no broker answers"):
        connect([gone.url, gone.url])


def test_c12_another_server_takes_over_and_everything_goes_on_there() -> None:
    waits: list[float] = []
    came = threading.Event()
    got: list[bytes] = []

    def callback(message: ReceivedMessage) -> None:
        got.append(message.body)
        came.set()

    with Peer() as second, Peer() as first:
        connection = connect([first.url, second.url], random=lambda: 0.0, pause=lambda wait, _: waits.append(wait))
        with connection:
            left, right = connection.session(), connection.session()
            producer, consumer = left.producer("out"), left.consumer("in")
            right.consumer("callbacks", callback=callback)
            producer.send("to the first")
            second.queues["in"] += bodies("from the second")
            second.queues["callbacks"] += bodies("called")
            first.cut()
            assert consumer.receive(LIMIT_S).body == b"from the second"  # it waited over the loss
            producer.send("to the second")
            assert came.wait(LIMIT_S)
            assert connection.url == second.url
        assert [len(peer.received) for peer in (first, second)] == [1, 1]
        assert (waits, got) == ([0.0], [b"called"])


def test_c12_after_its_attempts_the_loss_is_final() -> None:
    waits: list[float] = []
    reported: list[Exception] = []
    with Peer() as peer:
        connection = connect(
            peer.url,
            reconnect=Backoff(first_s=1, factor=2, attempts=3),
            random=lambda: 0.0,
            pause=lambda wait, _: waits.append(wait),
            on_error=reported.append,
        )
        consumer = connection.session().consumer("q")
    for _ in range(2):
        with pytest.raises(errors.PeerError, match="no broker answers"):
            consumer.receive()
    with pytest.raises(errors.PeerError):
        connection.session()
    assert waits == [1, 2, 4]
    connection.close()


def test_c12_without_reconnect_the_loss_is_final_at_once() -> None:
    with Peer() as peer, connect(peer.url, reconnect=None) as connection:
        consumer = connection.session().consumer("q")
        peer.cut()
        with pytest.raises(errors.PeerError):
            consumer.receive()


def test_c12_a_wrong_password_is_not_tried_again() -> None:
    refuse = threading.Event()

    def sasl() -> amqp.SaslServer:
        return amqp.SaslServer(["EXTERNAL"] if refuse.is_set() else ["ANONYMOUS"])

    waits: list[float] = []
    with Peer(sasl=sasl) as peer, connect(peer.url, pause=lambda wait, _: waits.append(wait)) as connection:
        consumer = connection.session().consumer("q")
        refuse.set()
        peer.cut()
        with pytest.raises(errors.Unauthenticated):
            consumer.receive()
        assert len(waits) == 1


def test_c12_closing_ends_the_waiting_for_a_server() -> None:
    waiting = threading.Event()

    def pause(seconds: float, closing: threading.Event) -> None:
        waiting.set()
        assert closing.wait(LIMIT_S)

    with Peer() as peer:
        connection = connect(peer.url, pause=pause)
        peer.cut()
        assert waiting.wait(LIMIT_S)
        connection.close()
        with pytest.raises(errors.PeerError, match="is closed"):
            connection.session()


def test_c12_what_one_queue_refuses_on_the_new_server_fails_its_consumer_only() -> None:
    def refuse(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached) and event.attach.source.address == "only at the first":
            event.link.refuse("amqp:not-found", "there is no such queue")
            return True
        return False

    with Peer(hook=refuse) as second, Peer() as first, connect([first.url, second.url], pause=at_once) as connection:
        session = connection.session()
        here, both = session.consumer("only at the first"), session.consumer("both")
        second.queues["both"] += bodies("x")
        first.cut()
        assert both.receive(LIMIT_S).body == b"x"
        with pytest.raises(errors.NotFound, match="no such queue"):
            here.receive(LIMIT_S)


# --- messages: at least once


def test_c12_unconfirmed_sends_are_sent_again_in_order_with_their_ids_and_before_new_ones() -> None:
    def never(session: amqp.Session, deliveries: list[Delivery]) -> None:
        """Lose the confirmation of stored messages."""

    with Peer() as second, Peer(on_deliveries=never) as first:
        with connect([first.url, second.url], pause=at_once) as connection:
            session = connection.session()
            producer = session.producer("q")
            confirmations = [producer.send(str(number).encode(), synchronous=False) for number in range(50)]
            round_trip(session)
            assert len(first.received) == 50
            first.cut()
            producer.send(b"new")
            assert [body_of(payload) for payload in second.received] == [b"%d" % number for number in range(50)] + [b"new"]
            assert all(confirmation.done and confirmation.error is None for confirmation in confirmations)
            assert producer.unconfirmed_octets == 0
        assert second.received[:50] == first.received  # byte for byte: a broker that compares ids drops them


def test_c12_a_send_that_waits_is_confirmed_by_the_next_server() -> None:
    def cut(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Delivered):
            peer.cut()
            return True
        return False

    with Peer() as second, Peer(hook=cut) as first, connect([first.url, second.url], pause=at_once) as connection:
        connection.session().producer("q").send("hello")
        assert len(second.received) == 1


def test_c12_what_is_sent_again_waits_for_the_credit_of_the_new_server() -> None:
    with Peer(credit=3) as second, Peer(on_deliveries=lambda session, deliveries: None) as first:
        with connect([first.url, second.url], pause=at_once) as connection:
            producer = connection.session().producer("q")
            for number in range(20):
                producer.send(str(number).encode(), synchronous=False)
            first.cut()
            lost(connection)
            producer.send(b"new", synchronous=False)  # not with the credit for the other messages
        assert [body_of(payload) for payload in second.received] == [b"%d" % number for number in range(20)] + [b"new"]


def test_c12_settling_what_came_on_a_lost_connection_is_an_error_and_it_comes_again() -> None:
    with Peer() as second, Peer() as first, connect([first.url, second.url], pause=at_once) as connection:
        first.queues["q"] += bodies("a", "b")
        second.queues["q"] += bodies("a", "b")  # a broker would deliver both again
        session = connection.session(AcknowledgeMode.CLIENT)
        consumer = session.consumer("q")
        a = consumer.receive(LIMIT_S)  # b waits here, and is dropped
        first.cut()
        lost(connection)
        with pytest.raises(errors.PeerError, match=r"connection that is lost.*delivered again"):
            a.acknowledge()
        again = [consumer.receive(LIMIT_S) for _ in range(2)]
        assert [message.body for message in again] == [b"a", b"b"]
        again[1].acknowledge()
        round_trip(session)
        assert outcomes_by_body(second) == [(b"a", "Accepted"), (b"b", "Accepted")]


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK])
def test_c12_an_acknowledgement_of_the_client_itself_is_a_no_op_after_a_loss(mode: AcknowledgeMode) -> None:
    running, go_on, again = threading.Event(), threading.Event(), threading.Event()
    reported: list[Exception] = []

    def callback(message: ReceivedMessage) -> None:
        if not running.is_set():
            running.set()
            assert go_on.wait(LIMIT_S)
        else:
            again.set()

    with Peer() as second, Peer() as first:
        with connect([first.url, second.url], pause=at_once, on_error=reported.append, clock=lambda: 0.0) as connection:
            first.queues["q"] += bodies("a")
            second.queues["q"] += bodies("a")
            connection.session(mode).consumer("q", callback=callback)
            assert running.wait(LIMIT_S)
            first.cut()
            lost(connection)
            go_on.set()
            assert again.wait(LIMIT_S)
        assert outcomes_by_body(second) == [(b"a", "Accepted")]
        assert [type(error) for error in reported] == [errors.PeerError]  # the loss itself


def test_c12_callbacks_of_sends_come_once_though_they_were_sent_twice() -> None:
    confirmed: list[Confirmation] = []
    gate = Gate(events.Delivered)
    with Peer() as second, Peer(hook=gate, on_deliveries=lambda *_: None) as first:
        with connect([first.url, second.url], pause=at_once) as connection:
            producer = connection.session().producer("q")
            confirmation = producer.send("hello", on_outcome=confirmed.append)
            gate.wait()
            first.cut()
            confirmation.wait(LIMIT_S)
        assert confirmed == [confirmation]


def test_c5_a_pull_that_waits_goes_on_at_the_next_server() -> None:
    gate = Gate(events.Flowed)
    with Peer() as second, Peer(hook=gate) as first, connect([first.url, second.url], pause=at_once) as connection:
        consumer = connection.session().consumer("q", prefetch=0)
        second.queues["q"] += bodies("a", "b")
        cutting = threading.Thread(target=lambda: (gate.wait(), first.cut()))
        cutting.start()
        assert consumer.receive(LIMIT_S).body == b"a"
        cutting.join()
        assert len(second.queues["q"]) == 1


# --- the pump between calls


def test_c12_heartbeats_are_sent_while_the_application_does_something_else() -> None:
    octets, beaten = bytearray(), threading.Event()

    def opened(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Opened):
            taken = machine.receive_data

            def counted(data: bytes, now: float | None = None) -> list[events.Event]:
                octets.extend(data)
                if octets.count(b"\0\0\0\x08\x02\0\0\0") >= 3:
                    beaten.set()
                return taken(data, now)

            machine.receive_data = counted  # type: ignore[method-assign]
        return False

    with Peer(hook=opened, idle_time_out=200) as peer, connect(peer.url):
        assert beaten.wait(LIMIT_S)


def test_c12_a_server_that_says_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "IDLE_TIME_OUT_MS", 100)
    # This peer never ticks, so it sends no heartbeats. On a busy machine it is lost before there is a consumer.
    lost = pytest.raises(errors.PeerError, match="idle time-out")
    with Peer() as peer, connect(peer.url, reconnect=None) as connection, lost:
        connection.session().consumer("q").receive(LIMIT_S)


def test_a_session_that_is_closed_before_the_server_has_begun_it_ends_then() -> None:
    """The peer answers the first begin when the second has come."""
    begun: list[amqp.Session] = []

    def hold(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if not isinstance(event, events.Begun):
            return False
        begun.append(event.session)
        if len(begun) == 2:
            for session in begun:
                session.begin()
        return True

    with Peer(hook=hold) as peer, connect(peer.url) as connection:
        connection.session().close()
        connection.session().producer("q").send("x")
        until(lambda: [event.session for event in peer.seen if isinstance(event, events.Ended)] == begun[:1], "it is ended")


def test_spark_s_tasks_are_not_sent_this_client() -> None:
    assert not [name for name in executor_modules.sources() if ".app." in name]
