"""What is tested is what is shipped: under `./dev test` the packages come from the installed wheel, and this file makes sure.

A bare `pytest` while you work takes the checkout instead, without a build.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("broker_core", "connector", "jobs")

if not os.environ.get("PENSTOCK_TEST_WHEEL"):
    sys.path.insert(0, str(ROOT))
    # For the processes that tests start: brokers, Spark's workers.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def pytest_configure(config: pytest.Config) -> None:
    if not os.environ.get("PENSTOCK_TEST_WHEEL"):
        return
    for package in PACKAGES:
        found = importlib.util.find_spec(package)
        origin = Path(found.origin or "") if found else None
        if origin is None or ROOT / package in origin.parents or "site-packages" not in origin.parts:
            raise pytest.UsageError(f"{package} would be tested from {origin}, not from the installed wheel: run ./dev test")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout, for tests of its scripts and documents."""
    return ROOT
