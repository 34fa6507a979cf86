"""Environments with another Spark, Python or pandas, in build/spark/. An environment is made once for its requirements.

`python tests/spark_versions/environments.py` makes those of `./dev test`, and prints the seconds of each.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "spark"
#: Limit of one command of pip, seconds. PySpark is a source distribution of 430 MB, which pip packs into a wheel.
INSTALL_LIMIT_S = 900
#: Packages of the tests and of `spark-pipelines`, which an environment of its own Python needs besides the wheel.
TEST_PACKAGES = ("pytest>=8", "pytest-timeout>=2.3", "trustme>=1.1", "hypothesis>=6.100", "pyyaml>=3.11")

#: Variables that would lead another interpreter to the Spark of this program.
OF_THIS_SPARK = ("SPARK_HOME", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


class MissingPython(Exception):
    """Lack of an interpreter on this machine."""


class CannotInstall(Exception):
    """Refusal of pip to install the packages of an environment."""


@dataclass(frozen=True)
class Environment:
    """Versions of an environment.

    With `python` or `pandas`, pip installs the wheel with its extras and all their packages, as for a user. Otherwise it installs
    only PySpark, and the other packages are those of the Python that runs this program. This takes half a minute.
    """

    spark: str
    python: str = ""  # major and minor version; empty: that of this program
    pandas: str = ""  # a requirement such as "<3"; empty: any

    def __str__(self) -> str:
        parts = [f"spark-{self.spark}"]
        parts += [f"python-{self.python}"] if self.python else []
        parts += [f"pandas{self.pandas}"] if self.pandas else []
        return "-".join(parts)

    @property
    def is_complete(self) -> bool:
        return bool(self.python or self.pandas)


#: The other versions of Spark that `./dev test` runs. The environment of the tests itself has Spark 4.2.
QUICK = (Environment("4.0.1"), Environment("4.1.4"), Environment("4.3.0"))


def python_of(environment: Environment) -> Path:
    """Return the interpreter of the environment; make the environment if necessary.

    Raises:
        MissingPython: This machine has no such Python.
        CannotInstall: pip failed; the text names its log.
    """
    base = _interpreter(environment.python) if environment.python else Path(sys.executable)
    folder = BUILD / _folder_name(environment, base)
    with _alone(folder.name):
        if not folder.exists():
            for old in BUILD.glob(f"{environment}-*/"):
                shutil.rmtree(old, ignore_errors=True)
            _make(environment, base, folder)
        python = folder / "bin" / "python"
        if environment.is_complete:  # its Penstock is that of this checkout, at any time
            _pip(folder, "--no-deps", "--force-reinstall", str(_wheel()))
    return python


def variables_for(python: Path) -> dict[str, str]:
    """Return the variables of a program that this interpreter runs, with its own Spark."""
    inherited = {name: value for name, value in os.environ.items() if name not in OF_THIS_SPARK}
    return {**inherited, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}


def _folder_name(environment: Environment, base: Path) -> str:
    content = f"{environment} {base} {sys.version} {TEST_PACKAGES} {sysconfig.get_path('purelib')}"
    if environment.is_complete:
        content += (ROOT / "pyproject.toml").read_text()
    return f"{environment}-{hashlib.sha256(content.encode()).hexdigest()[:12]}".replace("<", "-below-").replace(">=", "-from-")


def _make(environment: Environment, base: Path, folder: Path) -> None:
    """Make the environment in its final folder, because scripts of an environment contain its path. A failure removes it."""
    print(f"making the environment {environment} in {folder.relative_to(ROOT)}", file=sys.stderr, flush=True)
    begin = time.monotonic()
    try:
        subprocess.run([base, "-m", "venv", "--without-pip", folder], check=True, stdin=subprocess.DEVNULL)
        if environment.is_complete:
            pandas = [f"pandas{environment.pandas}"] if environment.pandas else []
            _pip(folder, f"{_wheel()}[broker,spark]", f"pyspark[connect]=={environment.spark}", *pandas, *TEST_PACKAGES)
        else:
            _pip(folder, "--no-deps", f"pyspark=={environment.spark}")
            site = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
            # Also read the .pth files of the shared folder.
            (site / "shared.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    print(f"{environment}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def _pip(folder: Path, *requirements: str) -> None:
    log = BUILD / f"{folder.name}.log"
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--no-input", *requirements]
    with log.open("ab") as output:
        try:
            subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=True, timeout=INSTALL_LIMIT_S, cwd=BUILD
            )
        except (subprocess.SubprocessError, OSError) as error:
            text = f"{' '.join(requirements)} cannot be installed: read pip's output in {log}"
            raise CannotInstall(text) from error


@cache
def _wheel_folder() -> tempfile.TemporaryDirectory[str]:
    """Build the wheel of this checkout, once in a process."""
    folder = tempfile.TemporaryDirectory(prefix="penstock-wheel-")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder.name]
    subprocess.run([*command, str(ROOT)], check=True, stdin=subprocess.DEVNULL)
    return folder


def _wheel() -> Path:
    (wheel,) = Path(_wheel_folder().name).glob("*.whl")
    return wheel


def _interpreter(version: str) -> Path:
    """Search PATH and the versions of pyenv, whose commands on PATH refuse a version that is not selected."""
    candidates = [shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python{version}"))]
    for candidate in filter(None, candidates):
        done = subprocess.run([candidate, "-c", "import venv, ssl"], capture_output=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            return Path(candidate)
    raise MissingPython(f"Python {version} is neither on PATH nor in {pyenv}")


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Prevent two test runs from making the same environment together."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":  # `./dev test` on the build machine makes them while the first tests run
    for wanted in QUICK:
        try:
            python_of(wanted)
        except CannotInstall as error:
            print(error, file=sys.stderr)
