"""The applications' client at Penstock's own broker (C3, C5, C7, C12)."""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path

import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import Message, Modified, Rejected, Released
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.client.app import AcknowledgeMode, Backoff, Consumer, ReceivedMessage, received
from penstock.broker_core.client.app.program import program_name
from penstock.broker_core.client.app.retries import Retries
from penstock.broker_core.server.child import Broker

from .applications import LIMIT_S, connect, stat


def taken(consumer: Consumer, count: int) -> list[tuple[bytes, int]]:
    """Bodies and delivery counts."""
    return [(message.body, message.delivery_count) for message in (consumer.receive(LIMIT_S) for _ in range(count))]


def test_c7_recover_redelivers_in_order_and_counts_what_was_handed_out(broker: Broker) -> None:
    broker.declare("recover")
    with connect(broker.amqp_url) as connection:
        producer = connection.session().producer("recover")
        for number in range(6):
            producer.send(b"%d" % number, synchronous=False)
        producer.flush()
        session = connection.session(AcknowledgeMode.CLIENT)
        consumer = session.consumer("recover")
        assert taken(consumer, 3) == [(b"0", 0), (b"1", 0), (b"2", 0)]
        session.recover()
        assert taken(consumer, 6) == [(b"0", 1), (b"1", 1), (b"2", 1), (b"3", 0), (b"4", 0), (b"5", 0)]
        session.close()
        assert taken(connection.session().consumer("recover"), 2) == [(b"0", 2), (b"1", 2)]


def test_c7_a_message_that_expired_in_the_prefetch_is_not_delivered(broker: Broker) -> None:
    broker.declare("expiring")
    late = [0.0]
    with connect(broker.amqp_url, wall=lambda: late[0]) as connection:
        session = connection.session()
        producer = session.producer("expiring")
        producer.send("first")
        producer.send("stale", ttl=3600)
        producer.send("last")
        consumer = session.consumer("expiring")
        assert consumer.receive(LIMIT_S).body == "first"
        with connection.changed:
            assert connection.changed.wait_for(lambda: len(consumer.arrivals) == 2, LIMIT_S)
        late[0] = 4_000.0  # of the client's clock: the broker's hour is not over
        assert consumer.receive(LIMIT_S).body == "last"
        assert consumer.expired == 1
        # It has returned to the broker, but not for this consumer.
        assert connection.session(AcknowledgeMode.CLIENT).consumer("expiring", prefetch=0).receive(LIMIT_S).body == "stale"


def test_c3_c5_one_consumer_over_two_queues_by_push_and_by_pull(broker: Broker) -> None:
    for name in ("left", "right"):
        broker.declare(name)
    with connect(broker.amqp_url) as connection:
        session = connection.session()
        for name in ("left", "right"):
            producer = session.producer(name)
            for _ in range(6):
                producer.send(name)
        pulled = session.consumer("left", "right", prefetch=0)
        assert sorted(pulled.receive(0).body for _ in range(4)) == ["left", "left", "right", "right"]
        pushed = session.consumer("left", "right", prefetch=4)
        assert sorted(pushed.receive(LIMIT_S).body for _ in range(8)) == ["left"] * 4 + ["right"] * 4
        assert pulled.receive(0) is None
        assert pulled.receive(0.02) is None


def test_c7_outcomes_of_single_messages(broker: Broker) -> None:
    broker.declare("single")
    with connect(broker.amqp_url) as connection:
        session = connection.session(AcknowledgeMode.INDIVIDUAL)
        producer, consumer = session.producer("single"), session.consumer("single", prefetch=0)
        for name in "abc":
            producer.send(name)
        first, second, _ = (consumer.receive(LIMIT_S) for _ in range(3))
        second.acknowledge()
        first.acknowledge(Rejected())
        session.close()
        left = connection.session().consumer("single", prefetch=0)
        assert (left.receive(LIMIT_S).body, left.receive(0)) == ("c", None)


@pytest.mark.parametrize(
    ("outcome", "options"),
    [(Released(), {}), (Modified(delivery_failed=True), {}), (Rejected(), {"rejected": "return"})],
    ids=["released", "modified", "rejected"],
)
def test_c5_q12_what_was_just_given_back_is_there_for_the_next_pull(
    broker: Broker, outcome: Released | Modified | Rejected, options: dict[str, str]
) -> None:
    """The pull follows the outcome and takes only waiting messages: an empty answer must be true."""
    name = f"given back {outcome}"
    broker.declare(name, **options)
    with connect(broker.amqp_url) as connection:
        session = connection.session(AcknowledgeMode.INDIVIDUAL)
        session.producer(name).send("again")
        consumer = session.consumer(name, prefetch=0)
        consumer.receive(LIMIT_S).acknowledge(outcome)
        again = consumer.receive(0)
        assert again is not None
        again.acknowledge()


def test_c5_q16_a_group_that_is_free_is_free_for_the_next_pull(broker: Broker) -> None:
    broker.declare("grouped", groups="held")
    with connect(broker.amqp_url) as connection:
        session = connection.session(AcknowledgeMode.INDIVIDUAL)
        producer = session.producer("grouped")
        for name in "ab":
            producer.send(Message(value=name, has_value=True, properties=Properties(group_id="g")))
        left, right = session.consumer("grouped", prefetch=0), session.consumer("grouped", prefetch=0)
        first = left.receive(LIMIT_S)
        assert right.receive(0) is None
        first.acknowledge()
        assert right.receive(0).body == "b"


def test_c12_a_broker_that_is_killed_and_comes_back_loses_nothing(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", fsync="never") as broker:
        broker.declare("q")
        with connect(broker.amqp_url, reconnect=Backoff(first_s=0.05, most_s=0.1)) as connection:
            session = connection.session(AcknowledgeMode.CLIENT)
            producer, consumer = session.producer("q"), session.consumer("q", prefetch=2)
            for number in range(5):
                producer.send(b"%d" % number)
            consumer.receive(LIMIT_S).acknowledge()
            consumer.receive(LIMIT_S)  # not acknowledged: it comes again
            session.consumer("q", prefetch=0).close()  # a round trip: the acknowledgement has come
            broker.kill()
            with connection.changed:
                assert connection.changed.wait_for(lambda: connection.url is None, LIMIT_S)
            broker.start()
            producer.send(b"5")
            got = [body for body, _ in taken(consumer, 5)]
            assert got == [b"1", b"2", b"3", b"4", b"5"]


def test_c10_a_selector_a_browser_and_no_local(broker: Broker) -> None:
    broker.declare("choose")
    with connect(broker.amqp_url) as connection:
        producer = connection.session().producer("choose")
        for colour in ("red", "blue", "red"):
            producer.send(Message(application_properties={"colour": colour}, data=[colour.encode()]))
        session = connection.session()
        seen = session.consumer("choose", browse=True)
        assert [seen.receive(LIMIT_S).body for _ in range(3)] == [b"red", b"blue", b"red"]
        with pytest.raises(errors.InvalidRequest, match="does not support"):  # only for subscriptions on an exchange
            session.consumer("choose", no_local=True)
        red = session.consumer("choose", selector="colour = 'red'", prefetch=0)
        assert [red.receive(0).body for _ in range(2)] == [b"red", b"red"]
        assert red.receive(0) is None
        assert session.consumer("choose", prefetch=0).receive(0).body == b"blue"


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK])
def test_c12_a_callback_that_always_raises_is_no_hot_loop(
    broker: Broker, mode: AcknowledgeMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q23 U8: with a queue without `retryDelay`. The message waits in its queue, and others are handled meanwhile."""
    monkeypatch.setattr(received, "RETRIES", Retries(3600.0, 3600.0))
    queue = f"raising {mode.value}"
    broker.declare(queue)
    calls: list[str] = []
    handled = threading.Event()

    def callback(message: ReceivedMessage) -> None:
        calls.append(message.body)
        if message.body == "poison":
            raise ValueError("not an order")
        handled.set()

    with connect(broker.amqp_url, on_error=lambda error: None) as connection:
        producer = connection.session().producer(queue)
        producer.send("poison")
        session = connection.session(mode)
        session.consumer(queue, callback=callback)
        while stat(broker, queue)["delayed"] != 1:
            assert len(calls) < 2
        producer.send("good")
        assert handled.wait(LIMIT_S)
        session.close()
        assert calls == ["poison", "good"]


def test_a_consumer_keeps_and_logs_the_hint_that_its_selector_may_mean_a_field(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.declare("hinted")
    with connect(broker.amqp_url) as connection:
        session = connection.session()
        session.producer("hinted").send("urgent", priority=9)
        consumer = session.consumer("hinted", selector="priority > 4")
        hint = (
            "in a selector 'priority' is an application property; for the message's priority write JMSPriority or amqp.priority"
        )
        assert consumer.hints == {"hinted": hint}
        assert [record.getMessage() for record in caplog.records] == [f"consumer of 'hinted': {hint}"]
        consumer.close()
        assert session.consumer("hinted", selector="JMSPriority > 4").hints == {}


def test_a_blank_selector_takes_every_message(broker: Broker) -> None:
    broker.declare("blank")
    with connect(broker.amqp_url) as connection:
        session = connection.session()
        session.producer("blank").send("any")
        assert session.consumer("blank", selector=" ").receive(LIMIT_S).body == "any"


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/srv/shop/orders.py", "--url"], "orders.py"),
        (["/srv/shop/__main__.py"], "shop"),
        (["-c"], "python"),
        ([""], "python"),
        (["/srv/\udcff.py"], "\\udcff.py"),
    ],
)
def test_the_default_client_id_names_the_program(monkeypatch: pytest.MonkeyPatch, argv: list[str], name: str) -> None:
    """D8: the same after each start, so that the archive's `holder` is recognized."""
    monkeypatch.setattr(sys, "argv", argv)
    assert program_name() == f"{name}@{socket.gethostname()}"


def test_connections_with_the_same_client_id_do_not_take_each_others_links(broker: Broker) -> None:
    """Two workers of one program. Their messages have different ids, also after a restart of the program."""
    broker.declare("alike")
    with connect(broker.amqp_url) as first, connect(broker.amqp_url) as second:
        assert first.client_id == second.client_id == program_name()
        consumers = [connection.session().consumer("alike", prefetch=1) for connection in (first, second)]
        for connection in (first, second):
            connection.send("alike", "x")
        received = [consumer.receive(LIMIT_S) for consumer in consumers]
        assert len({message.message_id for message in received}) == 2
