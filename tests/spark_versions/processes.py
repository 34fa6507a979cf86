"""Environments of other programs that use the Spark of this Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import penstock

DISCOVERY = "pyspark_penstock.py"  # as a wheel names it
FREE_PORT = {"SPARK_TESTING": "1"}  # for a local Spark Connect, instead of 15002


def environment() -> dict[str, str]:
    """Return the environment of another program that uses this Spark."""
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    foreign = ("SPARK_HOME", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
    inherited = {name: value for name, value in os.environ.items() if name not in foreign}
    return {**inherited, "PATH": binaries, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def installed_in(folder: Path) -> dict[str, str]:
    """Return the environment of a program that finds the connector as from a wheel: Spark discovers the format itself."""
    folder.mkdir()
    package = Path(penstock.__file__).parent
    (folder / "penstock").symlink_to(package)
    is_wheel = (package.parent / DISCOVERY).exists()
    discovery = package.parent / DISCOVERY if is_wheel else package / "connector" / "_discovery.py"
    (folder / DISCOVERY).write_bytes(discovery.read_bytes())
    return {**environment(), **FREE_PORT, "PYTHONPATH": str(folder)}
