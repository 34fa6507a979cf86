"""Access: permissions of users (W3). No change or damage of the file opens a broker."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import scram
from penstock.broker_core.security import ANONYMOUS, Access, Right, users_file
from penstock.broker_core.security.access import TOKEN_S, name_of
from penstock.broker_core.security.log_limit import LINES, WINDOW_S, LogLimit
from penstock.broker_core.settings.keys import Settings

from .helpers import Clock, access_of, refreshed, user, write

PEER = "192.0.2.1:40000"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users.json"


def test_without_users_everybody_may_everything(path: Path, clock: Clock) -> None:
    access = access_of(path, clock)
    assert not access.enforced
    assert all(access.may(name, right, queue) for name in (ANONYMOUS, "x") for right in Right for queue in ("q", None))
    assert access.may_any(ANONYMOUS, "q")


def test_with_a_user_everything_is_denied_that_is_not_permitted(path: Path, clock: Clock) -> None:
    access = access_of(write(path, {"alice": user()}), clock)
    assert access.enforced
    assert not any(
        access.may(name, right, queue) for name in ("alice", ANONYMOUS, "x") for right in Right for queue in ("q", None)
    )
    assert not any(access.may_any(name, queue) for name in ("alice", ANONYMOUS, "x") for queue in ("q", None))


def test_each_right_is_given_alone_and_on_its_queues_alone(path: Path, clock: Clock) -> None:
    for right in Right:
        access = access_of(write(path, {"alice": user(), "bob": user()}, {"alice": {"orders.*": right.value}}), clock)
        held = {
            (n, r, q)
            for n in ("alice", "bob", ANONYMOUS)
            for r in Right
            for q in ("orders.eu", "orders", "x", None)
            if access.may(n, r, q)
        }
        assert held == {("alice", right, "orders.eu")}
        assert access.may_any("alice", "orders.eu")
        assert not access.may_any("alice", "x")
        assert [r for r in Right if access.may_somewhere("alice", r)] == [right]


def test_all_queues_means_a_pattern_of_stars(path: Path, clock: Clock) -> None:
    access = access_of(write(path, {"alice": user(), "bob": user()}, {"alice": {"*": "admin"}, "bob": {"a*": "admin"}}), clock)
    assert access.may("alice", Right.ADMIN, None)
    assert not access.may("bob", Right.ADMIN, None)


def test_rights_of_several_patterns_add_up(path: Path, clock: Clock) -> None:
    access = access_of(write(path, {"alice": user()}, {"alice": {"orders": "send", "o*": "browse", "*s": "receive"}}), clock)
    assert {right for right in Right if access.may("alice", right, "orders")} == {Right.SEND, Right.BROWSE, Right.RECEIVE}


def test_anonymous_has_only_what_is_permitted_to_that_name(path: Path, clock: Clock) -> None:
    access = access_of(write(path, {"alice": user()}, {"alice": {"*": "send"}, ANONYMOUS: {"news": "browse"}}), clock)
    assert access.may(ANONYMOUS, Right.BROWSE, "news")
    assert not access.may(ANONYMOUS, Right.SEND, "news")
    assert not access.may(ANONYMOUS, Right.BROWSE, "orders")


# --- the file changes while the broker runs


def test_a_change_holds_without_a_restart_within_a_second(path: Path, clock: Clock) -> None:
    access = access_of(path, clock)
    write(path, {"alice": user()}, {"alice": {"q": "send"}})
    assert not access.refresh()  # looked at just now
    assert access.may(ANONYMOUS, Right.ADMIN, "q")
    assert refreshed(access, clock)
    assert (access.generation, access.enforced) == (1, True)
    assert access.may("alice", Right.SEND, "q")
    assert not access.may(ANONYMOUS, Right.ADMIN, "q")
    users_file.edit(path, lambda users: users.revoke("alice", "q", [Right.SEND]))
    assert refreshed(access, clock)
    assert not access.may("alice", Right.SEND, "q")
    assert not refreshed(access, clock)
    assert access.generation == 2


def test_a_file_of_the_same_size_and_time_is_noticed(path: Path, clock: Clock) -> None:
    access = access_of(write(path, {"alice": user()}, {"alice": {"q": "send"}}), clock)
    before = path.stat()
    write(path, {"alice": user()}, {"alice": {"x": "send"}})
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert refreshed(access, clock)
    assert access.may("alice", Right.SEND, "x")


@pytest.mark.parametrize("accident", ["deleted", "emptied", "torn", "a folder", "a loop of links"])
def test_an_accident_with_the_file_does_not_open_the_broker(
    path: Path, clock: Clock, accident: str, caplog: pytest.LogCaptureFixture
) -> None:
    access = access_of(write(path, {"alice": user()}, {"alice": {"q": "send"}}), clock)
    good = path.read_bytes()
    path.unlink()
    if accident == "emptied":
        path.write_bytes(b"")
    elif accident == "torn":
        path.write_bytes(good[:-20])
    elif accident == "a folder":
        path.mkdir()
    elif accident == "a loop of links":
        path.symlink_to(path)
    with caplog.at_level(logging.ERROR):
        assert not refreshed(access, clock)
        assert not refreshed(access, clock)
    (error,) = [record for record in caplog.records if record.levelno == logging.ERROR]  # once, not every second
    assert str(path) in error.getMessage()
    assert access.enforced
    assert access.may("alice", Right.SEND, "q")
    assert not access.may(ANONYMOUS, Right.SEND, "q")
    assert access.login("alice", "secret", PEER) == "alice"

    path.rmdir() if accident == "a folder" else path.unlink(missing_ok=True)
    path.write_bytes(good)
    assert refreshed(access, clock)


def test_a_broken_or_a_missing_file_that_was_named_keeps_the_broker_from_starting(path: Path) -> None:
    with pytest.raises(errors.InvalidRequest, match="penstock user add NAME --users-file"):
        Access(path, must_exist=True)
    path.write_bytes(b"{}")
    with pytest.raises(errors.InvalidRequest, match="cannot be used"):
        Access(path)


def test_a_broker_on_a_network_without_users_does_not_start_unless_it_is_told_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def logged_warnings(**settings: Any) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            Access.of(Settings(data=tmp_path, **settings))
        return [record.getMessage() for record in caplog.records]

    assert logged_warnings() == []
    both_ways_out = r"10\.0\.0\.1 .*penstock user add NAME --data .*allow_anonymous = true"
    for where in ({"host": "10.0.0.1"}, {"amqp_port": 0, "listeners": [{"host": "10.0.0.1", "port": 0}]}):
        with pytest.raises(errors.InvalidRequest, match=both_ways_out):
            logged_warnings(**where)
        assert ["10.0.0.1" in line for line in logged_warnings(**where, allow_anonymous=True)] == [True]
    write(tmp_path / "users.json", {"alice": user()})
    assert logged_warnings(host="10.0.0.1") == []
    with pytest.raises(errors.InvalidRequest, match="does not exist"):
        logged_warnings(users_file=tmp_path / "elsewhere.json")


def test_the_last_user_removed_opens_no_broker_on_a_network(path: Path, clock: Clock) -> None:
    write(path, {"alice": user()}, {"alice": {"q": "send"}})
    for may_be_open in (False, True):
        write(path, {"alice": user()}, {"alice": {"q": "send"}})
        access = Access(path, may_be_open=may_be_open, clock=clock, monotonic=clock)
        write(path, {})
        assert refreshed(access, clock)
        assert access.may(ANONYMOUS, Right.ADMIN, "q") is may_be_open
        assert access.may_any(ANONYMOUS) is may_be_open


# --- logging in


def test_the_right_password_and_nothing_else_logs_in(path: Path, clock: Clock) -> None:
    access = access_of(write(path, {"alice": user("pässword"), "spark": user(None, "cn")}), clock)
    assert access.login("alice", "pässword", PEER) == "alice"
    for name, password in [("alice", "password"), ("alice", ""), ("bob", "pässword"), ("spark", ""), ("", ""), ("anonymous", "")]:
        with pytest.raises(errors.Unauthenticated):
            access.login(name, password, PEER)


def test_wrong_password_and_unknown_user_are_answered_alike_and_cost_alike(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The text and the work (rounds and bytes) are equal for every name."""
    access = access_of(write(path, {"alice": user(), "spark": user(None, "cn")}), clock)
    work: list[tuple[int, int]] = []
    salted = scram.salted_password

    def counted(password: str, salt: bytes, iterations: int) -> bytes:
        work.append((len(salt), iterations))
        return salted(password, salt, iterations)

    monkeypatch.setattr(scram, "salted_password", counted)
    words = set()
    for name in ("alice", "bob", "spark"):
        with pytest.raises(errors.Unauthenticated) as refused, caplog.at_level(logging.WARNING):
            access.login(name, "not it", PEER)
        words.add(str(refused.value))
    assert len(words) == 1
    assert len(work) == 3
    assert len(set(work)) == 1
    lines = [record.getMessage() for record in caplog.records]
    assert all(PEER in line and "not it" not in line for line in lines)
    assert [name for name in ("alice", "bob", "spark") if any(name in line for line in lines)] == ["alice", "bob", "spark"]


def test_an_unknown_user_seems_the_same_over_restarts(path: Path, clock: Clock) -> None:
    write(path, {"alice": user()})
    first, second = access_of(path, clock), access_of(path, clock)
    assert first.secret == second.secret
    assert first.iterations == second.iterations == scram.MIN_ITERATIONS  # of alice, not the default


def test_a_password_that_was_right_is_not_computed_again_until_it_changes(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = access_of(write(path, {"alice": user("old")}), clock)
    access.login("alice", "old", PEER)
    with monkeypatch.context() as without:
        without.delattr(scram, "salted_password")
        assert access.login("alice", "old", PEER) == "alice"
    write(path, {"alice": user("new")})
    assert refreshed(access, clock)
    with pytest.raises(errors.Unauthenticated):
        access.login("alice", "old", PEER)
    assert access.login("alice", "new", PEER) == "alice"
    write(path, {"bob": user()})
    assert refreshed(access, clock)
    with pytest.raises(errors.Unauthenticated):
        access.login("alice", "new", PEER)


# --- tokens


def test_a_token_holds_for_an_hour_and_for_its_user(path: Path, clock: Clock) -> None:
    access = access_of(write(path, {"alice": user(), "bob": user()}), clock)
    token = access.token("alice")
    assert access.user_of_token(token) == "alice"
    clock.pass_(TOKEN_S - 1)
    assert access.user_of_token(token) == "alice"
    clock.pass_(1)
    assert access.user_of_token(token) is None
    assert access.user_of_token(access.token(ANONYMOUS)) == ANONYMOUS
    with pytest.raises(errors.NotFound):
        access.token("nobody")


def test_a_token_that_anybody_touched_is_nothing(path: Path, clock: Clock) -> None:
    access = access_of(write(path, {"alice": user()}), clock)
    token = access.token("alice")
    body, _, mac = token.partition(".")
    others = [token[:-1], token + "=", body, mac, "", ".", "é" + token, token + "." + mac, "x" * 5000, f"{body}x.{mac}"]
    flipped = [token[:i] + ("A" if token[i] != "A" else "B") + token[i + 1 :] for i in range(len(token)) if token[i] not in ".="]
    assert not [wrong for wrong in others + flipped if access.user_of_token(wrong) is not None]


def test_a_token_ends_with_a_restart_a_new_password_another_certificate_and_its_user(path: Path, clock: Clock) -> None:
    access = access_of(write(path, {"alice": user()}, {"alice": {"q": "send"}}), clock)
    assert access_of(path, clock).user_of_token(access.token("alice")) is None
    for users in ({"alice": user("new")}, {"alice": user("new", "cn")}, {"bob": user()}):
        token = access.token("alice")
        write(path, users)
        assert refreshed(access, clock)
        assert access.user_of_token(token) is None


def test_a_token_survives_a_change_of_others_and_of_permissions(path: Path, clock: Clock) -> None:
    access = access_of(write(path, {"alice": user()}), clock)
    token = access.token("alice")
    write(path, {"alice": user(), "bob": user()}, {"alice": {"q": "send"}})
    assert refreshed(access, clock)
    assert access.user_of_token(token) == "alice"


# --- certificates

ALWAYS = "Jan  1 00:00:00 2100 GMT"


def test_a_certificate_is_its_user_by_common_name_or_the_first_other_name(path: Path, clock: Clock) -> None:
    access = access_of(write(path, {"alice": user(None, "alice.example", "old.example"), "bob": user()}), clock)

    def who(common: list[str], alternatives: list[str], until: str = ALWAYS) -> str | None:
        subject = tuple((("commonName", name),) for name in common)
        names = tuple(("DNS", name) for name in alternatives)
        return access.user_of_certificate({"subject": subject, "subjectAltName": names, "notAfter": until})

    assert who(["alice.example"], []) == "alice"
    assert who(["old.example"], ["x"]) == "alice"
    assert who([], ["alice.example"]) == "alice"
    assert who(["mallory"], ["alice.example"]) is None  # the common name is the name
    assert who([], ["x", "alice.example"]) is None
    assert who(["alice.example", "mallory"], []) is None  # which of them?
    assert who(["alice"], []) is None  # a user's name is not automatically a certificate's
    assert who(["bob"], []) is None
    assert who([], []) is None
    assert who(["alice.example"], [], until="Jan  1 00:00:00 2020 GMT") is None  # a resumed session may show it
    assert access.user_of_certificate({}) is None
    assert access.user_of_certificate(None) is None


def test_only_the_common_name_of_a_subject_counts() -> None:
    subject = ((("organizationName", "alice"),), (("commonName", "bob"),))
    assert name_of({"subject": subject}) == "bob"


# --- the log


def test_refusals_cannot_fill_the_log() -> None:
    clock = Clock()
    limit = LogLimit(clock)

    def line(level: int = logging.WARNING) -> logging.LogRecord:
        return logging.LogRecord("x", level, "", 0, "refused %s", ("mallory",), None)

    assert sum(limit.filter(line()) for _ in range(LINES + 1000)) == LINES
    assert limit.filter(line(logging.ERROR))
    clock.pass_(WINDOW_S)
    first = line()
    assert limit.filter(first)
    assert first.getMessage() == "refused mallory (1000 similar lines were omitted before)"


def test_rights_that_were_taken_away_while_no_file_could_be_opened_are_taken_away_later(path: Path, clock: Clock) -> None:
    access = access_of(write(path, {"alice": user()}, {"alice": {"q": "send"}}), clock)
    assert access.may("alice", Right.SEND, "q")
    write(path, {"bob": user()})
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/dev/fd"))
    hoard = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(highest + 50, before[0]), before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                hoard.append(os.open(os.devnull, os.O_RDONLY))
        refreshed(access, clock)
        assert access.may("alice", Right.SEND, "q"), "nothing is read, so nothing changes"
    finally:
        for descriptor in hoard:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    refreshed(access, clock)
    assert not access.may("alice", Right.SEND, "q")
