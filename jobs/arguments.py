"""Arguments of several jobs."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

from penstock.broker_core import moments

LOGIN = ("userName", "password", "caFile", "certFile", "keyFile")


def add_options(parser: argparse.ArgumentParser, of: str, example: str, name: str = "option") -> None:
    """Add `--NAME` and `--NAME-file`. The result is a list of pairs of name and value."""
    dest = name.replace("-", "_")
    from_file = (
        "the same with the value in a file, such as password=/run/secrets/spark, because other users can read a command line"
    )
    for flag, kind, metavar, text in (
        (f"--{name}", _pair, "NAME=VALUE", f"another option of {of}, such as {example}"),
        (f"--{name}-file", _pair_of_file, "NAME=FILE", from_file),
    ):
        parser.add_argument(flag, type=kind, action="append", default=[], dest=dest, metavar=metavar, help=text)


def fix_times(args: argparse.Namespace, now: datetime) -> str:
    """Replace relative times of `--since` and `--until`, and describe both. Raises InvalidRequest."""
    bounds = moments.parse_bounds(args.since, args.until, now)
    args.since, args.until = (None if bound is None else moments.written(bound) for bound in bounds)
    return moments.described(*bounds)


def _pair(text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not name or not is_there:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _pair_of_file(text: str) -> tuple[str, str]:
    name, path = _pair(text)
    try:
        return name, Path(path).read_text("utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"the value of {name} cannot be read from {path!r}: {error}") from error
