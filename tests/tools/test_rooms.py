"""The structure of the code: imports between rooms, and the sizes of rooms and files."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

#: Folders at the top of the repository that ARCHITECTURE.md names.
TOP = ("broker_core", "connector", "jobs", "notebooks", "penstock", "docs")

MOST_MODULES = 29  # in a folder
MOST_LINES = 500  # in a file

#: Folders with a circle of modules that import each other for type checkers alone: how many modules, and why.
CIRCLES = {
    "broker_core/amqp": (11, "a connection, its sessions, their links and deliveries also refer to each other in the protocol"),
    "broker_core/amqp_plane": (4, "a peer and its links; a consumer and its transactions; a socket and the plane"),
    "broker_core/amqp_plane/links": (2, "the anonymous terminus and its waiting lists"),
    "broker_core/engine/model": (3, "the parts of a queue (groups, recordings) are rules about the whole of it"),
    "broker_core/flight_plane": (3, "a listener, its connections and their calls"),
    "broker_core/client/app": (
        13,
        "a connection, sessions, consumers, producers, pipelines, requests and transactions refer to each other, as in JMS",
    ),
}


def test_rooms_import_only_what_stands_below_them(repository: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command as c; c()",
    ]
    done = subprocess.run([*command, "--no-cache"], cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "6 kept, 0 broken" in done.stdout


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
    inside = re.findall(r"`(\w+)` in `([\w/]+\.py)`", text)
    assert len(inside) > 4
    for name, path in inside:
        (file,) = [candidate for top in ("broker_core", "broker_core/engine") if (candidate := repository / top / path).exists()]
        assert re.search(rf"^(def|class) {name}\b|^{name}\b.* = ", file.read_text(), re.MULTILINE), f"{name} is not in {path}"
    folders = set(re.findall(r"`((?:[a-z_]+/)+)`", text))
    existing = [
        f"/{path.relative_to(repository)}/" for top in TOP for path in [repository / top, *(repository / top).rglob("*/")]
    ]
    assert {name for name in folders if not any(path.endswith(f"/{name}") for path in existing)} == set()


def test_no_modules_import_each_other(repository: Path) -> None:
    assert _circles(_imports(repository, for_types=False)) == []
    circles = sorted(_circles(_imports(repository)), key=len)  # a folder may have several: the largest counts
    areas = {os.path.commonpath([Path(path).parent for path in circle]): circle for circle in circles}
    assert {folder: len(circle) for folder, circle in areas.items()} == {folder: most for folder, (most, _) in CIRCLES.items()}, (
        "cut the circle: declare a protocol in the module that needs it, or move the common part to a third module",
        {folder: circle for folder, circle in areas.items() if len(circle) != CIRCLES.get(folder, (0, ""))[0]},
    )


def _imports(repository: Path, *, for_types: bool = True) -> dict[str, set[str]]:
    """Module → the modules that it imports, imports in functions included; both are paths from the repository."""
    files = {path for package in ("broker_core", "connector") for path in (repository / package).rglob("*.py")}
    return {
        str(file.relative_to(repository)): {str(path.relative_to(repository)) for path in _imported(file, files, for_types)}
        - {str(file.relative_to(repository))}
        for file in files
    }


def _imported(file: Path, files: set[Path], for_types: bool) -> Iterator[Path]:
    for statement in _statements(ast.parse(file.read_text()), for_types):
        folder = file
        for _ in range(statement.level):
            folder = folder.parent
        module = folder.joinpath(*(statement.module or "").split("."))
        for name in statement.names:
            yield from [path for path in (module / f"{name.name}.py", module.with_suffix(".py")) if path in files][:1]


def _statements(node: ast.AST, for_types: bool) -> Iterator[ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and child.level:
            yield child
        elif for_types or not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _statements(child, for_types)


def _circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return groups of modules that import each other, also indirectly."""
    reached = {module: _reached(module, imports) for module in imports}
    circles = {tuple(sorted(peer for peer in reached[module] if module in reached[peer])) for module in imports}
    return sorted(list(circle) for circle in circles if len(circle) > 1)


def _reached(module: str, imports: dict[str, set[str]]) -> set[str]:
    modules, waiting = {module}, [module]
    while waiting:
        fresh = imports[waiting.pop()] - modules
        modules |= fresh
        waiting += fresh
    return modules
