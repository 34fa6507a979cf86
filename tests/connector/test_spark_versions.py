"""One module contains the differences between versions of Spark, and a version that is too old is named in one sentence."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker_core.errors import SparkUnsupported
from penstock.connector.spark_versions import check_version

PROGRAMS = {
    "register": "import penstock; penstock.register(None)",
    "archive": "import penstock; penstock.archive(None, 'orders')",
    "the data source": "import penstock.connector.source",
    "explain": "import penstock; raise SystemExit(penstock.explain(Exception("
    "'[DATA_SOURCE_NOT_FOUND] Failed to find the data source: amqp. Please find packages at')))",
}


def programs(repository: Path) -> Iterator[tuple[str, str]]:
    for folder in ("connector", "jobs"):
        for path in (repository / folder).rglob("*.py"):
            yield str(path.relative_to(repository)), path.read_text()
    for path in (repository / "notebooks").glob("*.ipynb"):
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        lines = [line for cell in cells for line in "".join(cell["source"]).splitlines() if not line.startswith(("%", "!"))]
        yield path.name, "\n".join(lines)


def imports(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_one_module_imports_the_names_that_differ_between_versions(repository: Path) -> None:
    differ = {"pyspark.sql.datasource", "pyspark.sql.streaming.datasource", "pyspark.sql.datasource_internal"}
    importing = {name for name, text in programs(repository) if differ.intersection(imports(text))}
    # Spark imports the second one for all users, also without a queue: other modules would slow them down.
    assert importing == {"connector/spark_versions.py", "connector/_discovery.py"}


@pytest.mark.parametrize("version", ["3.5.9", "3.4.0", "2.4.8"])
def test_an_old_spark_is_refused(version: str) -> None:
    with pytest.raises(SparkUnsupported, match=rf"needs Spark 4.0 or newer, and this is Spark {version}"):
        check_version(version)


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4", "4.3.0.dev1", "5.0.0-preview1", "cloud"])
def test_newer_versions_and_unknown_forms_are_accepted(version: str) -> None:
    check_version(version)


def run_on_spark_3(program: str, repository: Path) -> subprocess.CompletedProcess[str]:
    """Run with a PySpark that lacks data sources, and has an old version."""
    old = "import pyspark, sys; pyspark.__version__ = '3.5.9'; sys.modules['pyspark.sql.datasource'] = None; "
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    command = [sys.executable, "-c", old + program]
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_on_spark_3_one_sentence_names_the_requirement(program: str, repository: Path) -> None:
    done = run_on_spark_3(program, repository)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.removeprefix("penstock.broker_core.errors.SparkUnsupported: ").startswith(
        "format amqp needs Spark 4.0 or newer, and this is Spark 3.5.9"
    )


def test_on_spark_3_the_module_that_spark_finds_does_nothing(repository: Path) -> None:
    program = "from penstock.connector import _discovery; print(hasattr(_discovery, 'DefaultSource'))"
    done = run_on_spark_3(program, repository)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
