"""2.6.13: a sender and a receiver that lose their connections at any moment, and resume: every message comes exactly once.

Both remember their unsettled deliveries, as 2.6.13 demands: the sender until it receives an outcome (mode second), the receiver
until the broker has settled its outcome. The seed is in the test's name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.broker_core.amqp import Accepted, Source, Target, decode_message, events
from penstock.broker_core.amqp.performatives import RCV_SECOND, TERMINAL
from penstock.broker_core.amqp.states import LinkState

from .frames import message
from .harness import Stage, stage
from .library_client import Client
from .scenarios_detached import MINUTE

STEPS = 150


class End(ABC):
    """One end of one link, which outlives its connections. `unsettled`: its deliveries by tag."""

    client: Client
    session: Any
    link: Any

    def __init__(self, made: Stage, name: str) -> None:
        self.stage, self.name = made, name
        self.unsettled: dict[bytes, Any] = {}

    def connect(self) -> None:
        self.client = self.stage.client(self.name)
        self.client.on_event = self.on_event
        self.session = self.client.connection.begin()
        self.attach(dict(self.unsettled))

    def lose(self, random: Random) -> None:
        """Lose the connection, with or without frames under way in both directions."""
        if random.random() < 0.5:
            self.client.pump()
        self.client.drop()
        self.connect()

    def attached(self) -> None:
        link = self.link
        self.client.until(lambda: link.state is LinkState.ATTACHED, "the answer to an attach")

    @abstractmethod
    def attach(self, unsettled: dict[bytes, Any] | None) -> None:
        """Attach the link with its unsettled map."""

    @abstractmethod
    def on_event(self, event: Any) -> None:
        """Handle an event of the connection."""


class Producer(End):
    def __init__(self, made: Stage) -> None:
        super().__init__(made, "producer")
        self.sent = 0
        self._waiting: list[tuple[bytes, int]] = []

    def attach(self, unsettled: dict[bytes, Any] | None) -> None:
        self.link = self.session.sender("to q")
        target = Target(address="q", **MINUTE)  # type: ignore[arg-type]
        self.link.attach(source=Source(), target=target, rcv_settle_mode=RCV_SECOND, unsettled=unsettled)
        self.attached()
        self.client.until(lambda: self.link.link_credit > 0, "credit")
        theirs = self.link.remote_attach.unsettled or {}
        for tag in list(unsettled or ()):
            if isinstance(theirs.get(tag), TERMINAL):
                self.link.send(tag, b"", resume=True, settled=True, state=theirs[tag])
                del self.unsettled[tag]
            else:
                self._send(tag)

    def send(self) -> None:
        if self.link.can_send:
            tag = b"m%d" % self.sent
            self.sent += 1
            self.unsettled[tag] = None
            self._send(tag)

    def _send(self, tag: bytes) -> None:
        self.link.send(tag, message(tag))

    def on_event(self, event: Any) -> None:
        if isinstance(event, events.Disposed):
            assert event.state == Accepted()
            self.session.dispose(event.deliveries, event.state)
            for delivery in event.deliveries:
                self.unsettled.pop(delivery.tag, None)
        assert not isinstance(event, (events.Violated, events.Closed, events.Ended)), event


class Consumer(End):
    def __init__(self, made: Stage) -> None:
        super().__init__(made, "consumer")
        self.processed: list[bytes] = []
        self.held: dict[bytes, Any] = {}  # messages to be processed: tag → delivery

    def attach(self, unsettled: dict[bytes, Any] | None) -> None:
        before, self.link = getattr(self, "link", None), self.session.receiver("from q")
        source = Source(address="q", **MINUTE)  # type: ignore[arg-type]
        self.link.attach(source=source, target=Target(), unsettled=unsettled)
        if unsettled is None:
            self.link.adopt(before)
        else:
            self.held.clear()
        self.attached()
        if unsettled is not None:
            theirs = self.link.remote_attach.unsettled or {}
            for tag in [tag for tag in self.unsettled if tag not in theirs]:  # the sender has settled it, or sends it again
                del self.unsettled[tag]

    def on_event(self, event: Any) -> None:
        if isinstance(event, events.Delivered):
            for delivery in event.deliveries:
                if delivery.settled:
                    assert delivery.resumed
                    assert self.unsettled.pop(delivery.tag) == Accepted()
                else:
                    assert delivery.resumed == (delivery.tag in self.unsettled)
                    self.unsettled[delivery.tag] = None
                    self.held[delivery.tag] = delivery
        elif isinstance(event, events.Disposed):
            for delivery in event.deliveries:
                self.unsettled.pop(delivery.tag, None)
        assert not isinstance(event, (events.Violated, events.Closed, events.Ended)), event

    def process(self, random: Random) -> None:
        for tag in random.sample(list(self.held), min(len(self.held), random.randrange(4))):
            delivery = self.held.pop(tag)
            self.processed += decode_message(delivery.payload).data
            self.unsettled[tag] = Accepted()
            self.session.dispose([delivery], Accepted(), settled=False)

    def detach(self) -> None:
        """Detach, and attach again on the same session."""
        link = self.link
        link.detach(closed=False)
        self.client.until(lambda: link.state is LinkState.DETACHED, "the answer to a detach")
        self.attach(None)


@pytest.mark.parametrize("seed", range(4))
def test_every_message_comes_exactly_once(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with stage(tmp_path, fsync="never") as made:
        made.declare("q")
        producer, consumer = Producer(made), Consumer(made)
        producer.connect()
        consumer.connect()
        for _ in range(STEPS):
            act = random.choices(range(7), [30, 20, 25, 3, 4, 6, 20])[0]
            if act == 0:
                producer.send()
            elif act == 1:
                consumer.link.grant(random.randrange(6))
            elif act == 2:
                consumer.process(random)
            elif act == 3:
                producer.lose(random)
            elif act == 4:
                consumer.lose(random)
            elif act == 5:
                consumer.detach()
            else:
                producer.client.pump()
                consumer.client.pump()
        consumer.link.grant(1000)

        def done() -> bool:
            consumer.process(random)
            producer.client.pump()
            return len(consumer.processed) >= producer.sent and not consumer.unsettled and not producer.unsettled

        consumer.client.until(done, "all messages")
        made.settle()
        assert sorted(consumer.processed) == sorted(b"m%d" % number for number in range(producer.sent))
        assert made.counts("q") == {"archived": producer.sent}
