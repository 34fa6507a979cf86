"""`penstock definitions export` and `import`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ... import errors
from ...client.flight import Client
from ...security import users_file
from ...security.users import Users
from ...settings import strict_json
from .. import calls, show, user
from ..main import REFUSED, UsageError
from . import artemis, own, rabbitmq, steps
from .steps import ImportStep, Result

#: The definitions of 10,000 queues, the most of a broker, have about 3 MB, and more from other brokers. In memory they take about
#: six times the bytes of their JSON.
MAX_FILE_BYTES = 256 << 20
_NO_FILE = "name the broker's users file with --data or --users-file"


def export(args: argparse.Namespace) -> int:
    users = user.read(args) if _has_users_file(args) else None
    with calls.broker(args) as broker:
        queues, exchanges = broker.call("queue.list")["queues"], broker.call("exchange.list")["exchanges"]
    text = json.dumps(own.document(queues, exchanges, users), indent=2, ensure_ascii=False) + "\n"
    if args.file is None:
        sys.stdout.buffer.write(text.encode())  # UTF-8 in every locale
        return 0
    try:
        mode = 0o666 if users is None else 0o600
        with open(os.open(args.file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="utf-8") as file:
            if users is not None:
                os.fchmod(file.fileno(), mode)  # an existing file may be readable by others
            file.write(text)
    except OSError as error:
        raise UsageError(f"{args.file} cannot be written: {error.strerror or error}") from error
    counts = f"{show.counted(len(queues), 'queue')} and {show.counted(len(exchanges), 'exchange')}"
    counts += "" if users is None else f", with {show.counted(len(users.users), 'user')},"
    return show.answer(args, {"file": str(args.file)}, f"{counts} written to {args.file}")


def _has_users_file(args: argparse.Namespace) -> bool:
    return args.data is not None or args.users_file is not None


def import_(args: argparse.Namespace) -> int:
    report = _Report(args, read(args.file, args.virtual_host))
    report.declare()
    report.edit_users()
    return report.end()


class _Report:
    """Runs and prints the steps of an import."""

    def __init__(self, args: argparse.Namespace, planned: Sequence[ImportStep]) -> None:
        self._args, self._planned = args, planned
        self._results: list[Result] = []

    def _add(self, result: Result) -> None:
        self._results.append(result)
        if not self._args.json:
            notes = show.printable("; ".join(result.notes))
            print(f"{result.result:<9} {show.printable(result.object)}{': ' if notes else ''}{notes}")

    def _count(self, result: str) -> int:
        return sum(row.result == result for row in self._results)

    def declare(self) -> None:
        """An error of the connection ends the import."""
        declared = [step for step in self._planned if step.action is not None]
        with calls.broker(self._args) as broker:
            for step in self._planned:
                try:
                    if step.action is not None:
                        self._add(_declared(broker, step, step.action))
                    elif step.edit is None:
                        self._add(Result(steps.LEFT_OUT, step.object, step.notes))
                except errors.PenstockError as error:
                    done = f"{self._count(steps.CREATED) + self._count(steps.EXISTS):,} of {len(declared):,} are declared"
                    refused = self._count(steps.REFUSED)
                    done += f", {refused:,} refused" if refused else ""
                    raise type(error)(f"{error}; {done}: import again") from error

    def edit_users(self) -> None:
        """Edit the users file in one change, and last: the first user ends the access without a login."""
        edits = [step for step in self._planned if step.edit is not None]
        if not _has_users_file(self._args):
            for step in edits:
                self._add(Result(steps.LEFT_OUT, step.object, [_NO_FILE, *step.notes]))
            return
        results: list[Result] = []

        def change(users: Users) -> Users:
            after, made = steps.edited(users, edits)
            results.extend(made)
            return after

        if edits:
            users_file.edit(user.file_of(self._args, make=True), change)
        for result in results:
            self._add(result)
            if result.result == steps.CREATED:
                user.audit(self._args, "user.import", result.object)

    def end(self) -> int:
        made, existing, refused = map(self._count, (steps.CREATED, steps.EXISTS, steps.REFUSED))
        left = self._count(steps.LEFT_OUT)
        text = f"{made:,} declared, {existing:,} existed already, {refused:,} refused" + (f", {left:,} left out" if left else "")
        lines = [result.to_json() for result in self._results]
        show.answer(self._args, {"declared": made, "there": existing, "refused": refused, "left": left, "lines": lines}, text)
        return REFUSED if refused else 0


def _declared(broker: Client, step: ImportStep, action: str) -> Result:
    try:
        created = broker.call(action, **step.fields)["created"]
    except errors.PenstockError as error:
        return steps.refusal(step, error)
    return Result(steps.CREATED if created else steps.EXISTS, step.object, step.notes)


def read(path: Path, virtual_host: str | None) -> list[ImportStep]:
    """Raises UsageError if any part is malformed."""
    try:
        with sys.stdin.buffer if str(path) == "-" else path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(
            f"{path} has more than {MAX_FILE_BYTES >> 20} MiB; nothing was imported. Export each virtual host into a file of its "
            "own, or divide the file"
        )
    try:
        return artemis.steps(data) if artemis.is_xml(data) else _steps(strict_json.loads(data), virtual_host)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}; nothing was imported") from error
    except errors.InvalidRequest as error:
        raise UsageError(f"{path} cannot be imported: {error}; nothing was imported") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} has no definitions as `penstock definitions export` writes them: {error!r}") from error


def _steps(document: Any, virtual_host: str | None) -> list[ImportStep]:
    if isinstance(document, dict) and rabbitmq.is_rabbitmq(document):
        return rabbitmq.steps(document, virtual_host)
    if virtual_host is not None:
        raise errors.InvalidRequest("--virtual-host is for the definitions of RabbitMQ")
    return own.steps(document)
