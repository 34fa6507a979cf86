"""C1, C4, W6: everybody who waits gets his share, an arrival always reaches somebody, and one slow peer slows nobody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.amqp import Accepted, Modified, Receiver, Sender, Source, Target, events
from broker_core.amqp.states import LinkState
from broker_core.amqp_plane.turn import HELPING_MESSAGES

from ..broker.helpers import enqueue
from ..journal.lying_disk import LyingDisk
from .frames import message
from .harness import Stage, stage
from .library_client import Client

KIB = 1024


class Crowd:
    """Connections with sessions with links, all receiving from one queue; deliveries are accepted when `accepts`."""

    def __init__(self, made: Stage, connections: int, sessions: int, links: int, **attach: Any) -> None:
        self.stage = made
        self.accepts = True
        self.got: dict[Receiver, list[int]] = {}
        self.clients: list[Client] = []
        for number in range(connections):
            client = made.client(f"crowd {number}")
            client.on_event = self._on_event
            self.clients.append(client)
            for _ in range(sessions):
                session = client.connection.begin()
                for at in range(links):
                    link = session.receiver(f"{len(self.got)} {at}")
                    link.attach(source=Source(address="q"), target=Target(), **attach)
                    self.got[link] = []
            client.until(self._attached, "the answers to the attaches")

    def _attached(self) -> bool:
        return all(link.state is LinkState.ATTACHED for link in self.got)

    def _on_event(self, event: Any) -> None:
        assert not isinstance(event, (events.Violated, events.Detached, events.Closed, events.Lost)), event
        if isinstance(event, events.Delivered):
            self.got[event.link] += [int.from_bytes(delivery.tag, "big") for delivery in event.deliveries]
            if self.accepts:
                event.link.session.dispose(event.deliveries, Accepted())

    def grant(self, credit: int) -> None:
        for link in self.got:
            link.grant(credit)
        for client in self.clients:
            client.pump()

    @property
    def total(self) -> int:
        return sum(map(len, self.got.values()))

    def until(self, total: int) -> None:
        """Until all of them together have got so many."""

        def pump() -> bool:
            for client in self.clients:
                while client.pump():
                    pass
            return self.total >= total

        self.stage.until(pump, f"{total} messages, not {self.total}")
        assert self.total == total


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, disk=LyingDisk()) as result:
        result.declare("q")
        yield result


def publish(made: Stage, count: int, size: int = 8) -> None:
    made.service.submit(enqueue("q", *[b"x" * size] * count))


def test_links_of_all_sessions_and_connections_get_their_share(made: Stage) -> None:
    """C4: 24 links that all want more than there is; nobody gets more than a helping beyond anybody else."""
    crowd = Crowd(made, connections=3, sessions=2, links=4)
    publish(made, 24 * HELPING_MESSAGES)
    crowd.grant(24 * HELPING_MESSAGES)
    crowd.until(24 * HELPING_MESSAGES)
    shares = [len(numbers) for numbers in crowd.got.values()]
    assert min(shares) > 0, "nobody goes without"
    taken = Counter(number for numbers in crowd.got.values() for number in numbers)
    assert set(taken) == set(range(24 * HELPING_MESSAGES)), "each message goes to one of them"
    assert max(taken.values()) == 1


def test_a_message_at_a_time_goes_round(made: Stage) -> None:
    """C1: who was notified and took goes to the tail, so that single arrivals reach one link after the other."""
    crowd = Crowd(made, connections=2, sessions=2, links=3)
    crowd.grant(100)
    made.settle()
    for number in range(36):
        publish(made, 1)
        crowd.until(number + 1)
        made.settle()
    assert {len(numbers) for numbers in crowd.got.values()} == {3}


def test_one_arrival_of_many_reaches_all_who_wait(made: Stage) -> None:
    """C4: one notification is handed on until the messages or the links are used up."""
    crowd = Crowd(made, connections=4, sessions=1, links=25)
    crowd.grant(1)
    made.settle()
    publish(made, 60)
    crowd.until(60)
    publish(made, 60)
    crowd.until(100)
    assert {len(numbers) for numbers in crowd.got.values()} == {1}
    assert made.counts("q")["available"] == 20


def test_who_may_not_have_it_hands_it_on(made: Stage) -> None:
    """C1: links that called a message undeliverable hand the notification on, and then sleep: no turn is spent on nothing."""
    crowd = Crowd(made, connections=1, sessions=1, links=3)
    crowd.accepts = False
    refused = []

    def refuse(event: Any) -> None:
        if isinstance(event, events.Delivered):
            refused.append(event.link)
            event.link.session.dispose(event.deliveries, Modified(undeliverable_here=True))

    client = crowd.clients[0]
    client.on_event = refuse
    crowd.grant(10)
    publish(made, 1)
    client.until(lambda: len(refused) == 3, "each of the three has refused it")
    assert len(set(refused)) == 3
    client.pump()
    made.until(lambda: made.counts("q") == {"available": 1}, "nobody holds it")
    made.settle()  # it comes to rest: a loop of links that wake each other would not
    late = Crowd(made, connections=1, sessions=1, links=1)
    late.grant(1)
    late.until(1)


def test_waiting_links_that_end_are_forgotten(made: Stage) -> None:
    """What waited for messages and went leaves nothing behind, though no message ever came."""
    client = made.client("comes and goes")
    session = client.connection.begin()
    for number in range(50):
        link = session.receiver(f"link {number}")
        link.attach(source=Source(address="q", distribution_mode="copy" if number % 2 else None), target=Target())
        link.grant(10)
        client.until(lambda link=link: link.state is LinkState.ATTACHED, "the answer to the attach")  # type: ignore[misc]
        made.settle()
        link.detach()
        client.until(lambda link=link: link.state is LinkState.DETACHED, "the answer to the detach")  # type: ignore[misc]
    made.settle()
    turns = made.plane.turns
    assert not any(turns._interested.values())
    assert not any(turns._browsers.values())
    assert not any(turns._rings.values())


def test_a_socket_that_is_not_read_holds_nobody_up(made: Stage) -> None:
    """W6: a peer with credit that stops reading gets what its socket takes; all the rest goes to those who read."""
    stuck = made.client("stuck", receive_buffer=4 * KIB)
    session = stuck.connection.begin()
    link = session.receiver("stuck")
    link.attach(source=Source(address="q"), target=Target())
    stuck.until(lambda: link.state is LinkState.ATTACHED, "the answer to the attach")
    link.grant(100_000)
    stuck.pump()
    stuck.reads = False
    made.settle()
    publish(made, 2000, 16 * KIB)  # far more than buffers hold
    made.until(lambda: any(wire.stalled for wire in made.plane._wires), "the socket is full")
    crowd = Crowd(made, connections=2, sessions=1, links=2)
    crowd.grant(3000)
    held = made.counts("q")["acquired"]
    crowd.until(2000 - held)
    publish(made, 500, 16 * KIB)
    crowd.until(2500 - held)
    # It reads again: what was sent to it is there, and it goes on.
    stuck.reads = True
    stuck.until(lambda: len(link.unsettled) == held, "what it was sent")
    for client in crowd.clients:
        client.drop()
    made.settle()
    publish(made, 3)
    stuck.until(lambda: len(link.unsettled) == held + 3, "what came later")


def test_what_a_stuck_peer_held_goes_to_others_when_it_is_gone(made: Stage) -> None:
    stuck = made.client("stuck", receive_buffer=4 * KIB)
    link = stuck.connection.begin().receiver("stuck")
    link.attach(source=Source(address="q"), target=Target())
    stuck.until(lambda: link.state is LinkState.ATTACHED, "the answer to the attach")
    link.grant(100_000)
    stuck.pump()
    stuck.reads = False
    publish(made, 1000, 16 * KIB)
    made.until(lambda: any(wire.stalled for wire in made.plane._wires), "the socket is full")
    crowd = Crowd(made, connections=1, sessions=1, links=1)
    crowd.grant(5000)
    stuck.drop()
    crowd.until(1000)


def test_senders_and_receivers_of_many_queues_beside_each_other(made: Stage) -> None:
    """W6: what one queue's links do is nothing to another's."""
    queues = [f"q{number}" for number in range(5)]
    made.declare(*queues)
    client = made.client("all")
    got: Counter[str] = Counter()

    def on_event(event: Any) -> None:
        assert not isinstance(event, (events.Violated, events.Detached)), event
        if isinstance(event, events.Delivered):
            got[event.link.name] += len(event.deliveries)
            event.link.session.dispose(event.deliveries, Accepted())

    client.on_event = on_event
    session = client.connection.begin()
    senders: list[Sender] = []
    for queue in queues:
        receiver, sender = session.receiver(queue), session.sender(queue)
        receiver.attach(source=Source(address=queue), target=Target())
        receiver.grant(1000)
        sender.attach(source=Source(), target=Target(address=queue))
        senders.append(sender)
    client.until(lambda: all(sender.link_credit for sender in senders), "credit to send")
    for round_ in range(10):
        for sender in senders:
            tags = [b"%d" % number for number in range(10 * round_, 10 * round_ + 10)]
            sender.send_many(tags, [message(b"m")] * 10)
        client.pump()
    client.until(lambda: all(got[queue] == 100 for queue in queues), f"100 messages of each queue, not {got}")
