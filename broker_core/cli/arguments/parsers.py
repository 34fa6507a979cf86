"""Functions that declare commands and parse numbers."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeAlias

from ...settings import keys, listeners
from ...similar import nearest

EXIT_CODES = """\
exit codes: 0 done, 1 refused, 2 usage, 3 the broker cannot be reached, 4 its storage failed, 130 interrupted"""

SELECTOR = "only messages that match, such as \"colour = 'red' AND size > 5\""
JSON = "print JSON to stdout, errors as JSON to stderr"

Run = Callable[[argparse.Namespace], int]
Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


class Parser(argparse.ArgumentParser):
    """Parser of a command. `has_options`: its flag `--option` has options of queues."""

    has_options = False
    #: With `--json`: prints an error as JSON and ends the program.
    report: ClassVar[Callable[[str], NoReturn] | None] = None

    def error(self, message: str) -> NoReturn:
        if Parser.report is not None:
            Parser.report(f"{message}; see `{self.prog} --help`")
        super().error(message)

    def format_help(self) -> str:
        text = super().format_help()
        if not self.has_options:
            return text
        from ...engine.model.options import described  # late, because it needs numpy

        return f"{text}\noptions of queues:\n{described()}\n"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            if isinstance(action, argparse._SubParsersAction):
                known, word = list(action.choices), str(value)
                same = next((verb for verb in _VERBS.get(word, ()) if verb in known), None)
                guess = same or nearest(word, known)
                error.message += "" if guess is None else f"; did you mean {guess!r}?"
            raise

    def refuse(self, words: Sequence[str]) -> NoReturn:
        name, equals, _ = next((word for word in words if word.startswith("-")), words[0]).partition("=")
        option = None
        if self.has_options:
            from ...engine.model.options import OPTIONS

            option = nearest(name, OPTIONS)
        flags = [text for text in self._option_string_actions if text.startswith("--")]
        flag = next((text for text in flags if len(name) > 2 and text.startswith(name)), None) or nearest(name, flags)
        ends = sorted(text for text in flags if text.endswith(f"-{name.lstrip('-')}"))  # --port: of each plane
        hint = ""
        if flag is None and len(ends) > 1 and name.startswith("--"):
            hint = f"; did you mean {', '.join(ends[:-1])} or {ends[-1]}?"
        elif option is not None and (equals or flag is None):
            hint = f"; did you mean --option {option}=…?"
        elif flag not in (None, name) and name.startswith("-"):
            hint = f"; did you mean {flag}?"
        self.error(f"unrecognized arguments: {' '.join(words)}{hint}")


#: Verbs of other command lines, with ours.
_VERBS = {
    **dict.fromkeys(("ls", "show-all"), ("list",)),
    **dict.fromkeys(("show", "info", "get", "describe", "stats", "inspect"), ("stat", "status", "list")),
    **dict.fromkeys(("create", "add", "make", "new"), ("declare", "add")),
    **dict.fromkeys(("rm", "remove", "drop", "destroy"), ("delete", "remove", "close")),
    **dict.fromkeys(("empty", "clear", "truncate"), ("purge", "discard")),
    **dict.fromkeys(("update", "set", "change", "edit", "modify"), ("alter",)),
    **dict.fromkeys(("publish", "produce", "put"), ("send",)),
    **dict.fromkeys(("consume", "subscribe"), ("receive",)),
    **dict.fromkeys(("start", "run", "server"), ("serve",)),
}


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def make_group(commands: Commands, name: str, text: str) -> Commands:
    group = commands.add_parser(name, help=text, description=sentence(text), allow_abbrev=False)
    return group.add_subparsers(title="commands", metavar="COMMAND", required=True)


def client_command(
    commands: Commands, name: str, text: str, module: str, /, run: str | None = None, **positionals: str
) -> Parser:
    """Add a command that calls a broker. `run`: its function in `module`. `positionals`: their metavars."""
    command = make_command(commands, name, text, sentence(text), lazily(module, run or name))
    text = f"amqp://HOST[:PORT], amqps://…, grpc://HOST:PORT, grpc+tls://…; default: $PENSTOCK_URL, else {keys.DEFAULT_URL}"
    add_login(command, keys.DEFAULT_URL, text)
    flag(command, "--json", JSON)
    for dest, metavar in positionals.items():
        command.add_argument(dest, metavar=metavar)
    return command


def make_command(commands: Commands, name: str, text: str, description: str, run: Run) -> Parser:
    command = commands.add_parser(name, help=text, description=description, epilog=EXIT_CODES, allow_abbrev=False)
    command.set_defaults(run=run, refuse=command.refuse)
    return command


def add_login(command: Parser, default_url: str | None, text: str) -> None:
    """Add `--url` and the credentials."""
    command.add_argument("--url", default=os.environ.get("PENSTOCK_URL", default_url), help=text)
    option(command, "--user", "NAME", "log in as this user; asks for the password at a terminal. Default: $PENSTOCK_USER")
    text = "a file whose first line is the user's password. Default: $PENSTOCK_PASSWORD_FILE"
    option(command, "--password-file", "FILE", text)
    option(command, "--ca-file", "FILE", "trust these CAs (PEM) instead of the system's, for TLS. Default: $PENSTOCK_CA_FILE")
    option(command, "--cert-file", "FILE", "a client certificate (PEM), which can replace the password")
    option(command, "--key-file", "FILE", "the certificate's key (PEM); default: in --cert-file")


def add_users_file(command: Parser, *, required: bool = True, text: str = "") -> None:
    """`text`: the file's purpose."""
    place, begin = command.add_mutually_exclusive_group(required=required), f"{text} " * bool(text)
    option(place, "--data", "DIR", f"{begin}the broker's data directory; the file is users.json in it", type=Path)
    option(place, "--users-file", "FILE", f"{begin}the file of the broker's setting users_file", type=Path)


def option(command: argparse._ActionsContainer, name: str, metavar: str, text: str, **more: Any) -> None:
    command.add_argument(name, metavar=metavar, help=text, **more)


def repeated(command: argparse._ActionsContainer, name: str, metavar: str, text: str, **more: Any) -> None:
    command.add_argument(name, metavar=metavar, help=text, action="append", default=[], **more)


def flag(command: argparse._ActionsContainer, name: str, text: str) -> None:
    command.add_argument(name, action="store_true", help=text)


def lazily(module: str, function: str) -> Run:
    """Import the module when the command runs: `--help` needs neither Arrow nor numpy."""

    def run(args: argparse.Namespace) -> int:
        import importlib

        code: int = getattr(importlib.import_module(f"penstock.broker_core.cli.{module}"), function)(args)
        return code

    return run


def extending(name: str, kind: Callable[[str], object]) -> Callable[[argparse.Namespace, Sequence[str]], bool]:
    """Return a function that adds words after a flag, which argparse leaves over, to positional arguments."""

    def more(args: argparse.Namespace, words: Sequence[str]) -> bool:
        getattr(args, name).extend(map(kind, words))
        return True

    return more


MAX_NUMBER = 2**63 - 1


def whole(text: str) -> int:
    return listeners.parse_number(text)


def natural(text: str) -> int:
    number = whole(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    if number > MAX_NUMBER:
        raise argparse.ArgumentTypeError(f"{text} is more than {MAX_NUMBER:,}")
    return number


def positive(text: str) -> int:
    number = natural(text)
    if number == 0:
        raise argparse.ArgumentTypeError("0 is less than 1")
    return number


def sequences(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    bounds = natural(first), natural(last if dash else first)
    if bounds[0] > bounds[1]:
        raise argparse.ArgumentTypeError(f"the end of {text} is below its begin")
    return bounds


whole.__name__ = natural.__name__ = positive.__name__ = "whole number"  # for the errors of argparse
sequences.__name__ = "sequence number or range"
