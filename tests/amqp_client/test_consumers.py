"""Consumers of the application's client: several sources, explicit pull, filters (C3, C5)."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import pytest

from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import events
from penstock.broker_core.client.app import AcknowledgeMode, Consumer, ReceivedMessage, connect
from penstock.broker_core.client.app.arrivals import Arrivals

from ..waiting import until
from .applications import LIMIT_S, bodies, outcomes_by_body, round_trip
from .certificates import Authority
from .peer import Peer


def flows(peer: Peer) -> list[tuple[int, bool]]:
    """Credit and drain of each flow of a link, in order."""
    received = [event.flow for event in peer.seen if isinstance(event, events.Flowed) and event.link is not None]
    return [(flow.link_credit, flow.drain) for flow in received]


def body(consumer: Consumer, timeout_s: float | None = LIMIT_S) -> bytes | None:
    message = consumer.receive(timeout_s)
    return None if message is None else message.body


# --- C3: one consumer over several sources


def test_c3_links_take_turns_in_one_queue_of_arrivals() -> None:
    arrivals: Arrivals[str, int] = Arrivals()
    arrivals.add("a", [1, 2, 3, 4])
    arrivals.add("b", [10, 11])
    arrivals.add("c", [])
    taken = [arrivals.take() for _ in range(3)]
    arrivals.add("c", [20])
    while (arrival := arrivals.take()) is not None:
        taken.append(arrival)
    assert [item for _, item in taken if item is not None] == [1, 10, 2, 11, 3, 20, 4]
    assert not arrivals
    assert len(arrivals) == 0


def test_a_message_beyond_the_limit_ends_its_consumer_and_says_so() -> None:
    def heedless(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached):
            event.attach.max_message_size = None
        return False

    with Peer(hook=heedless) as peer, connect(peer.url, max_message_octets=100_000) as connection:
        peer.queues["a"] += [amqp.Message(data=[b"x" * 200_000]).encode()]
        consumer = connection.session().consumer("a")
        with pytest.raises(errors.ResourceLimit, match="raise max_message_octets"):
            consumer.receive(LIMIT_S)


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.CLIENT])
def test_with_prefetch_1_a_busy_application_holds_one_message(mode: AcknowledgeMode) -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["a"] += bodies("first", "second")
        consumer = connection.session(mode).consumer("a", prefetch=1)
        assert body(consumer) == b"first"
        round_trip(connection.session())  # this write carries no credit of the consumer
        assert len(peer.queues["a"]) == 1
        assert body(consumer) == b"second"


def test_with_prefetch_1_a_busy_callback_holds_one_message() -> None:
    begun, release = threading.Event(), threading.Event()

    def handle(message: ReceivedMessage) -> None:
        begun.set()
        assert release.wait(LIMIT_S)

    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["a"] += bodies("first", "second")
        connection.session().consumer("a", prefetch=1, callback=handle)
        assert begun.wait(LIMIT_S)
        round_trip(connection.session())
        assert len(peer.queues["a"]) == 1
        release.set()
        until(lambda: not peer.queues["a"], "the second message was sent")


def test_c3_one_consumer_over_three_queues_is_fair_and_shares_its_prefetch() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        for name in "abc":
            peer.queues[name] += bodies(*(f"{name}{number}" for number in range(4)))
        session = connection.session(AcknowledgeMode.CLIENT)
        consumer = session.consumer("a", "b", "c", prefetch=12)
        round_trip(session)
        assert flows(peer)[:3] == [(4, False)] * 3
        messages = [consumer.receive(LIMIT_S) for _ in range(12)]
        assert [message.source for message in messages] == ["a", "b", "c"] * 4
        assert [message.body for message in messages if message.source == "b"] == [b"b0", b"b1", b"b2", b"b3"]
        messages[-1].acknowledge()  # one acknowledgement for all messages of all sources
        round_trip(session)
        assert {state for _, state in outcomes_by_body(peer)} == {"Accepted"}
        assert len(peer.outcomes) == 12


def test_c3_a_source_that_is_refused_refuses_the_consumer() -> None:
    def refuse(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached) and event.attach.source.address == "nowhere":
            event.link.refuse("amqp:not-found", "there is no such queue")
            return True
        return False

    with Peer(hook=refuse) as peer, connect(peer.url) as connection:
        session = connection.session()
        with pytest.raises(errors.NotFound, match="no such queue"):
            session.consumer("a", "nowhere")
        peer.queues["a"] += bodies("x")
        assert body(session.consumer("a")) == b"x"


# --- C5: prefetch 0


def test_c5_with_prefetch_0_nothing_comes_but_what_is_asked_for() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["q"] += bodies("a", "b", "c")
        session = connection.session()
        consumer = session.consumer("q", prefetch=0)
        round_trip(session)
        assert len(peer.queues["q"]) == 3
        assert body(consumer, 0) == b"a"  # basicGet: credit 1, and a drain immediately
        assert body(consumer) == b"b"  # credit 1, without a drain
        assert len(peer.queues["q"]) == 1
        assert body(consumer, 0) == b"c"
        assert body(consumer, 0) is None
        with pytest.raises(errors.InvalidRequest, match="no message comes unasked"):
            consumer.listen(print)


def test_c5_an_empty_queue_is_drained_when_the_time_is_over_so_that_nothing_comes_late() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        consumer = connection.session().consumer("q", prefetch=0)
        assert body(consumer, 0.02) is None
        assert flows(peer) == [(1, False), (1, True)]
        assert consumer.links[0].link.link_credit == 0
        peer.queues["q"] += bodies("a")
        round_trip(consumer.session)
        assert len(peer.queues["q"]) == 1
        assert body(consumer) == b"a"


def test_c5_what_comes_with_the_drain_is_returned_and_not_lost() -> None:
    def late(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        """The message arrives in the queue together with the drain."""
        if isinstance(event, events.Flowed) and event.flow.drain and event.link is not None:
            peer.queues["q"] += bodies("late")
        return False

    with Peer(hook=late) as peer, connect(peer.url) as connection:
        assert body(connection.session().consumer("q", prefetch=0), 0.02) == b"late"


def test_c5_a_waiting_pull_over_several_sources_takes_one_and_gives_a_second_back() -> None:
    both = threading.Event()

    def fill(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        """Both queues get a message once both links wait with credit."""
        if isinstance(event, events.Flowed) and event.link is not None and not event.flow.drain and not both.is_set():
            waiting.add(event.link)
            if len(waiting) == 2:
                both.set()
                for link in waiting:
                    peer.queues[link.source.address] += bodies(link.source.address)
                    peer._send(link)
        return False

    waiting: set[amqp.Link] = set()
    with Peer(hook=fill) as peer, connect(peer.url) as connection:
        session = connection.session(AcknowledgeMode.INDIVIDUAL)
        consumer = session.consumer("a", "b", prefetch=0)
        message = consumer.receive(LIMIT_S)
        round_trip(session)
        (released,) = {"a", "b"} - {message.source}
        assert outcomes_by_body(peer) == [(released.encode(), "Released")]


def test_c5_full_queues_are_pulled_in_turn() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        for name in "abc":
            peer.queues[name] += bodies(*[name] * 3)
        session = connection.session()
        consumer = session.consumer("a", "b", "c", prefetch=0)
        got = [body(consumer) for _ in range(9)]
        assert sorted(got[:3]) == sorted(got[3:6]) == sorted(got[6:]) == [b"a", b"b", b"c"]
        assert body(consumer, 0) is None
        round_trip(session)
        assert {state for _, state in outcomes_by_body(peer)} == {"Accepted"}  # no fetched message returned


# --- options of the source


def test_a_filter_that_the_broker_does_not_support_is_an_error() -> None:
    def forget(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached) and event.attach.source.filter and event.attach.source.address == "deaf":
            event.link.attach(source=amqp.Source(address="deaf"), target=event.attach.target)
            return True
        return False

    with Peer(hook=forget) as peer, connect(peer.url) as connection:
        session = connection.session()
        with pytest.raises(errors.InvalidRequest, match=r"does not support the filter apache\.org:selector-filter:string"):
            session.consumer("deaf", selector="a = 1")
        session.consumer("q", selector="a = 1", no_local=True, priority=7, browse=True)
        attach = next(e.attach for e in peer.seen if isinstance(e, events.Attached) and e.attach.source.address == "q")
        codes = {name: int(filter.descriptor) for name, filter in attach.source.filter.items()}
        assert codes == {"apache.org:selector-filter:string": 0x468C00000004, "apache.org:no-local-filter:list": 0x468C00000003}
        assert attach.source.filter["apache.org:selector-filter:string"].value == "a = 1"
        assert (attach.properties, attach.source.distribution_mode) == ({"priority": 7}, "copy")


def test_credit_is_renewed_as_messages_are_taken_and_never_exceeds_the_prefetch() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["q"] += bodies(*map(str, range(100)))
        session = connection.session(AcknowledgeMode.CLIENT)  # unacknowledged messages do not stall it
        consumer = session.consumer("q", prefetch=10)
        for number in range(100):
            assert body(consumer) == str(number).encode()
            assert len(consumer.arrivals) + consumer.links[0].link.link_credit <= 10


def test_a_malformed_message_goes_back_and_the_next_one_comes() -> None:
    with Peer() as peer, connect(peer.url) as connection:
        peer.queues["q"] += [b"no AMQP at all", *bodies("good")]
        session = connection.session()
        assert body(session.consumer("q")) == b"good"
        round_trip(session)
        first, second = (type(state).__name__ for _, state in peer.outcomes)
        assert (first, second) == ("Modified", "Accepted")


def test_over_tls_more_than_one_reading_takes_comes_whole(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own.cert, own.key)
    sent = [bytes([number]) * 700_001 for number in range(3)]
    with Peer(tls=tls) as peer, connect(peer.url, ca_file=authority.ca_file) as connection:
        peer.queues["q"] += [amqp.Message(data=[octets]).encode() for octets in sent]
        consumer = connection.session().consumer("q")
        assert [body(consumer) for _ in sent] == sent
        connection.session().producer("q").send(sent[0])
        assert len(peer.received) == 1
