"""The environment of child processes in which Python runs this package."""

from __future__ import annotations

import os
import site
from pathlib import Path


def environment() -> dict[str, str]:
    """Return this process's environment, in which `python -m penstock` finds the package where this process has it."""
    found = dict(os.environ)
    root = str(Path(__file__).parents[3])
    if root not in {*site.getsitepackages(), site.getusersitepackages()}:
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [root, found.get("PYTHONPATH")]))
    return found
