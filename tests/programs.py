"""Programs of the system that tests run. Without the program a test is skipped, and on the build machine it fails."""

from __future__ import annotations

import os
import shutil

import pytest


def needs(program: str, package: str) -> str:
    """Return the program's path. `package` is the package of Debian that contains it."""
    path = shutil.which(program)
    if path is None:
        assert not os.environ.get("CI"), f"{program} is missing: Debian's package {package} has it"
        pytest.skip(f"{program} is not installed: Debian's package {package} has it")
    return path
