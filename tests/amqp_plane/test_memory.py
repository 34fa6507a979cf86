"""Memory of ended connections, sessions and links: the broker keeps only state that is still needed."""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Connection
from penstock.broker_core.amqp.deliveries import Delivery
from penstock.broker_core.amqp.fastpath import _FrameTemplate
from penstock.broker_core.amqp.messages import Properties
from penstock.broker_core.amqp.performatives import Attach, Detach, End, Source
from penstock.broker_core.amqp.receivers import _Partial

from ..service.helpers import enqueue
from .frames import flow, message, receives, transfer
from .harness import Script, Stage, stage
from .scenarios_acquisition import acquires
from .scenarios_detached import MINUTE

ROUNDS = 3
KEPT = Source(address="q", **MINUTE)  # type: ignore[arg-type]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as result:
        result.declare("q")
        yield result


def objects_of(*kinds: type[Any]) -> list[Any]:
    """Return the reachable objects of these classes. Scripted clients have none."""
    gc.collect()
    return [item for item in gc.get_objects() if type(item) in kinds]


def keeper(a: Script) -> None:
    """A receiver with one delivery, which outlives its session and its connection."""
    a.receiver(credit=1, handle=0, name="keep", source=KEPT)
    a.expect_message()


def dropped(s: Stage, a: Script, count: int) -> None:
    a.drop()
    s.until(lambda: len(s.plane.registry) == count and s.plane.count_connections() == 0, "the connection has gone")
    s.settle()


def test_a_detached_link_keeps_no_deliveries_of_other_links(made: Stage) -> None:
    before = len(objects_of(Delivery))
    made.service.submit(enqueue("q", *[b"m"] * 50))
    for number in range(1, ROUNDS + 1):
        a = made.script(container_id=f"c{number}").usual()
        keeper(a)
        a.receiver(credit=40, handle=1, name="bulk")
        for _ in range(40):
            a.expect_message()
        dropped(made, a, number)
        assert made.counts("q") == {"acquired": number, "available": 50 - number}
    assert len(objects_of(Delivery)) == before + ROUNDS


def test_a_detached_link_keeps_no_messages_that_were_half_sent(made: Stage) -> None:
    before = len(objects_of(_Partial))
    made.service.submit(enqueue("q", *[b"m"] * ROUNDS))
    for number in range(1, ROUNDS + 1):
        a = made.script(container_id=f"c{number}").usual()
        keeper(a)
        a.sender(handle=1)
        a.send(transfer(0, bytes(30_000), handle=1, more=True))
        made.until(lambda: made.plane.unfinished.octets == 30_000, "the first frame of a message")
        dropped(made, a, number)
        assert not made.plane.unfinished.octets
    assert len(objects_of(_Partial)) == before


def test_a_detached_link_keeps_nothing_of_its_lost_connection_but_itself(made: Stage) -> None:
    """Half a frame, the shapes of frames, other sessions, and octets that could not be written."""
    before = set(map(id, objects_of(Connection)))
    templates = len(objects_of(_FrameTemplate))
    made.service.submit(enqueue("q", b"m"))
    a = made.script(container_id="c").usual()
    keeper(a)
    a.begin(channel=1)
    a.sender(handle=1)
    for number in range(3):
        a.send(transfer(number, handle=1, settled=True))
    a.say("half a frame", struct.pack(">IBBH", 60_000, 2, 0, 0), bytes(30_000))
    made.until(lambda: made.counts("q").get("available") == 3, "the earlier messages")
    dropped(made, a, 1)
    [connection] = [candidate for candidate in objects_of(Connection) if id(candidate) not in before]
    assert connection.sessions == connection.remote_sessions == {}
    received = connection._received
    assert (received._rest, received._parts, connection._out) == (b"", [], [])
    assert len(objects_of(_FrameTemplate)) == templates
    [detached] = made.plane.registry.links()
    session = detached.link.session
    assert (session.links, session.remote_links, session.handles.named) == ({}, {}, {})
    assert (session.incoming, session.outgoing) == ({}, {})
    assert not detached.peer.capacity.underway
    assert len(detached.link.unsettled) == 1


def test_a_detached_link_keeps_no_deliveries_of_a_session_that_has_ended(made: Stage) -> None:
    """The connection is open, and holds only the deliveries of its open sessions, which the limits count."""
    before = len(objects_of(Delivery))
    made.service.submit(enqueue("q", *[b"m"] * 50))
    a = made.script(container_id="c").usual()
    for number in range(1, ROUNDS + 1):
        a.begin(channel=1)
        a.send(receives(name=f"keep {number}", source=KEPT), channel=1)
        a.expect(Attach, 1)
        a.send(receives(handle=1, name="bulk"), channel=1)
        a.expect(Attach, 1)
        a.send(flow(0, 1), flow(1, 40), channel=1)
        for _ in range(41):
            a.expect_message()
        a.send(End(), channel=1)
        a.expect(End, 1)
        made.settle()
        a._heard[1] = 0
        assert made.counts("q") == {"acquired": number, "available": 50 - number}
    assert len(objects_of(Delivery)) == before + ROUNDS


def test_a_link_in_error_keeps_no_deliveries_while_its_peer_does_not_detach(made: Stage) -> None:
    before = len(objects_of(Delivery))
    made.service.submit(enqueue("q", *[b"m"] * 20))
    a = made.script(container_id="c").usual()
    for handle in range(ROUNDS):
        a.receiver(credit=20, handle=handle, name=f"{handle}")
        for _ in range(20):
            a.expect_message()
        a.send(acquires(handle, 0, b"\x07", count=20))  # there is no such transaction
        assert a.expect(Detach).error is not None
        made.settle()
    assert made.counts("q") == {"available": 20}
    assert len(objects_of(Delivery)) == before


def test_a_link_that_another_connection_has_taken_keeps_no_deliveries(made: Stage) -> None:
    before = len(objects_of(Delivery))
    made.service.submit(enqueue("q", *[b"m"] * 20))
    scripts = []
    for number in range(ROUNDS):
        a = made.script(f"{number}", container_id="c").usual()
        a.receiver(credit=20, name="one", source=KEPT)
        if number:
            scripts[-1].expect(Detach)  # and it does not answer
        for _ in range(20):
            a.expect_message()
        scripts.append(a)
    made.settle()
    assert len(objects_of(Delivery)) == before + 20


def test_messages_that_wait_for_room_are_not_kept_when_their_link_ends(made: Stage) -> None:
    """Messages count as waiting while they are in memory, and are in memory while they count."""
    made.declare("full", overflow="block", maxMessages=1)
    made.service.submit(enqueue("full", b"m"))
    made.service.submit(enqueue("q", *[b"m"] * ROUNDS))
    body = message(bytes(20_000), properties=Properties(to="full"))
    before = len(objects_of(Delivery))
    for number in range(1, ROUNDS + 1):
        a = made.script(container_id=f"c{number}").usual()
        keeper(a)
        a.sender(None, handle=1)
        a.send(transfer(0, body, handle=1))
        made.until(lambda: made.plane.sender_credit.waiting_bytes > 20_000, "the message waits")
        dropped(made, a, number)
        assert not made.plane.sender_credit.waiting_bytes
    assert len(objects_of(Delivery)) == before + ROUNDS
