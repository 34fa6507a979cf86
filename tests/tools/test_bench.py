"""Results of `./dev bench` are stored row by row, and docs/bench/README.md follows from them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.fixture
def bench(repository: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.syspath_prepend(str(repository / "tests" / "bench"))
    import harness
    import results

    return SimpleNamespace(Line=harness.Line, keep=results.keep)


def test_a_measured_row_replaces_its_former_lines_and_no_others(bench: SimpleNamespace, tmp_path: Path) -> None:
    def lines(row: str, *figures: float) -> list[object]:
        return [
            bench.Line(row, f"{row} {figure:g}", "a yardstick", 1.0, None, True, "rows/s", [figure], [1.0]) for figure in figures
        ]

    order = ["second", "first"]
    for measured in (lines("first", 1, 2), lines("second", 3), lines("first", 4)):
        file = bench.keep(tmp_path, measured, order)
    stored = json.loads((tmp_path / file).read_text())["lines"]
    assert [line["what"] for line in stored] == ["second 3", "first 4"]
    assert all("penstock-mq" in line["run"]["versions"] for line in stored)
    readme = (tmp_path / "docs" / "bench" / "README.md").read_text()
    assert readme.index("second 3") < readme.index("first 4")
    assert "first 1" not in readme
