"""Q4 on the wire: a message that no consumer can take immediately leaves the queue as if it had never arrived."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.amqp import Accepted, Released, Sender, Source, Target, events
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import Described, Symbol
from penstock.broker_core.amqp_plane.loop.interest import AWAITS
from penstock.broker_core.client.flight import Client as FlightClient

from ..flight.helpers import browse
from ..journal.lying_disk import LyingDisk
from ..service.helpers import enqueue
from .frames import message
from .harness import Stage, stage
from .library_client import PATIENCE_S, Client
from .test_consuming import Consumer

#: By name: the type and options of a queue, and a message that it stores; then an immediate message would have side effects.
QUEUES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a plain queue": ("fifo", {}, {}),
    "a duplicate window": ("fifo", {"duplicateWindow": 10}, {"properties": Properties(message_id="other")}),
    "a last value": ("lastvalue", {"key": "subject", "maxKeys": 1}, {"properties": Properties(subject="k")}),
    "a full ring": ("fifo", {"maxMessages": 1, "overflow": "ring"}, {}),
    "a full queue": ("fifo", {"maxMessages": 1, "overflow": "reject"}, {}),
    "groups": ("fifo", {"groups": "held"}, {"properties": Properties(group_id="g")}),
    "priorities": ("priority", {}, {}),
}
SELECTOR = Symbol("apache.org:selector-filter:string")
SENT = Properties(message_id="mine", subject="k", group_id="mine")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, disk=LyingDisk()) as result:
        yield result


class Producer:
    """A connection with a link that sends to q."""

    def __init__(self, client: Client, capability: str | None = "immediate") -> None:
        self.client = client
        client.on_event = self._on_event
        self.outcomes: list[type[Any]] = []
        self.link: Sender = client.connection.begin().sender(capability or "ordinary")
        self.link.attach(source=Source(), target=Target(address="q", capabilities=(capability,) if capability else ()))
        client.until(lambda: self.link.link_credit > 0, "credit")

    def _on_event(self, event: Any) -> None:
        assert not isinstance(event, (events.Detached, events.Closed, events.Violated)), event
        if isinstance(event, events.Disposed):
            self.outcomes += [type(event.state) for _ in event.deliveries]

    def send(self, **sections: Any) -> type[Any]:
        """Send one message; return its outcome."""
        count = len(self.outcomes)
        self.link.send_many([b"%d" % count], [message(b"m", **sections)])
        self.client.until(lambda: len(self.outcomes) > count, "the outcome")
        return self.outcomes[-1]


def everything(made: Stage) -> Any:
    """Return the broker's stored state and the end of its log."""
    made.settle()
    with made.service.turn() as turn:
        meta, _ = turn.state.snapshot()
        return meta, made.service.journal.end


@pytest.mark.parametrize("kind", QUEUES)
def test_a_refused_message_leaves_no_trace(made: Stage, kind: str) -> None:
    """Q4: without a consumer, with one that has no credit, and with one whose selector does not match."""
    type_, options, sections = QUEUES[kind]
    made.declare("q", type=type_, **options)
    assert Producer(made.client("ordinary"), None).send(**sections) is Accepted
    producer = Producer(made.client("immediate"))
    for step in ("no consumer", "a consumer without credit", "a consumer whose selector does not match"):
        if step == "a consumer without credit":
            consumer = Consumer(made, "consumer", filter={Symbol("s"): Described(SELECTOR, "kind = 'other'")})
        elif step == "a consumer whose selector does not match":
            consumer.grant(5)
        before = everything(made)
        assert producer.send(properties=SENT) is Released
        assert everything(made) == before, f"{kind}, {step}"


def test_a_delayed_message_cannot_be_delivered_immediately(made: Stage) -> None:
    """Q4 Q18: a waiting consumer does not change that."""
    made.declare("q")
    consumer, producer = Consumer(made, "consumer").grant(5), Producer(made.client("immediate"))
    before = everything(made)
    assert producer.send(message_annotations={Symbol("x-opt-delivery-delay"): 60_000}) is Released
    assert everything(made) == before
    assert producer.send() is Accepted
    consumer.until(1)


def test_a_selector_that_is_not_evaluated_yet_has_precedence(made: Stage) -> None:
    """Q4 Q8: the decision waits for a link that may want an earlier message, which then has the link's credit."""
    made.declare("q")
    gate = threading.Event()
    made.plane.commit_loop.acquisitions.evaluation._thread.submit(gate.wait, PATIENCE_S)  # evaluations wait behind this
    made.service.submit(enqueue("q", b"earlier"))
    consumer = Consumer(made, "consumer", filter={Symbol("s"): Described(SELECTOR, "JMSPriority = 4")})
    consumer.link.grant(1)
    consumer.client.pump()
    interest = made.plane.commit_loop.acquisitions._queues["q"]
    made.until(lambda: [link.standing for link in list(interest.members.values())] == [AWAITS], "the link awaits an evaluation")
    producer = Producer(made.client("immediate"))
    producer.link.send_many([b"0"], [message(b"m")])
    producer.client.pump()
    made.until(lambda: made.plane.commit_loop._immediate, "the message waits for the decision")
    gate.set()
    producer.client.until(lambda: bool(producer.outcomes), "the outcome")
    assert producer.outcomes == [Released]
    consumer.until(1)
    assert made.counts("q") == {"acquired": 1} or made.counts("q") == {"archived": 1}


def test_links_of_a_connection_share_its_limit(tmp_path: Path) -> None:
    """Q4 C5: two links of one session with credit for ten, and a limit of three in all."""
    with stage(tmp_path, disk=LyingDisk(), amqp_max_unsettled=3, amqp_max_unsettled_per_session=3) as made:
        made.declare("q")
        client = made.client("two links")
        got: list[int] = []
        client.on_event = lambda event: (
            isinstance(event, events.Delivered)
            and got.extend(int.from_bytes(delivery.tag, "big") for delivery in event.deliveries)
        )
        session = client.connection.begin()
        for name in ("one", "two"):
            link = session.receiver(name)
            link.attach(source=Source(address="q"), target=Target())
            link.grant(10)
        client.pump()
        made.until(lambda: len(made.plane.commit_loop.acquisitions._queues.get("q", _NOBODY).members) == 2, "both links wait")
        made.settle()
        producer = Producer(made.client("immediate"))
        producer.link.send_many([b"%d" % number for number in range(5)], [message(b"m")] * 5)
        producer.client.until(lambda: len(producer.outcomes) == 5, "the outcomes")
        assert sorted(outcome.__name__ for outcome in producer.outcomes) == ["Accepted"] * 3 + ["Released"] * 2
        client.until(lambda: len(got) == 3, "three messages")
        assert made.counts("q") == {"acquired": 3}


class _NOBODY:
    members: tuple[()] = ()


def test_an_id_is_not_a_duplicate_after_a_refusal_and_a_kill(tmp_path: Path) -> None:
    """Q4 Q19: refused with *released*, the broker killed, sent again as an ordinary message: stored, and there after a kill."""
    broker = Broker(tmp_path / "data").start()
    broker.declare("q", duplicateWindow=100)
    host, _, port = broker.amqp_url.partition("://")[2].rpartition(":")
    for life, capability in enumerate(("immediate", "immediate", None)):
        producer = Producer(Client((host, int(port)), f"life {life}"), capability)
        assert producer.send(properties=SENT) is (Released if capability else Accepted)
        if capability is None:
            assert producer.send(properties=SENT) is Accepted, "this one is a duplicate"
        broker.kill()
        producer.client.drop(quietly=True)
        broker.start()
    with FlightClient(broker.url) as flight:
        assert [row["sequenceNumber"] for row in browse(flight, "q")] == [0]
    broker.stop()
