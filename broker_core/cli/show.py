"""Output of the commands: tables for people, JSON for programs."""

from __future__ import annotations

import argparse
import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from rich.console import Console
from rich.table import Table

_PREVIEW = 60


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    print(as_json(value))


def as_json(value: Any) -> str:
    """On one line; octets as text where they are UTF-8, else as `{"base64": …}`."""
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return str(value)


def print_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, empty: str) -> None:
    """`columns` maps the key of a row to its heading; numbers are set right."""
    console = Console(highlight=False)
    if not rows:
        console.print(empty, markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for key, heading in columns.items():
        number = all(isinstance(row.get(key), (int, float, type(None))) for row in rows)
        table.add_column(heading, justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in columns))
    console.print(table, markup=False)


def listed(given: argparse.Namespace, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, empty: str) -> int:
    """`rows` for a program that said `--json`, a table of `columns` for a person. Returns the exit code."""
    if given.json:
        print_json(rows)
    else:
        print_table(rows, columns, empty=empty)
    return 0


def print_facts(facts: Mapping[str, Any]) -> None:
    """One thing: a name and a value a line."""
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {_cell(value)}")


def moment(time_ms: int) -> str:
    """Return a time, milliseconds since 1970, as people read it."""
    return f"{datetime.fromtimestamp(time_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def pinned_by(oldest: Mapping[str, Any] | None) -> str:
    """Say who needs the oldest payload, in one line."""
    if oldest is None:
        return "nothing"
    since = ""
    if "time" in oldest:
        since = f", since {moment(oldest['time'] // 1000)}"
    if "stage" in oldest:
        return f"position {oldest['position']}: stage {oldest['stage']!r} of queue {oldest['queue']!r}{since}"
    if "queue" in oldest:
        return f"position {oldest['position']}: message {oldest['sequence']} of {oldest['queue']!r}, {oldest['state']}{since}"
    return f"position {oldest['position']}{since}"


def say(text: str) -> None:
    """Print a line for a person."""
    print(text)


def answer(given: argparse.Namespace, value: Mapping[str, Any], text: str) -> int:
    """Print what a command has done: `value` for a program that said `--json`, `text` for a person. Returns the exit code."""
    if given.json:
        print_json(value)
    else:
        say(text)
    return 0


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_cell, value)) or "–"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_cell(item)}" for key, item in value.items()) or "–"
    return str(value)


def preview(body: bytes | None) -> str | None:
    """A body on one line: text as it is, anything else in hexadecimal, cut where it becomes long."""
    if body is None:
        return None
    try:
        text = body.decode()
        text = text if text.isprintable() else repr(text)[1:-1]
    except UnicodeDecodeError:
        text = "0x" + body[: _PREVIEW // 2].hex() + ("…" if len(body) > _PREVIEW // 2 else "")
    return text if len(text) <= _PREVIEW else text[: _PREVIEW - 1] + "…"


@contextmanager
def waiting(text: str, *, quiet: bool) -> Iterator[None]:
    """A sign of life on stderr, with the seconds, when somebody looks at a terminal and it takes a while."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    started = time.monotonic()
    with console.status(text) as status:
        status.update(text)
        yield
    if time.monotonic() - started > 1:
        console.print(f"{text}: {time.monotonic() - started:.1f} s", style="dim")
