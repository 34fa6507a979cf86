"""Detached links over several connections: their owners, other users, and the state after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker_core.amqp.messages import Message, Properties
from penstock.broker_core.amqp.performatives import (
    RCV_FIRST,
    RCV_SECOND,
    SENDER,
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Source,
    Target,
)
from penstock.broker_core.amqp.resume import offset_of
from penstock.broker_core.amqp_plane.links.endpoint import CONNECTION_ENDED, DETACHED, SESSION_ENDED, Expiry

from ..service.helpers import enqueue
from .frames import detach, flow, receives, says, transfer
from .harness import Script, Stage, stage
from .logins import Site, log_in, user
from .scenarios_detached import MINUTE, tag

ALL = "send,receive,browse"
USERS = {"alice": user("secret"), "bob": user("secret")}
MAY = {"alice": {"q": ALL}, "bob": {"q": ALL}}
SOURCE = Source(address="q", **MINUTE)  # type: ignore[arg-type]
UNSETTLED = {tag(0): None, tag(1): None}


def holding(s: Stage, a: Script) -> Script:
    s.service.submit(enqueue("q", b"m0", b"m1", b"m2"))
    a.receiver(credit=2, source=SOURCE)
    a.expect_messages(b"m0", b"m1")
    return a


def lost(s: Stage, a: Script) -> None:
    """Lose the connection; its link is kept."""
    a.drop()
    s.until(lambda: len(s.plane.registry) == 1, "the link is kept")
    s.settle()
    assert s.counts("q") == {"available": 1, "acquired": 2}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, USERS, MAY)


def test_nobody_else_resumes_a_link(site: Site, tmp_path: Path) -> None:
    """Another user with the same container id and link name, and another container of the user, get links of their own."""
    with stage(tmp_path, access=site.access) as s:
        s.declare("q")
        lost(s, holding(s, log_in(s, "alice", container_id="c").usual()))
        for name, container in (("bob", "c"), ("alice", "d")):
            b = log_in(s, name, container_id=container).usual()
            assert b.receiver(source=SOURCE, unsettled=UNSETTLED).unsettled is None
            assert s.counts("q") == {"available": 1, "acquired": 2}
        c = log_in(s, "alice", container_id="c").usual()
        assert c.receiver(source=SOURCE, unsettled=UNSETTLED).unsettled == UNSETTLED


@pytest.mark.parametrize("change", ["right", "user", "password"])
def test_they_end_with_what_permitted_them(site: Site, tmp_path: Path, change: str) -> None:
    with stage(tmp_path, access=site.access) as s:
        s.declare("q")
        lost(s, holding(s, log_in(s, "alice", container_id="c").usual()))
        if change == "right":
            site.edit(USERS, {**MAY, "alice": {"q": "send,browse"}})
        elif change == "user":
            site.edit({"bob": USERS["bob"]}, {"bob": MAY["bob"]})
        else:
            site.edit({**USERS, "alice": user("another")}, MAY)
        s.until(lambda: s.counts("q") == {"available": 3}, "its messages are back")
        assert not len(s.plane.registry)


def test_a_restart_gives_back_what_they_held(tmp_path: Path) -> None:
    with stage(tmp_path) as s:
        s.declare("q")
        lost(s, holding(s, s.script(container_id="c").usual()))
    with stage(tmp_path) as s:
        assert s.messages("q") == [(0, 0), (1, 0), (2, 0)]
        b = s.script(container_id="c").usual()
        assert b.receiver(credit=1, source=SOURCE, unsettled=UNSETTLED).unsettled is None
        b.expect_messages(b"m0")


def test_a_queue_that_was_deleted_and_declared_again_is_another_one(tmp_path: Path) -> None:
    with stage(tmp_path) as s:
        s.declare("q")
        lost(s, holding(s, s.script(container_id="c").usual()))
        s.delete("q")
        s.declare("q")
        s.service.submit(enqueue("q", b"new"))
        b = s.script(container_id="c").usual()
        assert b.receiver(credit=5, source=SOURCE, unsettled=UNSETTLED).unsettled is None
        b.expect_messages(b"new")


@pytest.mark.parametrize("size", [1, 3000])
def test_what_had_not_left_wholly_is_no_attempt(tmp_path: Path, size: int) -> None:
    """The session's window is closed in the middle of a message, or before it: detached, the link does not hold it."""
    with stage(tmp_path) as s:
        s.declare("q")
        s.service.submit(enqueue("q", b"x" * size, b"x" * size))
        a = s.script(container_id="c", max_frame_size=1024)
        a.begin(incoming_window=1)
        a.send(receives(), flow(0, 2, incoming_window=1))
        a.expect(Attach)
        a._frame()
        s.settle()
        a.send(detach(closed=False))
        a.expect(Detach, closed=False)
        sent = size == 1
        assert s.counts("q") == ({"available": 1, "acquired": 1} if sent else {"available": 2})
        assert [attempts for _, attempts in s.messages("q")] == [0, 0]
        s.note("attached again, on the same session")
        a.send(receives(), flow(0, 2, next_incoming_id=1, incoming_window=100))
        a.expect(Attach)
        for _ in range(2 - sent):
            a.expect_message()
        a.send(says(Accepted(), 0, 9))
        s.until(lambda: s.counts("q") == {"archived": 2}, "both are settled")


def test_all_that_a_user_may_detach_is_counted_down_again(tmp_path: Path) -> None:
    """After any return or end of its links, a user can detach as many again."""
    with stage(tmp_path, amqp_max_detached_links_per_user=2, amqp_max_detached_deliveries_per_user=2) as s:
        s.declare("q")
        s.service.submit(enqueue("q", b"m0", b"m1", b"m2"))
        detached = s.plane.registry
        for number in range(6):
            a = s.script(container_id="c").usual()
            a.receiver(credit=2, source=SOURCE, unsettled=UNSETTLED if number % 2 else None)
            for _ in range(2):
                a.expect_message()
            if number % 3 == 2:
                a.send(detach(closed=False))
                a.expect(Detach)
            a.drop()
            s.until(lambda: dict(detached._deliveries) == {"anonymous": 2}, "the link is kept")
            assert dict(detached._of_user) == {"anonymous": 1}
        b = s.script(container_id="c").usual()
        b.receiver(source=Source(address="q"))
        s.settle()
        for counts in (detached._links, detached._of_user, detached._deliveries, detached._counted, detached._timers):
            assert not counts


def test_when_a_terminus_ends() -> None:
    moments = (DETACHED, SESSION_ENDED, CONNECTION_ENDED)
    assert [Expiry("link-detach").ends(moment) for moment in moments] == [True, True, True]
    assert [Expiry("session-end").ends(moment) for moment in moments] == [False, True, True]
    assert [Expiry("connection-close").ends(moment) for moment in moments] == [False, False, True]
    assert [Expiry("connection-close", 5).ends(moment) for moment in moments] == [False, False, False]
    assert Expiry.granted(Source(), 300) == Expiry("session-end", 0)
    assert Expiry.granted(Target(expiry_policy="link-detach", timeout=400), 300) == Expiry("link-detach", 300)
    assert Expiry.granted(Source(expiry_policy="never"), 300) == Expiry("connection-close", 300)


def test_a_position_in_a_message() -> None:
    """3.4.1: sections are counted from the first existing one, offsets within a section in bytes."""
    message = Message(properties=Properties(subject="s"), data=[b"one", b"two"]).encode()
    sections = [offset_of(message, (number, 0)) for number in range(4)]
    assert sections[0] == 0
    assert sections[3] == len(message)
    assert message[sections[1] :] == Message(data=[b"one", b"two"]).encode()
    assert message[sections[2] :] == Message(data=[b"two"]).encode()
    assert offset_of(message, (1, 2)) == sections[1] + 2
    assert offset_of(message, (9, 9)) == offset_of(message, (0, 10_000)) == len(message)


@pytest.mark.parametrize("mode", ["move", "copy"])
def test_a_link_that_the_broker_does_not_know_gets_nothing_new_after_an_incomplete_map(tmp_path: Path, mode: str) -> None:
    """C6 C9: 2.7.3: a receiver with an incomplete map gets only the deliveries in the map, even if the broker has none of them.

    Its next attach with a complete map, or without a map, brings new ones.
    """
    source = Source(address="q", distribution_mode=mode)
    with stage(tmp_path) as s:
        s.declare("q")
        s.service.submit(enqueue("q", b"m0"))
        a = s.script("A").usual()
        a.receiver(credit=5, source=source, unsettled={tag(7): None}, incomplete_unsettled=True)
        a.nothing()
        assert s.counts("q") == {"available": 1}
        a.send(detach(closed=False))
        a.expect(Detach)
        a.receiver(credit=5, source=source)
        a.expect_messages(b"m0")


@pytest.mark.parametrize("mode", [RCV_FIRST, RCV_SECOND])
def test_credit_stays_a_window_for_a_sender_that_settles_at_once_what_it_resumes(tmp_path: Path, mode: int) -> None:
    """Our outcome crosses the sender's, which settles the delivery in the same write: it frees credit once."""
    with stage(tmp_path, amqp_credit=10) as s:
        s.declare("q")
        target = Target(address="q", **MINUTE)  # type: ignore[arg-type]
        a = s.script("A", container_id="writer").usual()
        a.sender(target=target, rcv_settle_mode=RCV_SECOND)
        a.send(transfer(0))
        a.expect(Disposition, first=0, settled=False)
        a.drop()
        s.until(lambda: len(s.plane.registry) == 1, "the link is kept")
        s.settle()
        b = s.script("B", container_id="writer").usual()
        b.sender(target=target, rcv_settle_mode=mode, unsettled={b"t0": None})
        b.send(transfer(0, b"", resume=True), Disposition(role=SENDER, first=0, settled=True))
        b.expect(Disposition, first=0, settled=mode == RCV_FIRST)
        b.expect(Flow, delivery_count=1, link_credit=10)
        b.nothing()
