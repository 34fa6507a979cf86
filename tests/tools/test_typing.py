"""Types of the public API (U8): a user's project passes `mypy --strict`, and a wrong call in it does not."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

#: Packages of others that the API touches: a user's project need not have them, and mypy needs 10 s for them.
OF_OTHERS = "pyspark.*,pyarrow.*,numpy.*,pytest.*,_pytest.*"

PROJECT = Path(__file__).parent / "project"

Check = Callable[[str], str]


@pytest.fixture(scope="module")
def mypy(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Run `mypy --strict` on a file of the project, outside the repository; the second run finds the first one's cache."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
    (folder / "mypy.ini").write_text(f"[mypy]\nstrict = true\n[mypy-{OF_OTHERS}]\nfollow_imports = skip\n")

    def run(*names: str) -> str:
        command = [sys.executable, "-m", "mypy", "--hide-error-context", "--no-error-summary", *names]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.stdout

    return run


def test_a_users_project_is_right(mypy: Check) -> None:
    assert mypy("shop_tests.py") == ""


def test_a_wrong_call_is_found(mypy: Check) -> None:
    lines = (PROJECT / "wrong.py").read_text().splitlines()
    expected = {(number, match[1]) for number, line in enumerate(lines, 1) if (match := re.search(r"  # ([a-z-]+)$", line))}
    errors = re.findall(r"^wrong\.py:(\d+): error: .*\[([a-z-]+)\]$", mypy("wrong.py"), re.MULTILINE)
    assert {(int(number), code) for number, code in errors} == expected
