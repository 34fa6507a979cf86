"""The interpreter of Spark's workers, which may be another one than the program's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.connector.interpreters import fault_of

INHERITED = os.environ.get("PYTHONPATH", "")


@pytest.fixture(autouse=True)
def no_memory() -> Iterator[None]:
    yield
    fault_of.cache_clear()


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """An interpreter without packages."""
    return program(tmp_path / "python3", f'exec {sys.executable} -S "$@"')


def program(path: Path, line: str) -> str:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return str(path)


def test_the_programs_own_interpreter_is_right() -> None:
    assert fault_of(sys.executable, INHERITED, False) is None


def test_an_interpreter_of_path_without_the_package_is_named_with_the_remedy(
    bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.venv/bin/python job.py` without an activated environment."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)  # else a checkout in the working directory is found
    assert fault_of("python3", "", False) == (
        f"Spark's workers run python3 ({bare}), which lacks penstock-mq and pyarrow. Set PYSPARK_PYTHON={sys.executable} before"
        " Spark starts, or activate the environment of this program"
    )


def test_the_search_path_and_shipped_packages_count(bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    packages = tmp_path / "packages"  # with this package alone
    packages.mkdir()
    (packages / "penstock").symlink_to(Path(penstock.__file__).parent)
    for fault in (fault_of(bare, str(packages), False), fault_of(bare, "", True)):
        assert fault is not None
        assert "which lacks pyarrow. " in fault


def test_a_package_that_only_this_program_has_is_not_the_interpreters_fault(
    bare: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", bare)
    fault = fault_of(bare, "", False)
    assert fault is not None
    assert "This program has a search path of its own: install penstock-mq there" in fault


def test_another_version_of_python(tmp_path: Path) -> None:
    fault = fault_of(program(tmp_path / "old", "echo 3.9"), "", False)
    assert fault is not None
    assert f"which is Python 3.9, and this program is Python {sys.version_info[0]}.{sys.version_info[1]}" in fault


def test_a_program_that_is_no_python(tmp_path: Path) -> None:
    for line in ("exit 3", "true"):
        fault = fault_of(program(tmp_path / f"no-python-{line.split()[0]}", line), "", False)
        assert fault is not None
        assert "which is not a working Python" in fault


def test_an_interpreter_of_another_machine_is_not_examined() -> None:
    assert fault_of("./environment/bin/python", "", False) is None
