"""The house: which room may import which, and how large rooms and files may be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MOST_MODULES = 29  # in a folder
MOST_LINES = 500  # in a file


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


def test_each_folder_s_map_names_its_modules(repository: Path) -> None:
    missing = []
    for package in ("broker_core", "connector", "jobs"):
        for path in sorted((repository / package).rglob("__init__.py")):
            if path.parent != repository / "broker_core":
                text = path.read_text().split('"""')[1]
                modules = [module.stem for module in path.parent.glob("*.py") if not module.stem.startswith("__")]
                missing += [f"{path.parent.name}/{name}" for name in modules if not re.search(rf"\b{name}\b", text)]
    assert missing == []


def test_the_files_that_the_map_of_the_house_names_are_there(repository: Path) -> None:
    """ARCHITECTURE.md: paths from the repository or from broker_core/, and names that only one file in there has."""
    text = (repository / "ARCHITECTURE.md").read_text()
    names = set(re.findall(r"`([\w/]+\.py)`", text)) - {"__init__.py"}
    assert len(names) > 20
    files = list((repository / "broker_core").rglob("*.py"))
    for name in names:
        if name.startswith("test_"):
            assert list((repository / "tests").rglob(name)), name
        elif "/" in name:
            assert any((repository / top / name).exists() for top in ("", "broker_core", "broker_core/engine")), name
        else:
            assert len([path for path in files if path.name == name]) == 1, name
    folders = re.findall(r"`([a-z_]+/(?:[a-z_]+/)*)`", text)
    assert all(
        any((repository / top / name).is_dir() for top in ("", "broker_core", "broker_core/engine")) for name in folders
    ), folders
