"""C1, C4, W6: each waiting link receives its share, an arrival always reaches a link, and a slow peer delays no other."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Accepted, Modified, Receiver, Released, Sender, Source, Target, events
from penstock.broker_core.amqp.states import LinkState
from penstock.broker_core.amqp_plane.loop import acquisitions
from penstock.broker_core.amqp_plane.loop.interest import INTERESTED
from penstock.broker_core.amqp_plane.loop.offers import QUANTUM_MESSAGES

from ..journal.lying_disk import LyingDisk
from ..service.helpers import enqueue
from .frames import message
from .harness import Stage, stage
from .library_client import Client

KIB = 1024
_NUMBERS = itertools.count()


class Crowd:
    """Connections with sessions with links, all receiving from one queue; deliveries are accepted when `accepts`."""

    def __init__(self, made: Stage, connections: int, sessions: int, links: int, **attach: Any) -> None:
        self.stage = made
        self.accepts = True
        self.got: dict[Receiver, list[int]] = {}
        self.clients: list[Client] = []
        for _ in range(connections):
            client = made.client(f"crowd {next(_NUMBERS)}")
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
        """Wait until all links together have so many messages."""

        def pump() -> bool:
            for client in self.clients:
                while client.pump():
                    pass
            return self.total >= total

        self.stage.until(pump, f"{total} messages, not {self.total}")
        assert self.total == total


@pytest.fixture
def made(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    with stage(tmp_path, disk=LyingDisk(), **getattr(request, "param", {})) as result:
        result.declare("q")
        yield result


def publish(made: Stage, count: int, size: int = 8) -> None:
    made.service.submit(enqueue("q", *[b"x" * size] * count))


def waiting(made: Stage, *queues: str) -> int:
    """Count the links that wait for messages, of all queues or these."""
    by_queue = made.plane.commit_loop.acquisitions._queues
    interests = [by_queue[queue] for queue in queues if queue in by_queue] if queues else list(by_queue.values())
    return sum(link.standing == INTERESTED for interest in interests for link in list(interest.members.values()))


def test_links_of_all_sessions_and_connections_get_their_share(made: Stage) -> None:
    """C4: 24 links that all want more messages than there are: each receives some, each message goes to one of them, in order."""
    crowd = Crowd(made, connections=3, sessions=2, links=4)
    count = 3 * 24 * QUANTUM_MESSAGES
    crowd.accepts = False
    crowd.grant(count)
    made.until(lambda: waiting(made) == 24, "all wait")
    publish(made, count)
    crowd.until(count)
    assert min(map(len, crowd.got.values())) >= QUANTUM_MESSAGES
    assert sorted(number for numbers in crowd.got.values() for number in numbers) == list(range(count))
    assert all(numbers == sorted(numbers) for numbers in crowd.got.values())


def test_a_message_at_a_time_goes_round(made: Stage) -> None:
    """C1: a notified link that took messages goes to the tail, so single arrivals reach one link after the other."""
    crowd = Crowd(made, connections=2, sessions=2, links=3)
    crowd.grant(100)
    made.until(lambda: waiting(made) == 12, "all wait")
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


def test_who_had_no_time_to_look_in_a_turn_looks_in_the_next(made: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """C4: a cycle is bounded, and no link is skipped."""
    monkeypatch.setattr(acquisitions, "LOOKS", 3)
    crowd = Crowd(made, connections=2, sessions=1, links=10)
    crowd.grant(1)
    made.until(lambda: waiting(made) == 20, "all wait")
    publish(made, 25)
    crowd.until(20)
    assert {len(numbers) for numbers in crowd.got.values()} == {1}


def test_who_may_not_have_it_hands_it_on(made: Stage) -> None:
    """C1: links that called a message undeliverable pass the notification on, and then wait without further cycles."""
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
    made.settle()  # the plane becomes idle, so the links do not wake each other endlessly
    late = Crowd(made, connections=1, sessions=1, links=1)
    late.grant(1)
    late.until(1)


def test_what_comes_back_passes_those_who_refused_it(made: Stage) -> None:
    """C1: the first notified link may not take the message, so the next one is asked."""
    crowd = Crowd(made, connections=2, sessions=1, links=1)
    crowd.accepts = False
    (first, second), (a, b) = crowd.clients, crowd.got
    publish(made, 1)
    a.grant(1)
    first.until(lambda: bool(crowd.got[a]), "the message")
    a.session.dispose(list(a.unsettled.values()), Modified(undeliverable_here=True))
    a.grant(10)
    first.pump()
    b.grant(1)
    second.until(lambda: bool(crowd.got[b]), "the message")
    made.settle()
    late = Crowd(made, connections=1, sessions=1, links=1)
    late.grant(1)
    made.until(lambda: waiting(made) == 2, "both wait")
    b.session.dispose(list(b.unsettled.values()), Released())
    second.pump()
    late.until(1)


@pytest.mark.parametrize("made", [{"amqp_max_unsettled": 1, "amqp_max_unsettled_per_connection": 1}], indirect=True)
def test_who_cannot_work_when_his_turn_comes_hands_it_on(made: Stage) -> None:
    """C1: two links of one connection are notified together, and its limit allows one message: the other message goes to the next
    link.
    """
    made.declare("r")
    client = made.client("both")
    got: list[str] = []
    session = client.connection.begin()
    for queue in ("q", "r"):
        link = session.receiver(queue)
        link.attach(source=Source(address=queue), target=Target())
        link.grant(10)
    client.on_event = lambda event: got.append(event.link.name) if isinstance(event, events.Delivered) else None
    made.until(lambda: client.pump() or waiting(made, "q", "r") == 2, "both wait")
    third = made.client("other")
    last = third.connection.begin().receiver("last")
    last.attach(source=Source(address="r"), target=Target())
    last.grant(1)
    made.until(lambda: third.pump() or waiting(made, "r") == 2, "all three wait")
    made.service.submit(enqueue("q", b"x"), enqueue("r", b"x"))
    client.until(lambda: got == ["q"], "the message of the first queue")
    third.until(lambda: bool(last.unsettled), "the message of the second queue")


@pytest.mark.parametrize("made", [{"amqp_max_unsettled": 2, "amqp_max_unsettled_per_connection": 2}], indirect=True)
def test_detaches_that_do_not_close_leave_nothing_behind(made: Stage) -> None:
    """Deliveries of links that expire at the detach no longer count against the connection."""
    client = made.client("comes and goes")
    session = client.connection.begin()
    publish(made, 2)
    for number in range(3):
        link = session.receiver(f"link {number}")
        link.attach(source=Source(address="q", expiry_policy="link-detach"), target=Target())
        link.grant(2)
        client.until(lambda link=link: len(link.unsettled) == 2, "both messages")  # type: ignore[misc]
        link.detach(closed=False)
        client.until(lambda link=link: link.state is LinkState.DETACHED, "the answer to the detach")  # type: ignore[misc]


def test_waiting_links_that_end_are_forgotten(made: Stage) -> None:
    """Links that waited for messages leave no state after their end, even without a message."""
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
    assert not made.plane.commit_loop.acquisitions._queues


def test_a_socket_that_is_not_read_holds_nobody_up(made: Stage) -> None:
    """W6: a peer with credit that stops reading receives as much as its socket takes; other peers receive the rest."""
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
    made.until(lambda: any(wire.stalled for wire in made.plane._accepted), "the socket is full")
    made.settle()
    held = made.counts("q")["acquired"]
    crowd = Crowd(made, connections=2, sessions=1, links=2)
    crowd.grant(3000)
    crowd.until(2000 - held)
    publish(made, 500, 16 * KIB)
    crowd.until(2500 - held)
    # It reads again: the sent messages arrive, and it continues.
    stuck.reads = True
    stuck.until(lambda: len(link.unsettled) == held, "its deliveries")
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
    made.until(lambda: any(wire.stalled for wire in made.plane._accepted), "the socket is full")
    crowd = Crowd(made, connections=1, sessions=1, links=1)
    crowd.grant(5000)
    stuck.drop()
    crowd.until(1000)


def test_senders_and_receivers_of_many_queues_beside_each_other(made: Stage) -> None:
    """W6: the links of one queue do not affect those of another."""
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
