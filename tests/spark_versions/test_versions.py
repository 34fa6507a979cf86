"""The scenarios on other versions of Spark, Python and pandas.

`./dev test` runs a few on each Spark. `./dev torture` runs all of them on each Spark. It then runs them in environments
with another Python or pandas, until PENSTOCK_TORTURE_S seconds have passed. PENSTOCK_TORTURE_SEED chooses the order.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from .environments import QUICK, ROOT, CannotInstall, Environment, MissingPython, python_of, variables_for

SEED = int(os.environ.get("PENSTOCK_TORTURE_SEED", "20261128"))
SECONDS = float(os.environ.get("PENSTOCK_TORTURE_S", "0"))
#: Scenarios of `./dev test`, as parts of their names.
SMOKE = ("write_and_batch_read", "sql_views", "with_restarts", "available_now", "settled_messages")
LIMIT_S = 1800
#: As `pip install` makes them for users of another Python or pandas.
COMPLETE = (
    *(Environment("4.2.1", python) for python in ("3.10", "3.12", "3.13", "3.14")),
    *(Environment(spark, pandas=pandas) for spark in ("4.0.1", "4.1.4", "4.3.0") for pandas in ("<3", ">=3")),
    Environment("4.2.1", pandas=">=3"),
)

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2 * LIMIT_S)]


def run(python: Path, folder: Path, *, is_complete: bool = False, only: Iterable[str] = ()) -> str:
    """Run the scenarios by an interpreter, and return the summary of pytest. Reasons of skipped scenarios are printed.

    The working directory is `folder`, because Python 3.10 prefers modules of the working directory to the installed wheel.
    """
    variables = variables_for(python)
    variables.pop("PYTEST_ADDOPTS", None)  # of this run
    if is_complete:
        variables.pop("PYTHONPATH", None)
        variables["PENSTOCK_TEST_WHEEL"] = "1"
    command = [str(python), "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--basetemp", str(folder / "scenarios")]
    command += ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-k", " or ".join(only)]
    command.append(str(ROOT / "tests" / "spark_versions" / "scenarios.py"))
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    lines = done.stdout.splitlines()
    print(*(line for line in lines if line.startswith("SKIPPED")), lines[-1], sep="\n", flush=True)
    return lines[-1]


@pytest.mark.parametrize("environment", QUICK, ids=str)
def test_the_scenarios_on_another_spark(environment: Environment, tmp_path: Path) -> None:
    summary = run(python_of(environment), tmp_path, only=() if SECONDS else SMOKE)
    assert int(summary.split()[0]) >= len(SMOKE)  # passed


@pytest.mark.skipif(not SECONDS, reason="on this Spark, ./dev test runs the tests of tests/spark: ./dev torture runs it")
def test_the_scenarios_on_this_spark(tmp_path: Path) -> None:
    run(Path(sys.executable), tmp_path)


@pytest.mark.skipif(not SECONDS, reason="installs a gigabyte for each environment: ./dev torture runs it")
@pytest.mark.timeout(20 * LIMIT_S)
def test_the_scenarios_with_another_python_or_pandas(tmp_path: Path) -> None:
    """The wheel in an environment of its own, with all scenarios."""
    end = time.monotonic() + SECONDS
    for number, environment in enumerate(Random(SEED).sample(COMPLETE, len(COMPLETE))):
        print(environment, flush=True)
        try:
            run(python_of(environment), tmp_path / str(number), is_complete=True)
        except MissingPython as missing:
            print(f"skipped: {missing}", flush=True)
            continue
        if time.monotonic() >= end:
            break


def test_an_environment_that_pip_refuses_names_its_log() -> None:
    with pytest.raises(CannotInstall, match=r"pyspark==0\.0\.0 cannot be installed: read pip's output in .*\.log"):
        python_of(Environment("0.0.0"))


def test_a_python_that_this_machine_lacks_is_named() -> None:
    with pytest.raises(MissingPython, match=r"Python 3\.1 is neither on PATH nor in "):
        python_of(Environment("4.2.1", python="3.1"))
