"""The public API: `import penstock`, and errors about missing extras."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

import penstock
from penstock import extras
from penstock.broker_core import DISTRIBUTION


def run(
    program: str, *without: str, arguments: tuple[str, ...] = (), cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program in an interpreter that has not these packages."""
    hidden = f"import sys\nfor name in {without!r}: sys.modules[name] = None\n"
    command = [sys.executable, "-c", hidden + program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)


def test_each_public_name_is_there() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    assert set(penstock.__all__) <= set(dir(penstock))
    with pytest.raises(AttributeError, match="no attribute 'queue'"):
        _ = penstock.queue  # type: ignore[attr-defined]


def test_what_type_checkers_see_is_what_is_there() -> None:
    tree = ast.parse(Path(penstock.__file__).read_text())
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {(part.module, alias.name) for part in guarded.body if isinstance(part, ast.ImportFrom) for alias in part.names}
    assert {name for _, name in seen} == set(penstock.__all__) - {"__version__"}
    for module, name in seen:
        assert getattr(penstock, name) is getattr(sys.modules[str(module)], name)


def test_importing_it_imports_nothing_else() -> None:
    program = (
        "import penstock; print(sorted(m for m in sys.modules if m.partition('.')[0] in ('pyarrow', 'numpy', 'pyspark', 'rich')))"
    )
    assert run(program).stdout == "[]\n"
    ours = "import penstock; print(sorted(m for m in sys.modules if m.startswith('penstock')))"
    assert run(ours).stdout == "['penstock', 'penstock.broker_core']\n"


@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("rich", ("queue", "list"), "broker"),
        ("numpy", ("serve", "--data", "unused"), "broker"),
        ("hpack", ("serve", "--data", "unused"), "broker"),
    ],
)
def test_a_command_says_what_to_install(package: str, arguments: tuple[str, ...], extra: str, tmp_path: Path) -> None:
    done = run("from penstock.__main__ import main; sys.exit(main())", package, arguments=arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"penstock: this command needs {package}: pip install 'penstock-mq[{extra}]'\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("job", ["demo", "ingest", "replay"])
def test_a_job_says_what_to_install(job: str) -> None:
    program = f"import runpy; sys.argv = ['-m']; runpy.run_module('penstock.jobs.{job}', run_name='__main__', alter_sys=True)"
    done = run(program, "pyspark")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "penstock: a job needs pyspark: pip install 'penstock-mq[spark]'\n"


@pytest.mark.parametrize(("name", "package", "extra"), [("Broker", "numpy", "broker"), ("register", "pyspark", "spark")])
def test_a_name_says_what_to_install(name: str, package: str, extra: str) -> None:
    used = {"Broker": "penstock.Broker('unused')", "register": "penstock.register(None)"}[name]
    done = run(f"import penstock\ntry: {used}\nexcept ImportError as error: print(error)", package)
    assert done.stdout == f"penstock.{name} needs {package}: pip install 'penstock-mq[{extra}]'\n", done.stderr


def test_the_extras_are_those_of_the_project(repository: Path) -> None:
    imported = {"prometheus-client": "prometheus_client", "python-qpid-proton": "proton", "zlib-ng": "zlib_ng"}
    declared = {}
    for line in requires(DISTRIBUTION) or ():
        if match := re.fullmatch(r"([\w-]+).*; .*extra == ['\"](broker|spark|amqp)['\"]", line):
            declared.setdefault(imported.get(match[1], match[1]), match[2])
    assert declared == {package: extra for package, extra in extras.EXTRAS.items() if extra != "dev"}


def test_a_missing_package_that_is_no_extra_of_ours_is_not_explained_away() -> None:
    def command() -> int:
        raise ModuleNotFoundError("No module named 'theirs'", name="theirs")

    with pytest.raises(ModuleNotFoundError, match="theirs"):
        extras.run(command)


def test_the_client_for_applications_needs_nothing_but_the_standard_library() -> None:
    done = run("import penstock; print(penstock.connect.__name__)", "numpy", "pyarrow", "pandas", "rich", "pyspark")
    assert done.stdout == "connect\n", done.stderr


def test_a_users_own_jobs_shadow_nothing(tmp_path: Path) -> None:
    for name in ("jobs", "connector", "broker_core"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("theirs = True\n")
    program = "import jobs, connector, broker_core, penstock.jobs.session as s; print(jobs.theirs, s.session.__module__)"
    done = run(f"sys.path.insert(0, {str(tmp_path)!r})\n{program}", cwd=tmp_path)
    assert done.stdout == "True penstock.jobs.session\n", done.stderr
