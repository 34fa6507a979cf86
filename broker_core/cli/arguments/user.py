"""Arguments of `penstock user …` and `penstock permit`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from .parsers import Commands, Parser, lazily, make_command, make_group

_FILE = "The broker applies it within a second, without a restart."


def add_commands(commands: Commands[Parser]) -> None:
    user = make_group(commands, "user", "manage users")

    add = _file_command(user, "add", f"add a user, or change the password and certificates of one. {_FILE}")
    add.add_argument("name", metavar="NAME")
    how = add.add_mutually_exclusive_group()
    how.add_argument(
        "--password-file",
        metavar="FILE",
        help="a file whose first line is the password; - is stdin. Default: ask at the terminal, else read stdin",
    )
    how.add_argument("--no-password", action="store_true", help="log in with a certificate only; needs --certificate")
    add.add_argument(
        "--certificate",
        action="append",
        default=[],
        metavar="NAME",
        help="the common name of a TLS certificate of this user (SASL EXTERNAL); may be repeated",
    )
    add.add_argument(
        "--replace", action="store_true", help="replace the password and certificates of an existing user; its permissions stay"
    )

    _file_command(user, "list", "list all users with their logins and permissions", run="list_all")

    remove = _file_command(user, "remove", f"remove a user and its permissions. {_FILE}")
    remove.add_argument("name", metavar="NAME")
    remove.add_argument(
        "--force", action="store_true", help="remove even the last user, after which every client may do everything"
    )

    permit = _file_command(commands, "permit", f"give a user rights on a queue, or revoke them. {_FILE}")
    permit.add_argument("user", metavar="USER", nargs="?", help="a user, or anonymous: clients that log in without a user name")
    permit.add_argument("queue", metavar="QUEUE", nargs="?", help="a queue's name, or a pattern; each * matches any text")
    permit.add_argument(
        "rights", metavar="RIGHT[,RIGHT…]", nargs="?", help="some of send, receive, browse, settle, replay, admin; or all"
    )
    permit.set_defaults(more=_fill)
    action = permit.add_mutually_exclusive_group()
    action.add_argument("--revoke", action="store_true", help="revoke these rights of this user on this queue or pattern")
    action.add_argument("--list", action="store_true", help="show the permissions of USER or of all users")


def _fill(args: argparse.Namespace, words: Sequence[str]) -> bool:
    """Add words after a flag; return False if there are too many."""
    free = [name for name in ("user", "queue", "rights") if getattr(args, name) is None]
    for name, word in zip(free, words, strict=False):
        setattr(args, name, word)
    return len(words) <= len(free)


def _file_command(commands: Commands[Parser], name: str, text: str, run: str | None = None) -> Parser:
    short = text.partition(".")[0]
    description = text[0].upper() + text[1:].rstrip(".") + "."
    command = make_command(commands, name, short, description, lazily("user", run or name))
    command.set_defaults(local=True)
    place = command.add_mutually_exclusive_group(required=True)
    place.add_argument("--data", type=Path, metavar="DIR", help="the broker's data directory; the file is users.json in it")
    place.add_argument("--users-file", type=Path, metavar="FILE", help="the file of the broker's setting users_file")
    command.add_argument("--json", action="store_true", help="print JSON to stdout, errors as JSON to stderr")
    return command
