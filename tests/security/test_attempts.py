"""Guessing passwords is slow, for whom guesses (W2)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import scram
from penstock.broker_core.security import failed_logins
from penstock.broker_core.security.failed_logins import (
    FAILURES_OF_A_NAME,
    FAILURES_OF_A_PEER,
    WINDOW_S,
    Attempts,
    host_of,
    on_this_machine,
)
from penstock.broker_core.security.passwords import CHECKS_AT_ONCE

from .helpers import Clock, access_of, user, write

HERE, THERE = "192.0.2.1:1000", "192.0.2.2:1000"


def test_a_name_is_guessed_at_ten_times_a_minute_from_one_address() -> None:
    clock = Clock()
    limit = Attempts(clock)
    for number in range(FAILURES_OF_A_NAME):
        assert not limit.blocked(f"192.0.2.1:{number}", "alice")
        limit.failed(f"192.0.2.1:{number}", "alice")  # another port is the same guesser
    assert limit.blocked(HERE, "alice")
    assert not limit.blocked(HERE, "bob")
    assert not limit.blocked(HERE)
    assert not limit.blocked(THERE, "alice")
    clock.pass_(WINDOW_S)
    assert not limit.blocked(HERE, "alice")
    limit.failed(HERE, "alice")
    assert not limit.blocked(HERE, "alice")


def test_an_address_may_fail_a_hundred_times_a_minute_with_whatever_names() -> None:
    limit = Attempts(Clock())
    for number in range(FAILURES_OF_A_PEER):
        assert not limit.blocked(HERE, f"user {number}")
        limit.failed(HERE, None if number % 2 else f"user {number}")
    assert limit.blocked(HERE, "somebody else")
    assert limit.blocked(HERE)
    assert not limit.blocked(THERE)


def test_memory_is_bounded_whatever_strangers_send(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_logins, "REMEMBERED", 50)
    limit = Attempts(Clock())
    for number in range(500):
        limit.failed(f"10.0.{number >> 8}.{number & 255}", "x" * 100_000)
    assert len(limit._counts) <= 50
    assert max(len(name or "") for _, name in limit._counts) <= 255


def test_guesses_that_come_at_once_are_no_more_than_one_after_another(tmp_path: Path) -> None:
    access = access_of(write(tmp_path / "users.json", {"alice": user()}), Clock())
    count, refusals = 60, []
    together = threading.Barrier(count)

    def guess(number: int) -> None:
        together.wait()
        with pytest.raises(errors.Unauthenticated) as refused:
            access.login("alice", f"guess {number}", HERE)
        refusals.append("wrong user or password" in str(refused.value))

    guessers = [threading.Thread(target=guess, args=(number,)) for number in range(count)]
    for guesser in guessers:
        guesser.start()
    for guesser in guessers:
        guesser.join()
    assert len(refusals) == count
    assert FAILURES_OF_A_NAME <= sum(refusals) < FAILURES_OF_A_NAME + CHECKS_AT_ONCE


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("192.0.2.1:5672", "192.0.2.1"),
        ("192.0.2.1", "192.0.2.1"),
        ("ipv4:192.0.2.1:40000", "192.0.2.1"),
        ("ipv6:%5B::1%5D:40000", "::/64"),
        ("[2001:db8:1:2:3:4:5:6]:5672", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),  # one machine has all of a /64 to choose from
        ("[fe80::1%eth0]:5672", "fe80::/64"),
        ("[::ffff:192.0.2.1]:1", "192.0.2.1"),
        ("unix:", "unix"),
    ],
)
def test_a_peer_is_an_address_without_its_port(peer: str, host: str) -> None:
    assert host_of(peer) == host


def test_only_loopback_is_this_machine() -> None:
    assert [on_this_machine(p) for p in ("127.0.0.1:1", "127.9.9.9", "[::1]:1", "ipv6:%5B::1%5D:40000", "unix:")] == [True] * 5
    assert not [p for p in ("192.0.2.1:1", "[2001:db8::1]:1", "localhost.example:1", "0.0.0.0:1", "") if on_this_machine(p)]


def test_a_guesser_is_stopped_before_any_work_and_clients_that_are_in_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    access = access_of(write(tmp_path / "users.json", {"alice": user(), "bob": user("other")}), clock)
    access.login("alice", "secret", HERE)
    for number in range(FAILURES_OF_A_NAME):
        with pytest.raises(errors.Unauthenticated, match="wrong user or password"):
            access.login("alice", f"guess {number}", HERE)
    with monkeypatch.context() as without:
        without.delattr(scram, "salted_password")
        with pytest.raises(errors.Unauthenticated, match="wait a minute"):
            access.login("alice", "one more", HERE)
        assert access.login("alice", "secret", HERE) == "alice"  # was right before
    assert access.login("bob", "other", HERE) == "bob"
    clock.pass_(WINDOW_S)
    with pytest.raises(errors.Unauthenticated, match="wrong user or password"):
        access.login("alice", "one more", HERE)
