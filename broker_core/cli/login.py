"""Login of the client commands: the flags, and the credentials that they give."""

from __future__ import annotations

import argparse
import getpass
import sys

from .. import errors
from ..client.credentials import Credentials
from .main import UsageError

#: Characters of a password, four octets each at most, and its end of line.
_LINE_OCTETS = 4 * 1024 + 2


def credentials(given: argparse.Namespace) -> Credentials:
    """From --user, --password-file, --ca-file, --cert-file and --key-file. Raises UsageError, without the password in it."""
    if given.password_file is not None and given.user is None:
        raise UsageError("--password-file needs --user: say whose password it is")
    password = None if given.user is None else _password(given)
    try:
        return Credentials.from_files(given.user, password, given.ca_file, given.cert_file, given.key_file)
    except errors.InvalidRequest as error:
        raise UsageError(str(error)) from error


def _password(given: argparse.Namespace) -> str:
    if given.password_file is None:
        if not sys.stdin.isatty():
            raise UsageError(
                "--user needs --password-file FILE when there is no terminal to ask at; its first line is the password"
            )
        return getpass.getpass(f"Password of {given.user}: ")
    try:
        with open(given.password_file, "rb") as file:
            return file.readline(_LINE_OCTETS).decode().rstrip("\r\n")
    except OSError as error:
        raise UsageError(f"--password-file {given.password_file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise UsageError(f"the password in {given.password_file} is not UTF-8") from None
