"""The README's commands and the notebook run as they stand."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker_core.server.process import Broker
from penstock.broker_core.settings.keys import DEFAULT_URL

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: The reader's terminals: their commands are tried elsewhere, or would never end.
ELSEWHERE = ("source ", "penstock serve", "pyspark ", "./dev")

PRELUDE = """
import subprocess, sys
from penstock import connector
from penstock.jobs.session import session
spark = session("README")

def shell(*command):
    subprocess.run(command, check=True)
"""


def blocks(repository: Path) -> Iterator[tuple[str, str]]:
    yield from BLOCK.findall((repository / "README.md").read_text())


def as_program(repository: Path, url: str) -> str:
    """README.md from top to bottom as one Python program: its Python as it is, its commands as processes."""
    parts = [PRELUDE]
    for language, text in blocks(repository):
        if language == "python":
            parts.append(text.replace(DEFAULT_URL, url))
            continue
        for line in text.splitlines():
            words = shlex.split(line.replace(DEFAULT_URL, url), comments=True)
            if not words or line.startswith(ELSEWHERE):
                continue
            if {"|", ">"} & set(words):
                parts.append(f"shell('bash', '-c', {line!r})\n")
                continue
            binary = str(Path(sys.executable).parent / words[0])
            arguments = [str(repository / word) if word.startswith(("conf/", "jobs/")) else word for word in words[1:]]
            parts.append(f"shell(*{[binary, *arguments]!r})\n")
    return "".join(parts)


def test_the_readme_from_top_to_bottom(repository: Path, broker: Broker, tmp_path: Path) -> None:
    program = tmp_path / "readme.py"
    program.write_text(as_program(repository, broker.url))
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PENSTOCK_URL": broker.amqp_url,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    # One line of each thing it shows: the table by subject, the replayed queue, the two jobs.
    assert "|      0|14286|" in done.stdout
    assert re.search(r"orders-again +fifo +1,000", done.stdout)
    assert "done: 1,000 messages" in done.stdout
    assert "from orders into orders-again" in done.stdout


def test_the_readme_shows_only_commands_that_exist(repository: Path) -> None:
    text = (repository / "README.md").read_text()
    help_text = subprocess.run([str(repository / "dev"), "help"], capture_output=True, text=True, check=True).stdout
    for command in re.findall(r"\./dev (\w+)", text):
        assert f"\n  {command} " in help_text
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (repository / link).exists(), link


def test_the_options_of_the_readme_are_the_connector_s(repository: Path) -> None:
    from penstock.connector.options import OPTIONS

    table = (repository / "README.md").read_text().partition("## Options")[2].partition("### Columns")[0]
    named = {name for line in table.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    there = {option.name for option in OPTIONS} - {"checkpointLocation"}
    assert named == there


def test_the_notebook_runs(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.chdir(tmp_path)
    notebook = nbformat.read(repository / "notebooks" / "flights.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "commit the notebook without outputs"
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    texts = [output["data"]["text/plain"] for output in outputs if "data" in output]
    assert "(27004, 27004)" in texts
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert re.search(r"\('2013-01-\d\d', [\d.]+, \d{3}\)", "\n".join(texts))
