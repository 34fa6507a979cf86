"""C2 C4 Q4 Q5 Q22 in AMQP: priorities, exclusive and single consumers, messages that are delivered immediately or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Accepted, Condition, Receiver, Released, Sender, Source, Target, events
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.states import LinkState
from penstock.broker_core.amqp.types import Described, Symbol
from penstock.broker_core.amqp_plane.loop.interest import INTERESTED
from penstock.broker_core.amqp_plane.loop.offers import QUANTUM_MESSAGES
from penstock.broker_core.engine import commands as c

from ..journal.lying_disk import LyingDisk
from ..service.helpers import enqueue
from .frames import message
from .harness import Stage, stage
from .library_client import Client


class Consumer:
    """A connection with a link that receives from q, and accepts."""

    def __init__(self, made: Stage, name: str, capabilities: tuple[str, ...] = (), filter: Any = None, **properties: Any) -> None:
        self.made = made
        self.client: Client = made.client(name)
        self.client.on_event = self._on_event
        self.got: list[int] = []
        self.refused: str | None = None
        self.link: Receiver = self.client.connection.begin().receiver(name)
        source = Source(address="q", capabilities=capabilities, filter=filter)
        self.link.attach(source=source, target=Target(), properties=properties or None)
        self.client.until(lambda: self.refused is not None or self.link.state is LinkState.ATTACHED, "an answer to the attach")

    def _on_event(self, event: Any) -> None:
        if isinstance(event, events.Detached):
            self.refused = event.error and str(event.error.condition)
        if isinstance(event, events.Delivered):
            self.got += [int.from_bytes(delivery.tag, "big") for delivery in event.deliveries]
            event.link.session.dispose(event.deliveries, Accepted())

    def grant(self, credit: int) -> Consumer:
        """Grant credit, and wait until the broker has it and this link waits."""
        self.link.grant(credit)
        self.client.pump()
        self.made.until(self.waits, "the link waits for messages")
        return self

    def waits(self) -> bool:
        links = list(self.made.plane.commit_loop.acquisitions._queues["q"].members.values())
        return any(link.link.name == self.link.name and link.standing == INTERESTED for link in links)

    def until(self, count: int) -> None:
        self.client.until(lambda: len(self.got) >= count, f"{count} messages")

    def detach(self) -> None:
        self.link.detach(closed=True)
        self.client.until(lambda: self.link.state is LinkState.DETACHED, "the answer to the detach")


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    with stage(tmp_path, disk=LyingDisk(), **getattr(request, "param", {})) as result:
        result.declare("q")
        yield result


def publish(made: Stage, count: int) -> None:
    made.service.submit(enqueue("q", *[b"x"] * count))


def declare_again(made: Stage, consumers: str) -> None:
    made.service.submit(c.DeleteQueue("q"), c.DeclareQueue("q", options={"consumers": consumers}))


# --- priorities


@pytest.mark.parametrize("name", ["priority", "rabbitmq:priority"])
def test_a_lower_priority_gets_what_the_higher_has_no_credit_for(made: Stage, name: str) -> None:
    """C2: independent of the order of arrival and of the waiting times."""
    low, high = Consumer(made, "low").grant(100), Consumer(made, "high", **{name: 7}).grant(3)
    assert high.link.remote_attach is not None
    assert (high.link.remote_attach.properties or {}).get(name, 7) == 7
    for number in range(3):
        publish(made, 1)
        high.until(number + 1)
    made.settle()
    publish(made, 2)
    low.until(2)
    high.grant(1)
    publish(made, 3)
    high.until(4)
    low.until(4)
    assert (high.got, low.got) == ([0, 1, 2, 5], [3, 4, 6, 7])


def test_a_priority_that_is_no_number_is_refused_by_name(made: Stage) -> None:
    assert Consumer(made, "odd", priority="high").refused == Condition.INVALID_FIELD


# --- exclusive and single


@pytest.mark.parametrize("how", ["property", "capability", "queue"])
def test_an_exclusive_consumer_is_alone(made: Stage, how: str) -> None:
    """Q5: a second one is refused with *resource-locked*, and accepted after any end of the first."""
    declare_again(made, "exclusive" if how == "queue" else "all")
    asks: dict[str, Any] = {"property": {"exclusive": True}, "capability": {"capabilities": ("exclusive",)}, "queue": {}}[how]
    earliest = Consumer(made, "other")
    assert Consumer(made, "early", **asks).refused == Condition.RESOURCE_LOCKED
    earliest.detach()
    first = Consumer(made, "first", **asks).grant(10)
    assert Consumer(made, "second").refused == Condition.RESOURCE_LOCKED
    publish(made, 2)
    first.until(2)
    first.client.drop()
    made.settle()
    made.until(lambda: not made.service.state.queues["q"].consumers.subscriptions, "the broker notices")
    late = Consumer(made, "late").grant(10)
    publish(made, 1)
    late.until(1)


def test_who_only_looks_is_nobody_s_rival(made: Stage) -> None:
    """Q5: a browser is admitted besides an exclusive consumer, and is never exclusive itself. The answer shows that."""
    first = Consumer(made, "first", ("exclusive",)).grant(1)
    source = first.link.remote_attach.source  # type: ignore[union-attr]
    browser = made.client("browser").connection.begin().receiver("b")
    asked = Source(address="q", distribution_mode="copy", capabilities=("exclusive",))
    browser.attach(source=asked, target=Target(), properties={"exclusive": True})
    client = made._clients[-1]
    client.until(lambda: browser.state is LinkState.ATTACHED, "the answer to the attach")
    assert isinstance(source, Source)
    assert source.capabilities == ("exclusive",)
    answer = browser.remote_attach
    assert answer is not None
    assert isinstance(answer.source, Source)
    assert answer.source.capabilities == ()
    assert answer.properties == {"exclusive": False}


def test_the_next_goes_on_when_the_single_active_one_ends(made: Stage) -> None:
    """Q22: no other consumer is woken before. The next one receives the remaining messages in order; later ones still wait."""
    declare_again(made, "single")
    first, plain, high = (Consumer(made, name, **asks) for name, asks in (("a", {}), ("b", {}), ("c", {"priority": 1})))
    for consumer in (first, plain, high):
        consumer.grant(3)
    publish(made, 5)
    first.until(3)
    made.until(lambda: first.client.pump() or made.counts("q").get("archived") == 3, "it has accepted them")
    made.settle()
    assert (plain.got, high.got) == ([], []), "the active one has no credit, and is active"
    first.client.drop()
    high.until(2)
    publish(made, 3)
    high.until(3)
    high.detach()
    plain.until(2)
    assert first.got + high.got + plain.got == list(range(8))


# --- immediate


class Producer:
    """A connection that sends to q, or to an anonymous terminus, *immediate* or not."""

    def __init__(self, made: Stage, address: str | None = "q", capabilities: tuple[str, ...] = ("immediate",)) -> None:
        self.client: Client = made.client(f"producer {address} {capabilities}")
        self.client.on_event = self._on_event
        self.outcomes: dict[bytes, type[Any]] = {}
        self.link: Sender = self.client.connection.begin().sender("s")
        self.link.attach(source=Source(), target=Target(address=address, capabilities=capabilities))
        self.client.until(lambda: self.link.link_credit > 0, "credit")

    def _on_event(self, event: Any) -> None:
        assert not isinstance(event, (events.Detached, events.Closed, events.Violated)), event
        if isinstance(event, events.Disposed):
            self.outcomes.update((delivery.tag, type(event.state)) for delivery in event.deliveries)

    def send(self, *tags: bytes, to: str | None = None, settled: bool = False) -> None:
        body = message(b"m", properties=Properties(to=to)) if to else message(b"m")
        self.link.send_many(list(tags), [body] * len(tags), settled=settled)
        self.client.pump()

    def until(self, *tags: bytes) -> list[type[Any]]:
        self.client.until(lambda: all(tag in self.outcomes for tag in tags), "the outcomes")
        return [self.outcomes[tag] for tag in tags]


def test_what_nobody_can_take_at_once_is_released_and_not_kept(made: Stage) -> None:
    """Q4: as many as consumers have credit for are accepted, and the others are not in the queue."""
    producer = Producer(made)
    assert isinstance(producer.link.remote_attach.target, Target)  # type: ignore[union-attr]
    producer.send(b"1", b"2")
    assert producer.until(b"1", b"2") == [Released, Released]
    consumer = Consumer(made, "consumer").grant(2)
    producer.send(b"3", b"4", b"5")
    assert producer.until(b"3", b"4", b"5") == [Accepted, Accepted, Released]
    consumer.until(2)
    made.until(lambda: consumer.client.pump() or made.counts("q") == {"archived": 2}, "nothing else was stored")


def test_what_waits_before_it_is_first(made: Stage) -> None:
    """Q4: a waiting ordinary message uses the credit first; ordinary and immediate messages of one cycle stay separate."""
    publish(made, 2)
    ordinary, at_once = Producer(made, capabilities=()), Producer(made)
    at_once.send(b"i1")
    assert at_once.until(b"i1") == [Released]
    consumer = Consumer(made, "consumer")
    consumer.link.grant(3)
    consumer.until(2)
    ordinary.send(b"o1")
    consumer.until(3)
    at_once.send(b"i2")
    ordinary.send(b"o2")
    assert at_once.until(b"i2") == [Released]
    assert ordinary.until(b"o1", b"o2") == [Accepted, Accepted]
    made.until(lambda: consumer.client.pump() or made.counts("q") == {"available": 1, "archived": 3}, "the ordinary one stays")


def test_a_consumer_with_a_selector_takes_at_once_what_it_matches(made: Stage) -> None:
    """Q4 Q8: the sender is answered when the selectors of all waiting consumers are evaluated, and not before."""
    wants = Described(Symbol("apache.org:selector-filter:string"), "kind = 'a'")
    consumer = Consumer(made, "consumer", filter={Symbol("selector"): wants}).grant(10)
    producer = Producer(made)
    for number, kind in enumerate("abba"):
        body = message(b"m", application_properties={"kind": kind})
        producer.link.send_many([b"%d" % number], [body])
        producer.client.pump()
    assert producer.until(b"0", b"1", b"2", b"3") == [Accepted, Released, Released, Accepted]
    consumer.until(2)
    assert consumer.got == [0, 1], "released messages take no sequence number"


def test_an_anonymous_and_a_settled_sender_may_ask_for_it(made: Stage) -> None:
    """Q4: by the property `to`. A sender that settles its messages is not answered, and the message is not kept either."""
    producer = Producer(made, address=None)
    producer.send(b"1", to="q")
    assert producer.until(b"1") == [Released]
    settled = Producer(made)
    settled.send(b"2", b"3", settled=True)
    settled.send(b"4")
    assert settled.until(b"4") == [Released]
    assert made.counts("q") == {}, "nothing was stored"


def test_all_who_can_take_are_asked_however_many_they_are(made: Stage) -> None:
    """Q4: twenty links with a credit of one take twenty messages of one turn."""
    client = made.client("many")
    session = client.connection.begin()
    links = []
    for number in range(20):
        links.append(session.receiver(f"l{number}"))
        links[-1].attach(source=Source(address="q"), target=Target())
        links[-1].grant(1)
    made.until(lambda: client.pump() or standing(made).count(INTERESTED) == 20, "all wait")
    producer = Producer(made)
    tags = [b"%02d" % number for number in range(22)]
    producer.send(*tags)
    assert producer.until(*tags) == [Accepted] * 20 + [Released] * 2


def test_more_than_one_quantum_is_taken_at_once(made: Stage) -> None:
    """Q4: a consumer with credit for all messages of a cycle gets them all, although a cycle otherwise gives it one quantum."""
    consumer = Consumer(made, "consumer").grant(QUANTUM_MESSAGES + 200)
    producer = Producer(made)
    tags = [b"%04d" % number for number in range(QUANTUM_MESSAGES + 100)]
    producer.send(*tags)
    assert set(producer.until(*tags)) == {Accepted}
    consumer.until(len(tags))


def standing(made: Stage) -> list[int]:
    interest = made.plane.commit_loop.acquisitions._queues.get("q")
    return [link.standing for link in list(interest.members.values())] if interest is not None else []


# --- fairness among the links of a connection


@pytest.mark.parametrize("made", [{"amqp_max_unsettled": 1, "amqp_max_unsettled_per_connection": 1}], indirect=True)
def test_links_that_share_their_connections_limit_take_turns(made: Stage) -> None:
    """C4: with room for one message, two links on two queues get one each in turn; none waits for ever."""
    made.declare("r")
    client = made.client("both")
    got: list[str] = []

    def on_event(event: Any) -> None:
        if isinstance(event, events.Delivered):
            got.append(event.link.name)
            event.link.session.dispose(event.deliveries, Accepted())

    client.on_event = on_event
    session = client.connection.begin()
    for queue in ("q", "r"):
        made.service.submit(enqueue(queue, *[b"x"] * 6))
    for queue in ("q", "r"):
        link = session.receiver(queue)
        link.attach(source=Source(address=queue), target=Target())
        link.grant(10)
    client.until(lambda: len(got) == 12, "all messages")
    assert 2 <= got[:6].count("r") <= 4
