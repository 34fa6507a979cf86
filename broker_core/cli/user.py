"""`penstock user …` and `penstock permit`: they change the users file, and the broker notices."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from pathlib import Path
from typing import Any

from .. import errors
from ..security import store
from ..security import users as u
from ..security.rights import Right
from ..security.users import User, Users
from . import show
from .main import UsageError

_LIST = {"user": "user", "password": "password", "certificates": "certificates", "permissions": "permissions"}
_PERMISSIONS = {"user": "user", "queue": "queue", "rights": "rights"}


def add(given: argparse.Namespace) -> int:
    """Run `penstock user add`."""
    if given.no_password and not given.certificate:
        raise UsageError("--no-password needs --certificate: with neither, nobody could log in as this user")
    u.check_user_name(given.name)  # before anybody is asked for a password
    credentials = None if given.no_password else u.credentials_of(_password(given), os.urandom(u.SALT_BYTES))
    user = User(credentials, tuple(dict.fromkeys(given.certificate)))

    def change(users: Users) -> Users:
        if given.name in users.users and not given.replace:
            raise errors.AlreadyExists(
                f"there is a user {given.name!r} already; --replace replaces its password and certificates"
            )
        if given.replace:
            users.need(given.name)
        return users.add(given.name, user)

    users = store.edit(_file(given, make=True), change)
    if given.json:
        show.print_json(_row(users, given.name))
        return 0
    show.say(f"user {given.name} is {'changed' if given.replace else 'added'}")
    if len(users.users) == 1 and not given.replace:
        show.say("it is the first user: from now on the broker denies what no permission allows; see `penstock permit --help`")
    return 0


def list_all(given: argparse.Namespace) -> int:
    """Run `penstock user list`."""
    users = _read(given)
    rows = [_row(users, name) for name in sorted(users.users)]
    if given.json:
        show.print_json(rows)
        return 0
    empty = "no users: everything is allowed to everybody. Add one with `penstock user add NAME`"
    show.print_table([{**row, "permissions": _in_words(row["permissions"])} for row in rows], _LIST, empty=empty)
    return 0


def remove(given: argparse.Namespace) -> int:
    """Run `penstock user remove`."""

    def change(users: Users) -> Users:
        after = users.remove(given.name)
        if not after.users and not given.force:
            raise errors.InUse(
                f"{given.name!r} is the last user: without users everything is allowed to everybody. --force "
                f"removes it all the same"
            )
        return after

    store.edit(_file(given), change)
    return show.answer(given, {"user": given.name}, f"user {given.name} is removed, with its permissions")


def permit(given: argparse.Namespace) -> int:
    """Run `penstock permit`."""
    if given.list:
        if given.queue is not None:
            raise UsageError("--list takes no QUEUE: it shows what one user may do, or all users")
        return _list_permissions(given)
    if given.rights is None:
        raise UsageError("permit takes USER QUEUE RIGHT[,RIGHT…], or --list")
    rights = _rights(given.rights)

    def change(users: Users) -> Users:
        edit = users.revoke if given.revoke else users.permit
        return edit(given.user, given.queue, rights)

    users = store.edit(_file(given), change)
    held = sorted(right.value for right in users.permissions.get(given.user, {}).get(given.queue, ()))
    if given.json:
        show.print_json({"user": given.user, "queue": given.queue, "rights": held})
        return 0
    show.say(f"{given.user} may {', '.join(held) or 'nothing any more'} on {given.queue}")
    if not users.users:
        show.say("there are no users yet, so everything is allowed to everybody; see `penstock user add --help`")
    return 0


def _list_permissions(given: argparse.Namespace) -> int:
    users = _read(given)
    if given.user not in (None, u.ANONYMOUS):
        users.need(given.user)
    names = sorted(users.permissions) if given.user is None else [given.user]
    rows = [
        {"user": name, "queue": queue, "rights": sorted(right.value for right in rights)}
        for name in names
        for queue, rights in sorted(users.permissions.get(name, {}).items())
    ]
    empty = "nothing is permitted yet" if users.users else "no users: everything is allowed to everybody"
    return show.listed(given, rows, _PERMISSIONS, empty=empty)


def _row(users: Users, name: str) -> dict[str, Any]:
    """Select what may be shown of a user: never what a password is checked against."""
    user = users.users[name]
    held = users.permissions.get(name, {})
    return {
        "user": name,
        "password": user.credentials is not None,
        "certificates": list(user.certificates),
        "permissions": {queue: sorted(right.value for right in held[queue]) for queue in sorted(held)},
    }


def _in_words(permissions: dict[str, list[str]]) -> str:
    return "; ".join(f"{queue}: {', '.join(rights)}" for queue, rights in permissions.items()) or "–"


def _rights(text: str) -> list[Right]:
    names = [name.strip() for name in text.split(",")]
    if names == ["all"]:
        return list(Right)
    try:
        return [Right(name) for name in names]
    except ValueError:
        raise UsageError(f"{text!r} is not a list of rights; give all, or some of {', '.join(Right)}, comma-separated") from None


def _file(given: argparse.Namespace, *, make: bool = False) -> Path:
    try:
        return _place(given, make)
    except OSError as error:
        text = f"{error.filename} cannot be looked at: {error.strerror or error}; run this as the broker's account"
        raise UsageError(text) from error


def _place(given: argparse.Namespace, make: bool) -> Path:
    if given.users_file is not None:
        path: Path = given.users_file
        if not path.parent.is_dir():
            raise UsageError(f"--users-file cannot be {path}: there is no folder {path.parent}")
    else:
        path = given.data / store.FILE_NAME
        if make and not given.data.exists():  # users before the first start: the broker is never open
            try:
                given.data.mkdir(mode=0o700, parents=True)
            except OSError as error:
                raise UsageError(f"--data cannot be {given.data}: {error.strerror or error}") from error
            print(f"penstock: {given.data} is new; no broker has run on it yet", file=sys.stderr)
    if not make and not path.exists():
        raise errors.NotFound(f"there is no users file {path}: `penstock user add NAME` makes it")
    return path


def _read(given: argparse.Namespace) -> Users:
    users = store.read(_file(given))
    if users is None:
        raise errors.NotFound("the users file is gone")
    return users


def _password(given: argparse.Namespace) -> str:
    """One line, without its end."""
    if given.password_file not in (None, "-"):
        try:
            with open(given.password_file, "rb") as file:
                return _line(file.readline(4 * u.MAX_PASSWORD + 2), given.password_file)
        except OSError as error:
            raise UsageError(f"--password-file {given.password_file} cannot be read: {error.strerror or error}") from error
    if given.password_file is None and sys.stdin.isatty():
        password = getpass.getpass(f"Password of {given.name}: ")
        if getpass.getpass("The same again: ") != password:
            raise UsageError("the two passwords are not the same; nothing was changed")
        return password
    return _line(sys.stdin.buffer.readline(4 * u.MAX_PASSWORD + 2), "stdin")


def _line(octets: bytes, where: str) -> str:
    try:
        password = octets.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError(f"the password in {where} is not UTF-8") from None
    if not password:
        raise UsageError(f"the first line of {where} is empty: it must be the password")
    return password
