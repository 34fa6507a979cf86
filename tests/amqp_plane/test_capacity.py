"""W5 C4: limits on the unsettled deliveries of a session and a connection: waiting links are served in order, at little cost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Accepted, Receiver, Session, Source, Target, events
from penstock.broker_core.amqp.performatives import SND_SETTLED, Attach, Begin, Detach, End, Flow, Transfer
from penstock.broker_core.amqp.states import LinkState
from penstock.broker_core.amqp_plane.links.outgoing_link import OutgoingLink
from penstock.broker_core.amqp_plane.loop.batch import LARGE_COMMIT

from ..journal.lying_disk import LyingDisk
from ..service.helpers import enqueue
from .frames import begin, detach, flow, receives, transfer
from .harness import Stage, stage
from .library_client import Client
from .scenarios_detached import MINUTE

CONNECTION = {"amqp_max_unsettled": 2, "amqp_max_unsettled_per_connection": 2}
SESSION = {"amqp_max_unsettled": 2, "amqp_max_unsettled_per_session": 2}


class Many:
    """One connection with many links, spread over its sessions, and their unsettled deliveries."""

    def __init__(self, made: Stage, sessions: int) -> None:
        self.made = made
        self.client: Client = made.client("many")
        self.client.on_event = self._on_event
        self.sessions: list[Session] = [self.client.connection.begin() for _ in range(sessions)]
        self.links: list[Receiver] = []
        self.open: list[Any] = []
        self.got: Counter[Receiver] = Counter()

    def _on_event(self, event: Any) -> None:
        assert not isinstance(event, (events.Violated, events.Detached, events.Closed, events.Lost)), event
        if isinstance(event, events.Delivered):
            self.open += event.deliveries
            self.got[event.link] += len(event.deliveries)

    def attach(self, count: int, queue: str = "q", credit: int = 1000) -> list[Receiver]:
        new = []
        for _ in range(count):
            link = self.sessions[len(self.links) % len(self.sessions)].receiver(f"{len(self.links)}")
            link.attach(source=Source(address=queue), target=Target())
            link.grant(credit)
            new.append(link)
            self.links.append(link)
        self.client.until(lambda: all(link.state is LinkState.ATTACHED for link in new), "the answers to the attaches")
        return new

    def settle(self, state: Any) -> None:
        """Settle the first deliveries."""
        delivery = self.open.pop(0)
        delivery.link.session.dispose([delivery], state)

    def until(self, open: int) -> None:
        self.client.until(lambda: len(self.open) >= open, f"{open} deliveries")
        self.made.settle()
        self.client.pump()
        assert len(self.open) == open


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often links were asked for their capacity."""
    count: Counter[str] = Counter()
    capacity = OutgoingLink.capacity

    def counted(link: OutgoingLink) -> int:
        count["asked"] += 1
        return capacity(link)

    monkeypatch.setattr(OutgoingLink, "capacity", counted)
    return count


@pytest.mark.parametrize("sessions", [1, 8])
@pytest.mark.parametrize("limit", ["amqp_max_unsettled_per_connection", "amqp_max_unsettled_per_session"])
def test_one_delivery_less_wakes_one_link(tmp_path: Path, asked: Counter[str], limit: str, sessions: int) -> None:
    """A hundred links wait for a limit: one settled delivery does not wake all of them, but all of them receive a message."""
    with stage(tmp_path, amqp_max_unsettled=40, **{limit: 40}) as made:
        made.declare("q")
        made.service.submit(enqueue("q", *[b"m"] * 1000))
        many = Many(made, sessions)
        many.attach(100)
        most = 40 * (sessions if limit.endswith("session") else 1)
        many.until(most)
        asked.clear()
        for _ in range(300):
            many.settle(Accepted())
            many.until(most)
        assert asked["asked"] < 300 * 12
        assert min(many.got[link] for link in many.links) >= 1


@pytest.mark.parametrize("limits", [CONNECTION, SESSION])
def test_who_cannot_use_its_turn_hands_it_on(tmp_path: Path, asked: Counter[str], limits: dict[str, int]) -> None:
    """Thirty links of empty queues wait before the one with a message. Each is asked once."""
    with stage(tmp_path, **limits) as made:
        made.declare("q", "empty")
        made.service.submit(enqueue("q", *[b"m"] * 4))
        many = Many(made, 1)
        many.attach(1, credit=2)
        many.until(2)
        many.attach(30, "empty")
        [late] = many.attach(1)
        made.settle()
        asked.clear()
        many.settle(Accepted())
        many.client.until(lambda: bool(many.got[late]), "the message of the last one")
        made.settle()
        assert asked["asked"] < 31 * 4


@pytest.mark.parametrize("limits", [CONNECTION, SESSION])
@pytest.mark.parametrize("resumable", [False, True])
@pytest.mark.parametrize("closed", [False, True])
def test_the_end_of_a_link_is_capacity_for_others(tmp_path: Path, limits: dict[str, int], resumable: bool, closed: bool) -> None:
    source = Source(address="q", **(MINUTE if resumable else {"expiry_policy": "link-detach"}))  # type: ignore[arg-type]
    with stage(tmp_path, **limits) as made:
        made.declare("q")
        made.service.submit(enqueue("q", *[b"m"] * 4))
        a = made.script().usual()
        a.receiver(credit=2, source=source)
        a.expect_message()
        a.expect_message()
        a.receiver(credit=2, handle=1, name="waits")
        a.nothing()
        a.send(detach(0, closed=closed))
        if resumable and not closed:
            a.expect(Detach)
            a.nothing()  # its messages are still there
            return
        assert Counter(map(type, a.read(3))) == {Detach: 1, Transfer: 2}


@pytest.mark.parametrize("violated", [False, True])
def test_the_end_of_a_session_is_capacity_for_others(tmp_path: Path, violated: bool) -> None:
    """Also if its link lives on with its messages: its session can no longer settle them."""
    with stage(tmp_path, **CONNECTION) as made:
        made.declare("q")
        made.service.submit(enqueue("q", *[b"m"] * 4))
        a = made.script().usual()
        a.begin(1)
        a.send(receives(name="keep", source=Source(address="q", **MINUTE)), flow(0, 2), channel=1)  # type: ignore[arg-type]
        a.expect(Attach)
        a.expect_message()
        a.expect_message()
        a.receiver(credit=2, name="waits")
        a.nothing()
        a.send(detach(7) if violated else End(), channel=1)
        assert Counter(map(type, a.read(3))) == {End: 1, Transfer: 2}
        made.settle()
        assert len(made.plane.registry) == 1


def test_credit_that_is_taken_back_is_capacity_for_others(tmp_path: Path) -> None:
    """Messages that wait for the session's window go back if their link withdraws its credit."""
    with stage(tmp_path, **CONNECTION) as made:
        made.declare("q")
        made.service.submit(enqueue("q", *[b"m"] * 4))
        a = made.script().usual()
        a.send(begin(incoming_window=1), channel=1)
        a.expect(Begin)
        a.send(receives(name="narrow"), flow(0, 2, incoming_window=1), channel=1)
        a.expect(Attach, 1)
        a.expect_message()
        a.receiver(credit=2, name="waits")
        a.nothing()
        a.send(flow(0, 0, count=1, incoming_window=0), channel=1)
        a.expect(Transfer, 0)


def test_what_has_left_settled_is_capacity_for_others(tmp_path: Path) -> None:
    with stage(tmp_path, disk=LyingDisk(), **CONNECTION) as made:
        made.declare("q")
        sender, a = made.script(container_id="sender").usual(), made.script().usual()
        sender.sender()
        a.receiver(name="settled", snd_settle_mode=SND_SETTLED)
        a.receiver(name="waits", handle=1)
        a.send(flow(0, 2, echo=True))
        a.expect(Flow, handle=0)
        made.slow_disk()
        sender.send(*[transfer(number) for number in range(LARGE_COMMIT)])
        made.until(lambda: made.counts("q").get("acquired") == 2, "they wait for the disk")
        a.send(flow(1, 2, echo=True))
        a.expect(Flow, handle=1)
        made.quick_disk()
        handles = [a.expect(Transfer).handle for _ in range(4)]
        assert handles == [0, 0, 1, 1]
