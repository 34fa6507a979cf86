"""W2, W3 at the AMQP plane: guessing passwords, checks outside of the loop, and the rights of a user after the login."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import SaslClient
from penstock.broker_core.amqp.frames import AMQP_ID, SASL_FRAME, SASL_ID, encode_frame, protocol_header
from penstock.broker_core.amqp.messages import Properties
from penstock.broker_core.amqp.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Open,
    Rejected,
    SaslInit,
    SaslOutcome,
    SaslResponse,
    Target,
)
from penstock.broker_core.amqp.scram import ScramCredentials
from penstock.broker_core.amqp_plane.plane import PASSWORD_THREADS
from penstock.broker_core.engine import commands as c
from penstock.broker_core.security import Access, log_limit
from penstock.broker_core.security.audit import AuditFilter
from penstock.broker_core.security.failed_logins import FAILURES_OF_A_NAME
from penstock.broker_core.security.users import User, credentials_of
from penstock.broker_core.settings.listeners import Listener

from ..security.helpers import QUICK
from ..service.helpers import enqueue
from .frames import begin, flow, message, receives, sends, symbol, transfer
from .harness import Script, Stage, stage
from .logins import Site, begin_sasl, exchange, hear, log_in, say
from .test_fuzz_plane import PATIENCE_S
from .test_revocation import detached

SECRET = "a secret that no log may have"
SCRAM = "SCRAM-SHA-256"
REFUSED = "amqp:unauthorized-access"
AMQP, SASL = protocol_header(AMQP_ID), protocol_header(SASL_ID)


# ---- attempts


@pytest.fixture
def site(tmp_path: Path) -> Site:
    # Each has its own salt, so the right password of one user does not help with another.
    credentials_by_name = {name: credentials_of(SECRET, name.encode().ljust(16), QUICK) for name in ("alice", "bob", "carol")}
    users = {name: User(credentials) for name, credentials in credentials_by_name.items()}
    may = {"alice": {"q": "send", "of alice": "send,receive,browse"}, "bob": {"q": "receive", "of bob": "receive"}}
    return Site(tmp_path, users, {**may, "carol": {"q": "browse", "bystander": "send,receive", "events": "browse"}})


@pytest.fixture
def s(site: Site, tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, access=site.access, fsync="never") as made:
        made.declare("q", "of alice", "of bob", "bystander")
        yield made


def tries(s: Stage, name: str, password: str, mechanism: str) -> int | None:
    script = s.script(name, open=False)
    code = exchange(script, SaslClient(name, password, prefer=(mechanism,), random=os.urandom))
    if code:
        assert not script._fill(1), "one attempt a connection"
    script.drop(quietly=True)
    return code


@pytest.mark.parametrize("guessed", ["PLAIN", SCRAM])
def test_guessing_is_counted_and_limited_whatever_the_mechanism(
    s: Stage, site: Site, guessed: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert tries(s, "bob", SECRET, "PLAIN") == 0
    for _ in range(FAILURES_OF_A_NAME):
        assert tries(s, "alice", "a guess", guessed) == 1
    for mechanism in ("PLAIN", SCRAM):
        assert tries(s, "alice", SECRET, mechanism) == 1, "not checked, with the same answer"
        assert tries(s, "carol", SECRET, mechanism) == 0, "another name is another count"
    for _ in range(FAILURES_OF_A_NAME):
        tries(s, "bob", "a guess", "PLAIN")
    assert tries(s, "bob", SECRET, "PLAIN") == 0, "an earlier client is not locked out"
    site.clock.pass_(61)
    assert tries(s, "alice", SECRET, guessed) == 0
    assert "127.0.0.1:" in caplog.text
    assert SECRET not in caplog.text
    assert "a guess" not in caplog.text


def test_a_refused_login_is_in_the_audit_log(s: Stage) -> None:
    for name, mechanism in (("alice", "PLAIN"), ("bob", SCRAM), ("nobody", SCRAM)):
        assert tries(s, name, "a guess", mechanism) == 1
    assert tries(s, "alice", SECRET, "PLAIN") == 0
    entries = s.service.audit.entries(AuditFilter(), 10)
    assert [(entry["user"], entry["action"], entry["door"], entry["outcome"]) for entry in entries] == [
        (name, "login", "amqp", "refused") for name in ("nobody", "bob", "alice")
    ]
    assert all("127.0.0.1:" in entry["peer"] and "wrong name or password" in entry["error"] for entry in entries)


def before_the_proof(s: Stage, password: str) -> tuple[Script, SaslResponse]:
    """Return a script of alice with the first message of SCRAM, and the second message."""
    script = s.script("alice", open=False)
    begin_sasl(script)
    sasl = SaslClient("alice", password, prefer=(SCRAM,), random=os.urandom)
    say(script, *sasl.receive(hear(script)))
    [proof] = sasl.receive(hear(script))
    assert isinstance(proof, SaslResponse)
    return script, proof


def codes(scripts: list[Script]) -> list[int]:
    answers = [hear(script) for script in scripts]
    return [outcome.code for outcome in answers if isinstance(outcome, SaslOutcome)]


def test_proofs_that_come_at_once_are_counted_before_the_next_is_looked_at(s: Stage) -> None:
    """The loop is busy from the first wrong proof to the last right one."""
    wrong = [before_the_proof(s, "a guess") for _ in range(FAILURES_OF_A_NAME + PASSWORD_THREADS)]
    right = [before_the_proof(s, SECRET) for _ in range(FAILURES_OF_A_NAME)]
    checks, loop = threading.Event(), threading.Event()
    held = [s.plane.passwords.submit(checks.wait, PATIENCE_S) for _ in range(PASSWORD_THREADS)]
    s.until(lambda: all(check.running() for check in held), "all threads are busy")
    queue, count = s.plane.passwords._work_queue, 0
    for script, proof in wrong + right:
        say(script, proof)
        count += 1
        s.until(partial(lambda size: queue.qsize() == size, count), "the proof waits for a thread")
    s.plane.call(lambda: loop.wait(PATIENCE_S) and None)
    checks.set()
    for _ in range(PASSWORD_THREADS):
        s.plane.passwords.submit(lambda: None).result(PATIENCE_S)
    loop.set()
    assert codes([script for script, _ in wrong + right]) == [1] * count
    assert tries(s, "carol", SECRET, SCRAM) == 0


def test_a_proof_is_looked_at_when_the_one_before_is_counted(site: Site, tmp_path: Path) -> None:
    """Otherwise each thread would allow one more than the limit."""
    with gated(site, tmp_path) as (s, access):
        for _ in range(FAILURES_OF_A_NAME - 1):
            access.count_failure("127.0.0.1:1", "alice")
        (guesser, guess), (alice, proof) = before_the_proof(s, "a guess"), before_the_proof(s, SECRET)
        access.looks_wait = True
        say(guesser, guess)
        assert access.begun.acquire(timeout=PATIENCE_S)
        say(alice, proof)
        assert not access.begun.acquire(timeout=0.3)
        access.gate.set()
        assert codes([guesser, alice]) == [1, 1]


@pytest.mark.parametrize(("offered", "guessed"), [((SCRAM, "PLAIN"), "PLAIN"), ((SCRAM, "PLAIN"), SCRAM), ((SCRAM,), SCRAM)])
def test_a_failure_counts_once(site: Site, tmp_path: Path, offered: tuple[str, ...], guessed: str) -> None:
    """Also if the loop itself checks proofs, because PLAIN is not offered."""
    with stage(tmp_path, access=site.access, fsync="never", listeners=(Listener(mechanisms=offered),)) as s:
        for _ in range(FAILURES_OF_A_NAME - 1):
            assert tries(s, "alice", "a guess", guessed) == 1
        assert tries(s, "alice", SECRET, SCRAM) == 0
        assert tries(s, "alice", "a guess", guessed) == 1
        assert tries(s, "alice", SECRET, SCRAM) == 1


def test_refusals_do_not_fill_the_log(s: Stage, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO)
    [limit] = [
        log_filter for log_filter in logging.getLogger("penstock.amqp").filters if isinstance(log_filter, log_limit.LogLimit)
    ]
    monkeypatch.setattr(limit, "_clock", lambda: limit._since)  # all in one window
    monkeypatch.setattr(limit, "_lines", 0)
    for number in range(log_limit.LINES + 60):
        script = s.script(f"{number}", open=False)
        begin_sasl(script)
        hear(script)
        say(script, SaslInit(mechanism="NONE\nAND A LINE OF MY OWN"))
        assert hear(script) == SaslOutcome(code=1)
        script.drop(quietly=True)
    ours = [record for record in caplog.records if record.name.startswith("penstock.amqp")]
    assert len(ours) == log_limit.LINES
    assert all(record.getMessage().isprintable() for record in ours)


# ---- checks outside of the loop


class Gated(Access):
    """Checks of passwords begin immediately, and end when the test allows it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gate, self.begun = threading.Event(), threading.Semaphore(0)
        self.checks = 0
        self.looks_wait = False

    def credentials(self, name: str, peer: str) -> ScramCredentials | None:
        if self.looks_wait:
            self.begun.release()
            assert self.gate.wait(PATIENCE_S)
        return super().credentials(name, peer)

    def login(self, name: str, password: str, peer: str) -> str:
        if name == "carol":
            return super().login(name, password, peer)
        self.checks += 1
        self.begun.release()
        assert self.gate.wait(PATIENCE_S)
        return super().login(name, password, peer)


@contextlib.contextmanager
def gated(site: Site, folder: Path, **settings: Any) -> Iterator[tuple[Stage, Gated]]:
    access = Gated(site.path)
    with stage(folder, access=access, fsync="never", **settings) as made:
        made.declare("q", "of alice", "bystander")
        try:
            yield made, access
        finally:
            access.gate.set()


def plain(name: str) -> SaslInit:
    return SaslInit(mechanism="PLAIN", initial_response=f"\0{name}\0{SECRET}".encode())


def test_checking_passwords_does_not_stop_who_is_in(site: Site, tmp_path: Path) -> None:
    """However long a check takes: here it takes until another client has continued."""
    with gated(site, tmp_path) as (s, access):
        carol = log_in(s, "carol", SECRET).usual()
        carol.sender("bystander")
        scripts = [s.script(f"{number}", open=False) for number in range(20)]
        for script in scripts:
            begin_sasl(script)
            hear(script)
        for script in scripts:
            say(script, plain("alice"))
        for _ in range(PASSWORD_THREADS):
            assert access.begun.acquire(timeout=PATIENCE_S)
        for number in range(50):
            carol.send(transfer(number, message(b"on")))
            carol.expect(Disposition, first=number, state=Accepted())
        access.gate.set()
        for script in scripts:
            assert hear(script) == SaslOutcome(code=0)


def test_who_leaves_while_the_password_is_checked_leaves_nothing(site: Site, tmp_path: Path) -> None:
    """Everything in one write, and a reset before the check is over. Checks without a waiting client are not begun."""
    octets = SASL + encode_frame(0, plain("alice").encode(), frame_type=SASL_FRAME) + AMQP
    for body in (Open(container_id="gone"), begin(), sends("q"), receives("of alice", handle=1), flow(1, 10)):
        octets += encode_frame(0, body.encode())
    with gated(site, tmp_path, amqp_login_timeout_s=0.5) as (s, access):
        for _ in range(30):
            side = socket.create_connection(s.address)
            side.sendall(octets + encode_frame(0, *_octets(transfer(0))))
            side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            side.close()
        assert access.begun.acquire(timeout=PATIENCE_S)
        s.until(lambda: not s.plane._accepted, "all of them are gone")
        access.gate.set()
        s.plane.passwords.submit(lambda: None).result(PATIENCE_S)
        log_in(s, "carol", SECRET).usual().nothing()
        assert access.checks <= 2 * PASSWORD_THREADS
        assert s.plane.containers.users["alice"] == 0
        assert not s.plane.registry._attached
        assert s.counts("q") == {}


def _octets(body: Any) -> tuple[bytes, bytes]:
    return body[0].encode(), body[1]


# ---- permissions


@pytest.mark.parametrize(("name", "right"), [("alice", "send"), ("bob", "receive"), ("carol", "browse")])
def test_a_link_needs_the_right_of_its_direction(s: Stage, name: str, right: str) -> None:
    a = log_in(s, name, SECRET).usual()
    copies = receives("q", name="copies")
    copies.source.distribution_mode = symbol("copy")
    for direction, body in (("send", sends("q")), ("receive", receives("q")), ("browse", copies)):
        s.note(direction)
        a.send(body)
        a.expect(Attach)
        if direction == right:
            if right == "send":
                a._frame()  # its credit
            a.nothing()
            a.send(_close_link())
            a.expect(Detach, error=None)
        else:
            detached(a)
            a.send(_close_link())
    entries = s.service.audit.entries(AuditFilter(), 10)
    refused = [direction for direction in ("browse", "receive", "send") if direction != right]
    assert [(entry["user"], entry["action"], entry["object"], entry["outcome"]) for entry in entries] == [
        (name, f"link.{direction}", "q", "refused") for direction in refused
    ]


def _close_link() -> Detach:
    return Detach(handle=0, closed=True)


def test_a_queue_that_is_not_there_and_one_that_is_not_permitted_sound_alike(s: Stage) -> None:
    a = log_in(s, "alice", SECRET).usual()
    refusals = []
    for queue in ("of bob", "which is not there"):
        a.send(sends(queue, name="same"))
        a.expect(Attach)
        error = a.expect(Detach).error
        assert error is not None
        refusals.append((error.condition, (error.description or "").replace(queue, "X")))
        a.send(_close_link())
    assert refusals[0] == refusals[1]


@pytest.mark.parametrize(
    ("queue", "command"),
    [
        ("q", "`penstock permit bob q send` gives"),
        ("of alice; rm *", "`penstock permit bob 'of alice; rm *' send` gives"),
        ("ä" * 60, "; `penstock permit` gives"),
        ("q" * 3000, "; `penstock permit` gives"),
    ],
    ids=["plain", "quoted", "long in octets", "too long for a name"],
)
def test_a_refused_link_names_the_command_that_permits_it(s: Stage, queue: str, command: str) -> None:
    """A description that is too short for the whole command contains no part of it."""
    b = log_in(s, "bob", SECRET).usual()
    b.send(sends(queue, name="link"))
    b.expect(Attach)
    error = b.expect(Detach).error
    assert error is not None
    assert command in (error.description or "")
    assert (error.description or "").endswith(" the right")


def test_browsing_an_exchange_names_the_right_to_receive(s: Stage) -> None:
    """Only if the user may know of the exchange."""
    with s.service.turn() as turn:
        turn.execute(c.DeclareExchange("events"))
    descriptions = []
    for name in ("carol", "alice"):
        peer = log_in(s, name, SECRET).usual()
        copies = receives("events", name="copies")
        copies.source.distribution_mode = symbol("copy")
        peer.send(copies)
        peer.expect(Attach)
        descriptions.append(peer.expect(Detach).error.description)
    assert "permit carol events receive`" in descriptions[0]
    assert "permit alice events browse`" in descriptions[1]


def test_the_relay_sends_only_where_its_user_may(s: Stage) -> None:
    a = log_in(s, "alice", SECRET).usual()
    a.sender(None)
    for number, queue in enumerate(("q", "of bob", "which is not there")):
        a.send(transfer(number, message(b"x", properties=Properties(to=queue))))
    outcomes: dict[int, Any] = {}
    while len(outcomes) < 3:
        disposition = a.expect(Disposition)
        outcomes.update(dict.fromkeys(range(disposition.first, (disposition.last or disposition.first) + 1), disposition.state))
    assert outcomes[0] == Accepted()
    assert isinstance(outcomes[1], Rejected)
    assert isinstance(outcomes[2], Rejected)
    assert outcomes[1].error.condition == outcomes[2].error.condition == REFUSED
    assert s.counts("q") == {"available": 1}
    assert s.counts("of bob") == {}


def test_another_users_container_id_and_link_names_are_not_the_same(s: Stage) -> None:
    """C9: a container belongs to the user that opened it; another user with the same id takes nothing from it."""
    s.service.submit(enqueue("q", b"m0", b"m1"))
    site_name = "alice's machine"
    bob = log_in(s, "bob", SECRET, container_id=site_name).usual()
    bob.receiver("q", name="orders", credit=1)
    bob.expect_messages(b"m0")
    carol = log_in(s, "carol", SECRET, container_id=site_name).usual()
    looks = receives("q", name="orders")
    looks.source.distribution_mode = symbol("copy")
    carol.send(looks, flow(0, 1))
    carol.expect(Attach)
    carol.expect_messages(b"m1")
    alone = {"desired_capabilities": (symbol("sole-connection-for-container"),)}
    policy = {symbol("sole-connection-enforcement-policy"): 1}
    alice = log_in(s, "alice", SECRET, container_id=site_name, properties=policy, **alone).usual()
    alice.sender("q", name="orders")
    s.note("no connection was closed, and no link was stolen")
    bob.nothing()
    carol.nothing()
    again = log_in(s, "bob", SECRET, container_id=site_name).usual()
    again.receiver("q", name="orders", credit=1)
    stolen = bob.expect(Detach)
    assert stolen.error is not None
    assert stolen.error.condition == "amqp:link:stolen"
    again.expect_messages(b"m0")


def test_the_token_in_the_open_is_this_users_own(s: Stage, site: Site) -> None:
    for name in ("alice", "bob"):
        script = s.script(name, open=False)
        exchange(script, SaslClient(name, SECRET, prefer=(SCRAM,), random=os.urandom))
        answer = script.open(container_id=name)
        assert answer.properties is not None
        assert site.access.user_of_token(answer.properties[symbol("flight-token")]) == name


# ---- user ids


def _of_user(user_id: bytes | None, **fields: Any) -> bytes:
    return message(b"m", properties=Properties(user_id=user_id, **fields))


def test_a_message_of_another_user_is_refused(s: Stage) -> None:
    """3.2.4: the user-id is the authenticated sender of the message. Any other user-id is refused, on every kind of link."""
    a = log_in(s, "alice", SECRET).usual()
    a.sender("q")
    a.sender(name="relay", handle=1, target=Target())
    # An empty one, which the Java SDK of Service Bus writes, names no user.
    good = [_of_user(b"alice", message_id="x" * 300), _of_user(b""), message(b"m"), _of_user(b"alice", to="q")]
    for number, payload in enumerate(good):
        a.send(transfer(number, payload, handle=number // 3))
        a.expect(Disposition, first=number, state=Accepted())
    bad = [_of_user(b"bob", message_id="x" * 300), _of_user(b"Alice"), _of_user(b"alice "), _of_user(b"bob", to="q")]
    for number, payload in enumerate(bad, len(good)):
        a.send(transfer(number, payload, handle=number // 7))
        state = a.expect(Disposition, first=number).state
        assert isinstance(state, Rejected)
        assert state.error is not None
        assert state.error.condition == REFUSED
    assert s.counts("q") == {"available": len(good)}
    a.send(transfer(9, good[0]), transfer(10, bad[0], settled=True), transfer(11, good[0]))
    for number in (9, 11):
        a.expect(Disposition, first=number, state=Accepted())
    assert a.expect(Detach).error.info == {symbol("delivery-tag"): b"t10"}  # type: ignore[union-attr]


def test_a_bridge_may_send_messages_of_others(site: Site, tmp_path: Path) -> None:
    with stage(tmp_path, access=site.access, amqp_check_user_id=False) as s:
        s.declare("q")
        a = log_in(s, "alice", SECRET).usual()
        a.sender("q")
        a.send(transfer(0, _of_user(b"bob")))
        a.expect(Disposition, first=0, state=Accepted())


def test_without_users_nobodys_user_id_is_looked_at(tmp_path: Path) -> None:
    with stage(tmp_path) as s:
        s.declare("q")
        a = s.script().usual()
        a.sender("q")
        a.send(transfer(0, _of_user(b"bob")))
        a.expect(Disposition, first=0, state=Accepted())
