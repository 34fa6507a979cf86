"""The house: which room may import which, and how large rooms and files may be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MOST_MODULES = 29  # in a folder
MOST_LINES = 520  # in a file


def test_rooms_import_only_what_stands_below_them(repository: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command as c; c()",
    ]
    done = subprocess.run([*command, "--no-cache"], cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "4 kept, 0 broken" in done.stdout


def test_no_folder_and_no_file_is_too_large(repository: Path) -> None:
    large = []
    for package in ("broker_core", "connector", "jobs", "tests"):
        for folder in [repository / package, *(path for path in (repository / package).rglob("*") if path.is_dir())]:
            modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
            if package != "tests" and len(modules) > MOST_MODULES:
                large.append(f"{folder.relative_to(repository)} has {len(modules)} modules")
            for path in modules:
                lines = len(path.read_text().splitlines())
                if lines > MOST_LINES:
                    large.append(f"{path.relative_to(repository)} has {lines} lines")
    assert large == []
