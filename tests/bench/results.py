"""Results: shown as a table, kept in docs/bench/<date>.json, and written down for readers in docs/bench/README.md.

The README is made from the JSON files alone: for each row the latest file that has it.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from harness import Line

from penstock.connector.spark_settings import DELTA_VERSION

PACKAGES = ("penstock-mq", "pyspark", "pyarrow", "numpy", "pandas")
FOLDER = Path("docs") / "bench"


def show(lines: Sequence[Line], to: TextIO = sys.stdout) -> None:
    cells = [("row", "result", "target", "aim", "", "ours", "against")]
    for entry in (line.to_json() for line in lines):
        marks = (_mark(entry, "target"), _mark(entry, "aim"), _verdict(entry))
        cells.append((entry["row"], _value(entry), *marks, _figure(entry, "ours"), _figure(entry, "other")))
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    for row in cells if len(lines) != 1 else cells[1:]:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), file=to, flush=True)


def keep(root: Path, lines: Sequence[Line], order: Iterable[str]) -> str:
    """Store the lines in today's file, replace older lines of the same rows, and rewrite the README with its rows in this order.

    Return the file's name below the root.
    """
    folder = root / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(timezone.utc)
    path = folder / f"{now:%Y-%m-%d}.json"
    rows = {line.row for line in lines}
    before = json.loads(path.read_text())["lines"] if path.exists() else []
    about = {"measured": now.isoformat(timespec="seconds"), **_circumstances()}
    stored = [line for line in before if line["row"] not in rows] + [{**_rounded(line.to_json()), "run": about} for line in lines]
    path.write_text(json.dumps({"date": f"{now:%Y-%m-%d}", "lines": stored}, indent=1, ensure_ascii=False) + "\n")
    write_readme(folder, order)
    return str(FOLDER / path.name)


def _circumstances() -> dict[str, Any]:
    return {
        "durability": "fsync=always",
        "cores": os.cpu_count(),
        "memoryGiB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {**{name: metadata.version(name) for name in PACKAGES}, "delta-spark": DELTA_VERSION},
    }


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return value


def write_readme(folder: Path, order: Iterable[str]) -> None:
    latest: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*.json")):
        for name in order:
            lines = [line for line in json.loads(path.read_text())["lines"] if line["row"] == name]
            if lines:
                latest[name] = lines
    text = Path(__file__).with_name("readme.md").read_text()
    for mark, made in (("{{TABLE}}", _table(latest)), ("{{FURTHER}}", _further(latest)), ("{{RUNS}}", _runs(latest))):
        text = text.replace(mark, made)
    (folder / "README.md").write_text(text)


def _table(latest: dict[str, list[dict[str, Any]]]) -> str:
    rows = []
    for line in (line for lines in latest.values() for line in lines):
        measurement = line["what"] + (f". {line['note'][0].upper()}{line['note'][1:]}" if line["note"] else "")
        result = f"**{_value(line)}** {_verdict(line)}"
        marks, figures = (_mark(line, "target"), _mark(line, "aim")), (_figure(line, "ours"), _figure(line, "other"))
        rows.append((f"`{line['row']}`", measurement, line["against"] or "–", result, *marks, *figures))
    return _markdown(("row", "measurement", "against", "result", "target", "aim", "ours", "the other"), rows)


def _further(latest: dict[str, list[dict[str, Any]]]) -> str:
    rows = [
        (f"`{row}`" + (f", measurement {number}" if len(lines) > 1 else ""), name, _median(figures))
        for row, lines in latest.items()
        for number, line in enumerate(lines, 1)
        for name, figures in line["more"].items()
    ]
    return _markdown(("row", "figure", "median"), rows)


def _runs(latest: dict[str, list[dict[str, Any]]]) -> str:
    names_of_run: dict[tuple[str, ...], list[str]] = {}
    for name, lines in latest.items():
        run = lines[0]["run"]
        versions = ", ".join(f"{package} {version}" for package, version in run["versions"].items())
        machine = f"{run['cores']} cores, {run['memoryGiB']} GiB, {run['system']}, Python {run['python']}"
        names_of_run.setdefault((run["measured"][:10], run["durability"], machine, versions), []).append(f"`{name}`")
    rows = [(*run, " ".join(names)) for run, names in names_of_run.items()]
    return _markdown(("day", "durability", "machine", "versions", "rows"), rows)


def _markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))


def _value(line: dict[str, Any]) -> str:
    return f"{line['value']:.2f}" + ("" if line["other"] else f" {line['unit']}")


def _mark(line: dict[str, Any], name: str) -> str:
    return "–" if line[name] is None else f"{'≥' if line['at_least'] else '≤'} {line[name]:g}"


def _verdict(line: dict[str, Any]) -> str:
    if not line["met"]:
        return "MISSED"
    return "met, and the aim" if line["aimMet"] else "met"


def _figure(line: dict[str, Any], name: str) -> str:
    return f"{_median(line[name])} {line['unit']}" if line[name] else "–"


def _median(figures: list[float]) -> str:
    middle = sorted(figures)[len(figures) // 2]
    spread = f" ({_short(min(figures))}–{_short(max(figures))})" if len(figures) > 1 else ""
    return _short(middle) + spread


def _short(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"
