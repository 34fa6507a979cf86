"""Arguments of `penstock user …` and `penstock permit`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .parsers import JSON, Commands, Parser, add_users_file, flag, lazily, make_command, make_group, option, repeated, sentence

_FILE = "The broker applies it within a second, without a restart."


def add_commands(commands: Commands) -> None:
    user = make_group(commands, "user", "manage users")

    add = _file_command(user, "add", f"add a user, or change the password and certificates of one. {_FILE}")
    add.add_argument("name", metavar="NAME")
    how = add.add_mutually_exclusive_group()
    text = "a file whose first line is the password; - is stdin. Default: ask at the terminal, else read stdin"
    option(how, "--password-file", "FILE", text)
    flag(how, "--no-password", "log in with a certificate only; needs --certificate")
    repeated(add, "--certificate", "NAME", "the common name of a TLS certificate of this user (SASL EXTERNAL); may be repeated")
    flag(add, "--replace", "replace the password and certificates of an existing user; its permissions stay")

    _file_command(user, "list", "list all users with their logins and permissions", run="list_all")

    remove = _file_command(user, "remove", f"remove a user and its permissions. {_FILE}")
    remove.add_argument("name", metavar="NAME")
    flag(remove, "--force", "remove even the last user, after which every client may do everything")

    key = _file_command(user, "key", f"make a shared-access key for programs of Azure Service Bus, and print it. {_FILE}")
    key.add_argument("name", metavar="NAME")
    flag(key, "--remove", "remove all keys of the user; otherwise the previous key stays valid next to the new one")

    permit = _file_command(commands, "permit", f"give a user rights on a queue, or revoke them. {_FILE}")
    option(permit, "user", "USER", "a user, or anonymous: clients that log in without a user name", nargs="?")
    option(permit, "queue", "QUEUE", "a queue's name, or a pattern; each * matches any text", nargs="?")
    option(permit, "rights", "RIGHT[,RIGHT…]", "some of send, receive, browse, settle, replay, admin; or all", nargs="?")
    permit.set_defaults(more=_fill)
    action = permit.add_mutually_exclusive_group()
    flag(action, "--revoke", "revoke these rights of this user on this queue or pattern")
    flag(action, "--list", "show the permissions of USER or of all users")


def _fill(args: argparse.Namespace, words: Sequence[str]) -> bool:
    """Return False for too many words after a flag."""
    free = [name for name in ("user", "queue", "rights") if getattr(args, name) is None]
    for name, word in zip(free, words, strict=False):
        setattr(args, name, word)
    return len(words) <= len(free)


def _file_command(commands: Commands, name: str, text: str, run: str | None = None) -> Parser:
    command = make_command(commands, name, text.partition(".")[0], sentence(text), lazily("user", run or name))
    command.set_defaults(local=True)
    add_users_file(command)
    flag(command, "--json", JSON)
    return command
