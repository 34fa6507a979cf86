"""Credentials from flags or the environment."""

from __future__ import annotations

import argparse
import getpass
import os
import sys

from .. import errors
from ..client.credentials import Credentials
from .main import UsageError

#: Characters of at most four bytes, and the end of the line.
_LINE_OCTETS = 4 * 1024 + 2
_TLS = ("amqps://", "grpc+tls://")


def user(args: argparse.Namespace) -> str | None:
    return args.user or os.environ.get("PENSTOCK_USER") or None


def ca_file(args: argparse.Namespace) -> str | None:
    """Without TLS the environment, which may be set for other commands, does not count."""
    urls = [url.strip() for url in args.url.split(",")]
    has_tls = all(url.startswith(_TLS) for url in urls)
    return args.ca_file or (os.environ.get("PENSTOCK_CA_FILE") if has_tls else None) or None


def credentials(args: argparse.Namespace) -> Credentials:
    """Raises UsageError, without the password."""
    name = user(args)
    if args.password_file is not None and name is None:
        raise UsageError("--password-file needs --user, or $PENSTOCK_USER, for the name of its user")
    file = args.password_file or os.environ.get("PENSTOCK_PASSWORD_FILE") or None
    password = None if name is None else _password(name, file)
    try:
        return Credentials.from_files(name, password, ca_file(args), args.cert_file, args.key_file)
    except errors.InvalidRequest as error:
        raise UsageError(str(error)) from error


def _password(user: str, file: str | None) -> str:
    if file is None:
        if not sys.stdin.isatty():
            raise UsageError(
                "--user needs --password-file FILE, or $PENSTOCK_PASSWORD_FILE, without a terminal; its first"
                " line is the password"
            )
        return getpass.getpass(f"Password of {user}: ")
    try:
        with open(file, "rb") as opened:
            return opened.readline(_LINE_OCTETS).decode().rstrip("\r\n")
    except OSError as error:
        raise UsageError(f"the password file {file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise UsageError(f"the password in {file} is not UTF-8") from None
