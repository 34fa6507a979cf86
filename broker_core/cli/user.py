"""`penstock user …` and `penstock permit` change the users file, which the broker reloads."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from pathlib import Path
from typing import Any

from .. import errors
from ..security import keys_file, users_file
from ..security import users as u
from ..security.rights import Right, names_of
from ..security.users import User, Users
from . import local_audit, show
from .main import UsageError

_LIST = show.columns("user", "password", "certificates", "permissions")
_PERMISSIONS = show.columns("user", "queue", "rights")


def add(args: argparse.Namespace) -> int:
    if args.no_password and not args.certificate:
        raise UsageError("--no-password needs --certificate: without both, no client could log in as this user")
    u.check_user_name(args.name)  # before the question for the password
    credentials = None if args.no_password else u.credentials_of(_password(args), os.urandom(u.SALT_BYTES))
    user = User(credentials, tuple(dict.fromkeys(args.certificate)))

    def change(users: Users) -> Users:
        if args.name in users.users and not args.replace:
            raise errors.AlreadyExists(f"user {args.name!r} exists already; --replace replaces its password and certificates")
        if args.replace:
            users.need(args.name)
        return users.add(args.name, user)

    users = users_file.edit(file_of(args, make=True), change)
    audit(args, "user.replace" if args.replace else "user.add", args.name, certificates=list(user.certificates))
    text = f"user {args.name} is {'changed' if args.replace else 'added'}"
    if len(users.users) == 1 and not args.replace:
        text += "\nthis is the first user: the broker now denies everything without a permission; see `penstock permit --help`"
    return show.answer(args, _row(users, args.name), text)


def list_all(args: argparse.Namespace) -> int:
    users = read(args)
    rows = [_row(users, name) for name in sorted(users.users)]
    empty = "no users: every client may do everything. Add one with `penstock user add NAME`"
    in_words = [{**row, "permissions": _in_words(row["permissions"])} for row in rows]
    return show.listed(args, rows, _LIST, empty=empty, rows=in_words)


def remove(args: argparse.Namespace) -> int:
    def change(users: Users) -> Users:
        after = users.remove(args.name)
        if not after.users and not args.force:
            raise errors.InUse(
                f"{args.name!r} is the last user: without users every client may do everything. --force removes it anyway"
            )
        return after

    users_file.edit(file_of(args), change)
    keys_file.forget(file_of(args), args.name)
    audit(args, "user.remove", args.name)
    return show.answer(args, {"user": args.name}, f"user {args.name} is removed with its permissions")


def key(args: argparse.Namespace) -> int:
    read(args).need(args.name)
    path, user = keys_file.path_of(file_of(args)), args.name
    if args.remove:
        keys_file.edit(path, lambda keys: keys_file.without(keys, user))
        audit(args, "user.key.remove", user)
        return show.answer(args, {"user": user}, f"user {user} has no shared-access key any more")
    random = os.urandom(keys_file.KEY_BYTES)
    keys_file.edit(path, lambda keys: keys_file.with_new(keys, user, random))
    audit(args, "user.key", user)
    made = keys_file.with_new({}, user, random)[user][0]
    text = f"SharedAccessKeyName={user};SharedAccessKey={made}"
    return show.answer(args, {"user": user, "key": made}, text)


def permit(args: argparse.Namespace) -> int:
    if args.list:
        if args.queue is not None:
            raise UsageError("--list takes no QUEUE: it shows the permissions of one user, or of all users")
        return _list_permissions(args)
    if args.rights is None:
        raise UsageError("permit takes USER QUEUE RIGHT[,RIGHT…], or --list")
    rights = _rights(args.rights)

    edit = Users.revoke if args.revoke else Users.permit
    users = users_file.edit(file_of(args), lambda users: edit(users, args.user, args.queue, rights))
    names = names_of(rights)
    audit(args, "user.revoke" if args.revoke else "user.permit", args.user, queue=args.queue, rights=names)
    held = names_of(users.permissions.get(args.user, {}).get(args.queue, ()))
    text = f"{args.user} may {', '.join(held) or 'nothing'} on {args.queue}"
    if not users.users:
        text += "\nthere are no users yet, so every client may do everything; see `penstock user add --help`"
    return show.answer(args, {"user": args.user, "queue": args.queue, "rights": held}, text)


def _list_permissions(args: argparse.Namespace) -> int:
    users = read(args)
    if args.user not in (None, u.ANONYMOUS):
        users.need(args.user)
    names = sorted(users.permissions) if args.user is None else [args.user]
    rows = [
        {"user": name, "queue": queue, "rights": names_of(rights)}
        for name in names
        for queue, rights in sorted(users.permissions.get(name, {}).items())
    ]
    empty = "nothing is permitted yet" if users.users else "no users: every client may do everything"
    return show.listed(args, rows, _PERMISSIONS, empty=empty)


def _row(users: Users, name: str) -> dict[str, Any]:
    user = users.users[name]
    held = users.permissions.get(name, {})
    return {
        "user": name,
        "password": user.credentials is not None,
        "certificates": list(user.certificates),
        "permissions": {queue: names_of(held[queue]) for queue in sorted(held)},
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


def audit(args: argparse.Namespace, action: str, name: str, **details: Any) -> None:
    """Without `--data`, the directory is unknown, and only a running broker records the change."""
    if args.data is not None:
        local_audit.add(args.data, action, name, **details)


def file_of(args: argparse.Namespace, *, make: bool = False) -> Path:
    path: Path = args.users_file if args.data is None else args.data / users_file.FILE_NAME
    try:
        if args.data is None and not path.parent.is_dir():
            raise UsageError(f"--users-file cannot be {path}: there is no folder {path.parent}")
        if make and args.data is not None and not args.data.exists():  # so that the broker is never open
            try:
                args.data.mkdir(mode=0o700, parents=True)
            except OSError as error:
                raise UsageError(f"--data cannot be {args.data}: {error.strerror or error}") from error
            print(f"penstock: {args.data} is new; no broker has run on it yet", file=sys.stderr)
        if not make and not path.exists():
            raise errors.NotFound(f"there is no users file {path}: `penstock user add NAME` creates it")
    except OSError as error:
        text = f"{error.filename} cannot be examined: {error.strerror or error}; run this as the broker's account"
        raise UsageError(text) from error
    return path


def read(args: argparse.Namespace) -> Users:
    users = users_file.read(file_of(args))
    if users is None:
        raise errors.NotFound("the users file was deleted")
    return users


def _password(args: argparse.Namespace) -> str:
    if args.password_file not in (None, "-"):
        try:
            with open(args.password_file, "rb") as file:
                return _line(file.readline(4 * u.MAX_PASSWORD + 2), args.password_file)
        except OSError as error:
            raise UsageError(f"--password-file {args.password_file} cannot be read: {error.strerror or error}") from error
    if args.password_file is None and sys.stdin.isatty():
        password = getpass.getpass(f"Password of {args.name}: ")
        if getpass.getpass("Repeat it: ") != password:
            raise UsageError("the two passwords differ; nothing was changed")
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
