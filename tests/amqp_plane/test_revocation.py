"""The users file changes while its users are connected (W3): invalid logins end, their messages are back, others continue."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import SaslClient
from penstock.broker_core.amqp.performatives import Accepted, Attach, Close, Detach, Disposition, Open, Rejected

from ..service.helpers import enqueue
from .frames import detach, flow, message, receives, says, sends, symbol, transfer
from .harness import Script, Stage, stage
from .logins import Site, begin_sasl, exchange, hear, log_in, say, user

ALL = "send,receive,browse"
USERS = {"alice": user("secret"), "bob": user("secret")}
MAY = {"alice": {"q": ALL, "p": ALL}, "bob": {"q": ALL, "p": ALL}}
REFUSED = "amqp:unauthorized-access"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, USERS, MAY)


@pytest.fixture
def s(site: Site, tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, access=site.access, fsync="never") as made:
        made.declare("q", "p")
        yield made
        bob_is_served(made)


def filled(s: Stage) -> None:
    s.service.submit(enqueue("q", b"m0", b"m1", b"m2", b"m3"))


def bob_is_served(s: Stage) -> None:
    bob = log_in(s, "bob", mechanism="SCRAM-SHA-256").usual()
    bob.sender("p")
    bob.send(transfer(0, message(b"of bob")))
    bob.expect(Disposition, state=Accepted())


def holding(s: Stage, name: str = "alice", **fields: Any) -> Script:
    """Deliver three of four messages to a link of this user."""
    filled(s)
    a = log_in(s, name, **fields).usual()
    a.receiver(credit=3)
    a.expect_messages(b"m0", b"m1", b"m2")
    return a


def closed(a: Script) -> None:
    close = a.expect(Close)
    assert close.error is not None
    assert close.error.condition == REFUSED
    a.send(Close())
    a.expect_end()


def detached(a: Script, handle: int = 0) -> None:
    refusal = a.expect(Detach, handle=handle, closed=True)
    assert refusal.error is not None
    assert refusal.error.condition == REFUSED


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_removed_user_is_closed_and_what_it_held_is_back(s: Stage, site: Site, mechanism: str) -> None:
    a = holding(s, mechanism=mechanism)
    site.edit({"bob": USERS["bob"]}, {"bob": MAY["bob"]})
    closed(a)
    assert s.counts("q") == {"available": 4}
    assert s.messages("q") == [(0, 0), (1, 0), (2, 0), (3, 0)]  # the end of its login does not count as an attempt
    again = s.script("again", open=False)
    assert exchange(again, SaslClient("alice", "secret", prefer=(mechanism,), random=os.urandom)) == 1


def test_what_was_held_is_back_before_the_close_is_said(s: Stage, site: Site) -> None:
    a = holding(s)
    a.send(says(Accepted(), 0, settled=False))
    a.expect(Disposition, first=0, state=Accepted())
    site.edit({"bob": USERS["bob"]}, {"bob": MAY["bob"]})
    a.expect(Close)
    assert s.counts("q") == {"available": 3, "archived": 1}, "settled messages stay settled"


def test_another_password_ends_the_logins_with_the_one_before(s: Stage, site: Site) -> None:
    a = holding(s)
    site.edit({**USERS, "alice": user("another")}, MAY)
    closed(a)
    assert s.counts("q") == {"available": 4}
    b = log_in(s, "alice", "another").usual()
    b.receiver(credit=4)
    b.expect_messages(b"m0", b"m1", b"m2", b"m3")


def test_another_certificate_ends_the_login_too(s: Stage, site: Site) -> None:
    a = holding(s)
    site.edit({**USERS, "alice": user("secret", "alice.example")}, MAY)
    closed(a)


def test_a_permission_that_is_gone_ends_its_links_and_nothing_else(s: Stage, site: Site) -> None:
    """Receiving from q ends; sending there, and everything at p, continues."""
    filled(s)
    a = log_in(s, "alice").usual()
    a.sender("q", handle=0)
    a.receiver("p", handle=1)
    a.receiver("q", handle=2, credit=3)
    a.expect_messages(b"m0", b"m1", b"m2")
    site.edit(USERS, {**MAY, "alice": {"q": "send,browse", "p": ALL}})
    detached(a, handle=2)
    assert s.counts("q") == {"available": 4}
    a.send(detach(2))
    a.send(transfer(0))
    a.expect(Disposition, state=Accepted())
    a.send(flow(1, 1))
    a.sender("p", handle=3)
    a.send(transfer(1, message(b"to p"), handle=3))
    kinds = [type(body) for body in a.read(2)]
    assert Disposition in kinds, "the confirmation, and the message itself, in any order"
    a.send(receives("q", handle=4, name="once more"))
    a.expect(Attach)
    detached(a, handle=3)  # the lowest that is free at the broker


@pytest.mark.parametrize(("right", "attach"), [("send", "sends"), ("receive", "receives"), ("browse", "browses")])
def test_each_direction_has_its_own_right(s: Stage, site: Site, right: str, attach: str) -> None:
    a = log_in(s, "alice").usual()
    frame = sends("q") if attach == "sends" else receives("q")
    if attach == "browses":
        frame.source.distribution_mode = symbol("copy")
    a.send(frame)
    a.expect(Attach)
    if attach == "sends":
        a._frame()  # its credit
    site.edit(USERS, {**MAY, "alice": {"q": right}})
    a.nothing()
    s.until(lambda: s.plane._users == 1, "the broker has looked at its peers")
    a.nothing()
    others = ",".join(name for name in ALL.split(",") if name != right)
    site.edit(USERS, {**MAY, "alice": {"q": others}})
    detached(a)


def test_confirmations_of_what_was_sent_before_come_before_the_detach(s: Stage, site: Site) -> None:
    a = log_in(s, "alice").usual()
    a.sender("q")
    a.send(transfer(0), transfer(1))
    a.expect(Disposition, first=0)
    site.edit(USERS, {**MAY, "alice": {"q": "receive"}})
    detached(a)
    a.send(transfer(2), detach())
    a.nothing()
    assert s.counts("q") == {"available": 2}, "later messages are dropped"


def test_the_anonymous_relay_asks_for_each_message(s: Stage, site: Site) -> None:
    a = log_in(s, "alice").usual()
    a.sender(None)
    to_q = message(b"x", properties=_to("q"))
    a.send(transfer(0, to_q))
    a.expect(Disposition, state=Accepted())
    site.edit(USERS, {**MAY, "alice": {"p": ALL}})
    s.until(lambda: s.plane._users == 1, "the broker has looked at its peers")
    a.send(transfer(1, to_q), transfer(2, message(b"x", properties=_to("p"))))
    outcomes = [a.expect(Disposition), a.expect(Disposition)]
    refused = next(outcome for outcome in outcomes if isinstance(outcome.state, Rejected))
    assert refused.first == 1
    assert refused.state.error.condition == REFUSED
    assert s.counts("q") == {"available": 1}


def _to(queue: str) -> Any:
    from penstock.broker_core.amqp.messages import Properties

    return Properties(to=queue)


def test_the_first_user_closes_an_open_broker_to_the_nameless(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with stage(tmp_path, access=site.access, fsync="never") as s:
        s.declare("q", "p")
        filled(s)
        a = s.script("A").usual()
        a.receiver(credit=2)
        a.expect_messages(b"m0", b"m1")
        a.sender("q", handle=1)
        site.edit(USERS, {**MAY, "anonymous": {"q": "send"}})
        detached(a)
        assert s.counts("q") == {"available": 4}
        a.send(transfer(0, handle=1))
        a.expect(Disposition, state=Accepted())
        bob_is_served(s)


def test_somebody_elses_change_is_not_noticed(s: Stage, site: Site) -> None:
    a = holding(s)
    site.edit({"alice": USERS["alice"], "bob": user("secret", "bob.example"), "carol": user()}, MAY)
    s.until(lambda: s.plane._users == 1, "the broker has looked at its peers")
    a.send(says(Accepted(), 0, 2), flow(0, 1, count=3))
    a.expect_messages(b"m3")


def test_a_change_that_the_other_plane_read_is_noticed_too(s: Stage, site: Site) -> None:
    """`refresh` returns True once, to its first caller."""
    a = holding(s)
    gate = s.plane.access.refresh
    site.edit({"bob": USERS["bob"]}, {"bob": MAY["bob"]})
    gate()
    assert site.access.identity("alice") is None
    closed(a)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_user_that_goes_between_login_and_open_is_refused_without_a_token(s: Stage, site: Site, mechanism: str) -> None:
    a = s.script("alice", open=False)
    assert exchange(a, SaslClient("alice", "secret", prefer=(mechanism,), random=os.urandom)) == 0
    site.edit({"bob": USERS["bob"]}, {"bob": MAY["bob"]})
    s.until(lambda: site.access.identity("alice") is None, "the broker has read the file")
    refused_open(a)


def refused_open(a: Script) -> None:
    answer: Open = a.open(container_id="alice")
    assert answer.properties is not None
    assert answer.properties[symbol("amqp:connection-establishment-failed")] is True
    assert symbol("flight-token") not in answer.properties
    closed(a)


def test_a_password_that_changes_during_the_login_is_not_good_any_more(s: Stage, site: Site) -> None:
    """SCRAM has two messages, with a pause of the peer between them."""
    a = s.script("alice", open=False)
    begin_sasl(a)
    sasl = SaslClient("alice", "secret", prefer=("SCRAM-SHA-256",), random=os.urandom)
    say(a, *sasl.receive(hear(a)))
    challenge = hear(a)
    before = s.access.identity("alice")
    site.edit({**USERS, "alice": user("another")}, MAY)
    s.until(lambda: s.access.identity("alice") != before, "the broker has read the file")
    say(a, *sasl.receive(challenge))
    sasl.receive(hear(a))
    assert sasl.code == 1, "the proof fits the password at the first message, and no longer that of now"


def test_an_attach_that_waits_for_the_disk_is_refused_when_the_permission_goes(site: Site, tmp_path: Path) -> None:
    from ..journal.lying_disk import LyingDisk

    with stage(tmp_path, access=site.access, disk=LyingDisk()) as s:
        s.declare("q", "p")
        a = log_in(s, "alice").usual()
        a.sender("q")
        s.slow_disk()
        a.send(transfer(0), receives("q", handle=1))
        s.until(lambda: s.counts("q") == {"available": 1}, "the message is taken")
        site.edit(USERS, {**MAY, "alice": {"q": "send"}})
        s.until(lambda: s.plane._users == 1, "the broker has looked at its peers")
        s.quick_disk()
        a.expect(Disposition, state=Accepted())
        a.expect(Attach)
        detached(a, handle=1)
        bob_is_served(s)
