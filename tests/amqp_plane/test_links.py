"""Links with an owner, and messages that not every link can receive: 2.6.1, W3, W6."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core.amqp import Accepted, Released, SaslClient, Source, Target, events
from penstock.broker_core.amqp.performatives import Flow
from penstock.broker_core.amqp.states import LinkState
from penstock.broker_core.amqp_plane.loop.batch import LARGE_COMMIT
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.commands import AlterQueue
from penstock.broker_core.messages import batch_checks
from penstock.broker_core.messages.payloads import store, stored_sizes
from penstock.broker_core.security import Access

from ..engine.conservation import conserved
from ..journal.lying_disk import LyingDisk
from ..security.helpers import user, write
from ..service.helpers import enqueue
from .frames import flow, transfer
from .harness import stage
from .library_client import Client


def test_names_of_another_user_never_meet(tmp_path: Path) -> None:
    """2.6.1: a link's name belongs to its container, and a container to its user: another user's container id steals nothing."""
    users = write(
        tmp_path / "users.json",
        {"ann": user("ann's"), "bob": user("bob's")},
        {"ann": {"q": "send,receive"}, "bob": {"q": "receive"}},
    )
    with stage(tmp_path, disk=LyingDisk(), access=Access(users)) as made:
        made.declare("q")
        links = []
        ended: list[Any] = []
        for name in ("ann", "bob", "ann"):
            client = Client(made.address, "the same", SaslClient(user=name, password=f"{name}'s"))
            made._clients.append(client)
            client.on_event = lambda event, name=name: ended.append((name, event)) if isinstance(event, events.Detached) else None
            link = client.connection.begin().receiver("the same name")
            link.attach(source=Source(address="q"), target=Target())
            client.until(lambda link=link: link.state is LinkState.ATTACHED, "the answer to the attach")  # type: ignore[misc]
            links.append((client, link))
        first = links[0][0]
        first.until(lambda: bool(ended), "the first link of ann's is stolen by the second")
        [(name, event)] = ended
        assert (name, event.error.condition) == ("ann", "amqp:link:stolen")
        for client, link in links[1:]:
            link.grant(1)
            client.pump()
        made.service.submit(enqueue("q", b"1", b"2"))
        for client, link in links[1:]:
            client.until(lambda link=link: len(link.unsettled) == 1, "a message for each that is left")  # type: ignore[misc]


def test_an_open_that_the_peers_frames_do_not_take_is_shorter(tmp_path: Path) -> None:
    """2.4.1: a long name makes a long token. A peer with frames of 512 bytes gets an open without it."""
    name = "a" * 160
    users = write(tmp_path / "users.json", {name: user("a's")}, {name: {"q": "receive"}})
    with stage(tmp_path, disk=LyingDisk(), access=Access(users)) as made:
        made.declare("q")
        for size, has_token in ((65536, True), (512, False)):
            login = SaslClient(user=name, password="a's")
            client = made.client(f"{size}", sasl=login, max_frame_size=size, first_frame_size=size)
            answer = client.connection.remote_open
            assert answer is not None
            assert ("flight-token" in (answer.properties or {})) is has_token


def test_a_user_without_the_right_is_refused_and_learns_nothing(tmp_path: Path) -> None:
    """W3: the answer is the same for an existing and a missing queue, and the connection stays open."""
    users = write(tmp_path / "users.json", {"bob": user("bob's")}, {"bob": {"mine": "receive"}})
    with stage(tmp_path, disk=LyingDisk(), access=Access(users)) as made:
        made.declare("mine", "hers")
        client = made.client("bob's", sasl=SaslClient(user="bob", password="bob's"))
        answers: list[str] = []

        def on_event(event: Any) -> None:
            if isinstance(event, events.Detached):
                assert event.error is not None
                answers.append(f"{event.error.condition} {event.error.description}".replace("hers", "X").replace("none", "X"))
                event.link.detach()

        client.on_event = on_event
        session = client.connection.begin()
        for queue in ("hers", "none"):
            session.receiver(queue).attach(source=Source(address=queue), target=Target())
            client.until(lambda: bool(answers), "a refusal")
        assert answers[0].startswith("amqp:unauthorized-access")
        browser = session.receiver("browser")
        browser.attach(source=Source(address="mine", distribution_mode="copy"), target=Target())
        sender = session.sender("sender")
        sender.attach(source=Source(), target=Target(address="mine"))
        client.until(lambda: len(answers) == 4, "the refusals")
        assert answers[0] == answers[1]
        assert all(text.startswith("amqp:unauthorized-access") for text in answers)
        mine = session.receiver("mine")
        mine.attach(source=Source(address="mine"), target=Target())
        client.until(lambda: mine.state is LinkState.ATTACHED, "its own queue")


def test_a_message_that_amqp_cannot_say_stops_nobody(tmp_path: Path) -> None:
    """The message waits for another link without delays: its neighbours are delivered, and the link does not spin."""
    with stage(tmp_path, disk=LyingDisk()) as made:
        made.declare("q")
        columns = {"body": pa.array([b"0", b"1", b"2"], pa.binary()), "contentType": ["text/plain", "kaese", None]}
        batch = batch_checks.validate(pa.record_batch(columns))
        at = batch.schema.get_field_index("contentType")  # such a message would be refused today, but may be stored
        batch = batch.set_column(at, batch.schema.field(at), pa.array(["text/plain", "käse", None]))
        made.service.submit(c.Enqueue("q", 3, stored_sizes(batch), store(batch)))
        client = made.client("reader")
        link = client.connection.begin().receiver("reader")
        link.attach(source=Source(address="q"), target=Target())
        link.grant(10)
        client.until(lambda: len(link.unsettled) == 2, "the valid messages")
        assert [int.from_bytes(tag, "big") for tag in link.unsettled] == [0, 2]
        made.until(lambda: made.counts("q") == {"available": 1, "acquired": 2}, "the other one is back")
        made.settle()
        link.session.dispose(list(link.unsettled.values()), Released())
        client.until(lambda: len(link.unsettled) == 2, "both again")
        assert made.messages("q") == [(0, 0), (1, 0), (2, 0)]


def test_q6_c5_a_browser_whose_credit_is_withdrawn_misses_nothing_later(tmp_path: Path) -> None:
    """Two quanta wait for the disk. Both go back, and are sent again from the first message."""
    with stage(tmp_path, disk=LyingDisk()) as made:
        made.declare("q")
        browser, sender = made.script().usual(), made.script(container_id="sender").usual()
        browser.receiver(source=Source(address="q", distribution_mode="copy"))
        sender.sender()
        made.slow_disk()
        for part in range(3):  # large turns: smaller ones would wait for the disk
            numbers = range(part * LARGE_COMMIT, (part + 1) * LARGE_COMMIT)
            sender.send(*[transfer(number) for number in numbers])
            made.until(lambda numbers=numbers: made.counts("q") == {"available": numbers.stop}, "they are there")  # type: ignore[misc]
            if part == 0:
                browser.send(flow(0, 1000, echo=True))
                browser.expect(Flow, handle=0, link_credit=1000)
        [link] = made.plane.commit_loop.acquisitions._queues["q"].members.values()
        assert len(link._unsent) == 2
        browser.send(flow(0, 0, echo=True))
        browser.expect(Flow, handle=0, link_credit=0)
        made.quick_disk()
        browser.nothing()
        browser.send(flow(0, 1000))
        browser.expect_messages(*[b"m%d" % number for number in range(3 * LARGE_COMMIT)])
        assert link.peer.capacity.underway.total() == 0


@pytest.mark.parametrize(
    ("state", "left"), [(Released(), {"available": 3, "acquired": 3}), (Accepted(), {"acquired": 3, "archived": 3})]
)
def test_c6_an_outcome_that_is_said_twice_in_one_write_holds_once(tmp_path: Path, state: Any, left: dict[str, int]) -> None:
    """Unsettled, in frames of a shape that the broker has seen: then they are read together."""
    with stage(tmp_path, disk=LyingDisk()) as made:
        made.declare("q")
        made.service.submit(enqueue("q", *[b"%d" % number for number in range(6)]))
        client, came = made.client("a"), list[Any]()
        client.on_event = lambda event: came.extend(event.deliveries) if isinstance(event, events.Delivered) else None
        session = client.connection.begin()
        link = session.receiver("link")
        link.attach(source=Source(address="q"), target=Target())
        link.grant(6)
        client.until(lambda: len(came) == 6, "all are here")
        session.dispose([came[5]], state, settled=False)
        client.until(lambda: came[5].remote_settled, "the shape is known")
        link.grant(0)
        for some in ([came[0], came[2]], [came[0]], [came[0]]):
            session.dispose(some, state, settled=False)
        client.until(lambda: came[0].remote_settled and came[2].remote_settled, "they hold")
        made.settle()
        assert made.counts("q") == left
        assert conserved(made.service.state.queues["q"])


def test_q14_a_lock_that_ends_before_its_message_is_sent_takes_it_back(tmp_path: Path) -> None:
    """One link acquires it again while the first acquisition waits for the disk: it is delivered once."""
    with stage(tmp_path, disk=LyingDisk()) as made:
        made.declare("q", "locked", lockTimeout=1)
        made.service.submit(enqueue("locked", b"m0"))
        receiver, sender = made.script().usual(), made.script(container_id="sender").usual()
        receiver.receiver("locked")
        sender.sender()
        made.slow_disk()
        receiver.send(flow(0, 10))
        made.until(lambda: made.messages("locked") == [(0, 1)], "its lock has ended")
        made.service.submit_nowait(AlterQueue("locked", {"lockTimeout": 0}))
        sender.send(*[transfer(number) for number in range(LARGE_COMMIT)])  # a turn that does not wait for the disk
        made.until(lambda: made.counts("locked") == {"acquired": 1}, "it is acquired again")
        [link] = made.plane.commit_loop.acquisitions._queues["locked"].members.values()
        assert len(link._unsent) == 2
        made.quick_disk()
        receiver.expect_messages(b"m0")
        receiver.nothing()
        assert (link.peer.capacity.underway.total(), link._lapsed) == (0, {})


def test_c8_what_the_disk_has_when_its_connection_is_lost_already_was_no_attempt(tmp_path: Path) -> None:
    with stage(tmp_path, disk=LyingDisk()) as made:
        made.declare("q")
        made.service.submit(enqueue("q", b"m0"))
        receiver = made.script().usual()
        receiver.receiver()
        made.slow_disk()
        receiver.send(flow(0, 1))
        made.until(lambda: made.counts("q") == {"acquired": 1}, "it is acquired")
        receiver.drop()
        made.until(lambda: not made.plane._accepted, "the loss is noticed")
        made.quick_disk()
        made.until(lambda: made.counts("q") == {"available": 1}, "it is back")
        assert made.messages("q") == [(0, 0)]
