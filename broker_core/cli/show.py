"""Output of the commands: tables for people, JSON for programs."""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from ..logs import counted as counted  # for the commands

Rows = Sequence[Mapping[str, Any]]
#: Columns whose values are arguments of other commands.
NAMES = frozenset(("queue", "lease", "exchange", "stage", "user", "connection", "target"))
#: Facts in seconds, with names as in JSON.
SECONDS = frozenset(("lag", "retention", "diskFullIn"))
#: Texts that are never cut: a part of an address or a time is another one.
_WHOLE = NAMES | {"peer", "time", "since"}
#: Texts that are the purpose of a table: never left out.
_PURPOSE = frozenset(("body", "text", "error"))
#: Facts that are a part of 1.
SHARES = frozenset(("fill",))
_PREVIEW = 60  # characters of a body
_GAP = 2  # cells between two columns
_LEAST_WIDTH = 10  # cells of a text that was cut


def print_json(value: Any) -> None:
    print(as_json(value, ascii=(sys.stdout.encoding or "utf-8").lower() != "utf-8"))  # a StringIO has no encoding


def as_json(value: Any, *, ascii: bool = False) -> str:
    """Bytes become text if they are UTF-8, else `{"base64": …}`."""
    return json.dumps(value, default=_plain, ensure_ascii=ascii)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
    return str(value)


def print_table(rows: Rows, columns: Mapping[str, str], *, empty: str) -> None:
    """`columns` maps keys of rows to headings. A pipe gets complete values.

    A terminal gets long texts cut to its width. Names and numbers are never cut: rather, columns are left out, and a line names
    them.
    """
    if not rows:
        print(empty)
        return
    lines = [list(columns.values()), *([_cell(row.get(key)) for key in columns] for row in rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    terminal, shown = sys.stdout.isatty(), list(range(len(widths)))
    if terminal:
        shown = _fit(rows, list(columns), widths, shutil.get_terminal_size().columns)
    right = [all(isinstance(row.get(key), (int, float, type(None))) for row in rows) for key in columns]
    for number, line in enumerate(lines):
        text = (" " * _GAP).join(_fitted(line[at], widths[at], right[at]) for at in shown).rstrip()
        print(f"\x1b[1m{text}\x1b[0m" if terminal and not number else text)
    if len(shown) < len(columns):
        print(f"a wider terminal, or --json, shows: {', '.join(lines[0][at] for at in range(len(columns)) if at not in shown)}")


def _fit(rows: Rows, keys: Sequence[str], widths: list[int], total: int) -> list[int]:
    """Return the columns that fit into `total` cells, and shrink the widths of texts."""

    def over(widths: Mapping[int, int]) -> int:
        return sum(widths.values()) + _GAP * (len(widths) - 1) - total

    is_cut = [key not in _WHOLE and any(isinstance(row.get(key), (str, list, tuple, dict)) for row in rows) for key in keys]
    least = {at: min(width, _LEAST_WIDTH) if is_cut[at] else width for at, width in enumerate(widths)}
    has_values = [any(row.get(key) for row in rows) for key in keys]  # other values than 0, no and –
    for at in sorted(range(len(keys)), key=lambda at: (has_values[at], -at)):
        if over(least) > 0 and at > 0 and keys[at] not in NAMES | _PURPOSE:
            del least[at]
    for _ in range(over({at: widths[at] for at in least})):
        widest = max((at for at in least if widths[at] > least[at]), key=lambda at: widths[at], default=None)
        if widest is None:
            break
        widths[widest] -= 1
    return list(least)


def _fitted(text: str, width: int, right: bool) -> str:
    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + "…"
    padding = " " * (width - cell_len(text))
    return padding + text if right else text + padding


def columns(*keys: str, **headings: str) -> dict[str, str]:
    """Without a heading, a column shows its key."""
    return {**{key: key for key in keys}, **headings}


def listed(args: argparse.Namespace, value: Rows, columns: Mapping[str, str], *, empty: str, rows: Rows | None = None) -> int:
    """Print `value` as JSON with `--json`, else a table of `rows`, or without them of `value`."""
    if args.json:
        print_json(value)
    else:
        print_table(value if rows is None else rows, columns, empty=empty)
    return 0


def print_facts(facts: Mapping[str, Any]) -> None:
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {_fact(name, value)}")


def _fact(name: str, value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={_fact(key, item)}" for key, item in value.items()) or "–"
    if name in SECONDS and isinstance(value, (int, float)):
        return duration(value)
    if name in SHARES and value is not None:
        return f"{value:.1%}"
    return _cell(value)


def duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:,.1f} s"


def moment(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def pinned_by(oldest: Mapping[str, Any] | None) -> str:
    """Describe the holder of the oldest needed payload."""
    if oldest is None:
        return "nothing"
    since = ""
    if "time" in oldest:
        since = f", since {moment(oldest['time'] // 1000)}"
    if "stage" in oldest:
        return f"position {oldest['position']}: stage {oldest['stage']!r} of queue {oldest['queue']!r}{since}"
    if "queue" in oldest:
        state = f"{oldest['state']} by {oldest['holder']}" if "holder" in oldest else oldest["state"]
        return f"position {oldest['position']}: message {oldest['sequence']} of {oldest['queue']!r}, {state}{since}"
    return f"position {oldest['position']}{since}"


def notes(texts: Iterable[str]) -> None:
    for text in texts:
        print(f"note: {printable(text)}", file=sys.stderr)


def answer(args: argparse.Namespace, value: Mapping[str, Any], text: str) -> int:
    if args.json:
        print_json(value)
    else:
        print(text)
        notes(value.get("hints", ()))
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
        return moment(int(value.timestamp() * 1000))
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_cell, value)) or "–"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_cell(item)}" for key, item in value.items()) or "–"
    return printable(str(value))


def printable(text: str) -> str:
    """Escape control characters, because clients choose names and texts."""
    return text if text.isprintable() else repr(text)[1:-1]


def preview(body: bytes | None) -> str | None:
    """Format a body on one line: text, or hexadecimal bytes, long ones cut."""
    if body is None:
        return None
    try:
        text = printable(body.decode())
    except UnicodeDecodeError:
        text = "0x" + body[: _PREVIEW // 2].hex() + ("…" if len(body) > _PREVIEW // 2 else "")
    return text if len(text) <= _PREVIEW else text[: _PREVIEW - 1] + "…"


@contextmanager
def waiting(text: str, *, quiet: bool) -> Iterator[None]:
    # In a notebook, which sets FORCE_COLOR, rich would write its animation into the cell.
    if quiet or not sys.stderr.isatty():
        yield
        return
    console = Console(stderr=True)
    started = time.monotonic()
    with console.status(text):
        yield
    if time.monotonic() - started > 1:
        console.print(f"{text}: {time.monotonic() - started:.1f} s", style="dim")
