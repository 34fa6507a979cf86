"""From the command line to a function, and from an error to a sentence and an exit code."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from .. import errors, logs
from .arguments import parser as parser_of_all
from .arguments.parsers import Parser

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REFUSED, USAGE, UNREACHABLE, STORAGE, INTERRUPTED = 1, 2, 3, 4, 130

#: Flags that may also precede the command. All but the last have a value.
LEADING = ("--url", "--user", "--password-file", "--ca-file", "--cert-file", "--key-file", "--json")

_BY_FAULT = {
    "caller": (REFUSED, "the broker refused this request"),
    "peer": (UNREACHABLE, "the broker cannot be used"),
    "storage": (STORAGE, "the broker's storage failed"),
}


class UsageError(errors.InvalidRequest):
    """A wrong command line."""

    code = "USAGE"


class Failed(errors.InvalidRequest):
    """A failure on this machine."""


def main(argv: Sequence[str] | None = None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for a locale other than UTF-8
    args = _parsed(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except errors.PenstockError as error:
        return _report(args, error)
    except EOFError:  # Ctrl-D
        return _report(args, Failed("the question was not answered, so nothing was done"))
    except BrokenPipeError:  # penstock queue list | head
        _write_no_more()
        return 0
    except OSError as error:
        if error.errno not in _FULL:
            raise
        _write_no_more()
        return _report(args, Failed(f"the output cannot be written: {error.strerror}"))
    except KeyboardInterrupt:
        return INTERRUPTED


def _write_no_more() -> None:
    """Redirect stdout for the interpreter's last flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(args: argparse.Namespace, error: errors.PenstockError) -> int:
    return report(error, as_json=getattr(args, "json", False), local=getattr(args, "local", False))


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    words = sys.argv[1:] if argv is None else list(argv)
    if len(words) == 1 and words[0] in OF_BROKER:
        return argparse.Namespace(run=OF_BROKER[words[0]])
    parser = parser_of_all()
    Parser.report = _report_as_json if "--json" in words[: _end(words)] else None
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        import argcomplete

        argcomplete.autocomplete(parser)
    args, rest = parser.parse_known_args(_command_first(words))
    more = getattr(args, "more", None)
    if rest and (more is None or any(text.startswith("-") for text in rest) or not more(args, rest)):
        args.refuse(rest)
    return args


def _archiver(args: argparse.Namespace) -> int:
    logs.begin()
    from ..archive.recorder.worker import run

    return run()


def _http(args: argparse.Namespace) -> int:
    from ..http_plane.web.process import run

    return run()


#: Child processes of a broker. Help and errors do not list them.
OF_BROKER = {"archiver": _archiver, "http": _http}


def _report_as_json(text: str) -> NoReturn:
    sys.exit(report(UsageError(text), as_json=True))


def _command_first(words: list[str]) -> list[str]:
    """Move flags behind the command, where argparse expects them."""
    flags, rest = _leading(words)
    more, last = _leading(rest[1:])
    rest = [*rest[:1], *last]
    end = _end(rest)
    return [*rest[:end], *flags, *more, *rest[end:]] if rest else []


def _leading(words: list[str]) -> tuple[list[str], list[str]]:
    count = 0
    while count < len(words) and (name := words[count].partition("="))[0] in LEADING:
        count += 1 if name[1] or name[0] == "--json" else 2
    return words[:count], words[count:]


def _end(words: list[str]) -> int:
    return words.index("--") if "--" in words else len(words)


def report(error: errors.PenstockError, *, as_json: bool, local: bool = False) -> int:
    """`local`: without a broker."""
    text = json.dumps({"error": json.loads(error.to_json())}) if as_json else f"penstock: {_who(error, local)}{error}"
    print(text, file=sys.stderr)
    if isinstance(error, errors.MalformedMessage):
        return REFUSED  # the sender is at fault
    return USAGE if isinstance(error, UsageError) else _BY_FAULT[error.fault][0]


def _who(error: errors.PenstockError, local: bool) -> str:
    """Return the party at fault, if the text is ambiguous."""
    if isinstance(error, (UsageError, Failed)) or local:
        return ""
    if isinstance(error, errors.MalformedMessage):
        return "a message cannot be read: "
    return f"{_BY_FAULT[error.fault][1]}: "
