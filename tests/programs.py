"""Programs of the system that tests run: missing on a laptop, a test is skipped and says why; on the build machine it fails."""

from __future__ import annotations

import os
import shutil

import pytest


def needs(program: str, package: str) -> str:
    """Return the program's path; `package` is Debian's that has it."""
    found = shutil.which(program)
    if found is None:
        assert not os.environ.get("CI"), f"{program} is missing: Debian's package {package} has it"
        pytest.skip(f"{program} is not installed: Debian's package {package} has it")
    return found
