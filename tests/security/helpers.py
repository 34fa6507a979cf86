"""Helpers that the tests of users and permissions share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.broker_core.amqp import scram
from penstock.broker_core.security import Access, users_file
from penstock.broker_core.security.rights import Right
from penstock.broker_core.security.users import User, Users, credentials_of

#: RFC 7677's least: these tests check many passwords, and none of them is a secret.
QUICK = scram.MIN_ITERATIONS


def user(password: str | None = "secret", *certificates: str) -> User:
    credentials = None if password is None else credentials_of(password, b"0123456789abcdef", QUICK)
    return User(credentials, certificates)


def write(path: Path, users: Mapping[str, User], permissions: Mapping[str, Mapping[str, str]] | None = None) -> Path:
    """Write a new users file with the same secret. `permissions` is {user: {queue: "send,receive"}}."""

    def change(before: Users) -> Users:
        after = Users(before.secret)
        for name, user in users.items():
            after = after.add(name, user)
        for name, held in (permissions or {}).items():
            for queue, rights in held.items():
                after = after.permit(name, queue, map(Right, rights.split(",")))
        return after

    users_file.edit(path, change)
    return path


class Clock:
    """Clock in seconds that a test advances."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def access_of(path: Path, clock: Clock) -> Access:
    return Access(path, clock=clock, monotonic=clock)


def refreshed(access: Access, clock: Clock) -> bool:
    clock.pass_(1)
    return access.refresh()
