"""`penstock definitions`. The file does not contain users and permissions: they are in the users file."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ..errors import PenstockError, Unauthenticated
from ..settings import strict_json
from . import calls, show
from .main import REFUSED, UsageError

VERSION = 1


def export(args: argparse.Namespace) -> int:
    with calls.broker(args) as broker:
        queues, exchanges = broker.call("queue.list")["queues"], broker.call("exchange.list")["exchanges"]
    definitions = {
        "version": VERSION,
        "queues": [_picked(queue, "queue", "type", "options") for queue in queues],
        "exchanges": [_picked(exchange, "exchange", "type", "options", "bindings") for exchange in exchanges],
    }
    text = json.dumps(definitions, indent=2, ensure_ascii=False) + "\n"
    if args.file is None:
        sys.stdout.buffer.write(text.encode())  # UTF-8 in every locale
        return 0
    try:
        args.file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{args.file} cannot be written: {error.strerror or error}") from error
    counts = f"{show.counted(len(queues), 'queue')} and {show.counted(len(exchanges), 'exchange')}"
    return show.answer(args, {"file": str(args.file)}, f"{counts} written to {args.file}")


def _picked(node: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: node[name] for name in names}


def import_(args: argparse.Namespace) -> int:
    declarations = _read(args.file)
    made = existing = 0
    refused: list[str] = []
    with calls.broker(args) as broker:
        for action, fields in declarations:
            try:
                created = broker.call(action, **fields)["created"]
            except PenstockError as error:
                if error.fault != "caller" or isinstance(error, Unauthenticated):  # the next requests would also fail
                    _say_refused(args, refused)
                    done = f"{made + existing:,} of {len(declarations):,} are declared"
                    done += f", {len(refused):,} refused" if refused else ""
                    raise type(error)(f"{error}; {done}: import again") from error
                refused.append(str(error))
                continue
            made, existing = made + created, existing + (not created)
    text = f"{made:,} declared, {existing:,} existed already, {len(refused):,} refused"
    show.answer(args, {"declared": made, "there": existing, "refused": refused}, text)
    _say_refused(args, refused)
    return REFUSED if refused else 0


def _say_refused(args: argparse.Namespace, refused: list[str]) -> None:
    for reason in refused if not args.json else ():
        print(f"penstock: {reason}", file=sys.stderr)


def _declarations(definitions: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Nodes come before the bindings that name them."""
    queues, exchanges = definitions["queues"], definitions["exchanges"]
    return [
        *(("queue.declare", {**queue}) for queue in queues),
        *(("exchange.declare", _picked(exchange, "exchange", "type", "options")) for exchange in exchanges),
        *(("exchange.bind", {"exchange": node["exchange"], **binding}) for node in exchanges for binding in node["bindings"]),
    ]


def _read(path: Path) -> list[tuple[str, dict[str, Any]]]:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        definitions: dict[str, Any] = strict_json.loads(data)
        if definitions["version"] != VERSION:
            raise UsageError(f"{path} has definitions of version {definitions['version']!r}; this is version {VERSION}")
        return _declarations(definitions)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} has no definitions as `penstock definitions export` writes them: {error!r}") from error
