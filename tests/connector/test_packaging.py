"""Code that is shipped to executors is enough, and light."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from penstock.broker_core import executor_modules
from penstock.connector import pyfiles

#: `register`, `explain`, and the module that Spark finds on its own, run only if the package can be imported.
WHERE_INSTALLED = tuple(f"penstock/connector/{name}.py" for name in ("__init__", "_discovery", "explanation"))


def run(code: str, *arguments: str, path: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": path, "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, cwd="/", capture_output=True, text=True, check=False
    )


def imported(module: str, *, path: str) -> set[str]:
    done = run(f"import {module}, sys; print(' '.join(sys.modules))", path=path)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pyfiles") / "penstock.zip"
    pyfiles.write(out)
    return out


def test_the_zip_holds_the_connector_and_what_it_needs_of_the_core(archive: Path) -> None:
    names = zipfile.ZipFile(archive).namelist()
    assert {name.split("/")[2] for name in names if name.startswith("penstock/broker_core/")} == {
        *(
            "__init__.py",
            "quantities.py",
            "moments.py",
            "errors.py",
            "local_files.py",
            "notations.py",
            "executor_modules.py",
            "similar.py",
            "wrong_port.py",
        ),
        *("amqp", "archive", "client", "messages", "selectors", "stores"),
    }
    assert "penstock/broker_core/messages/encoding/decoding.py" in names
    assert {"penstock/__init__.py", "penstock/connector/source.py"} <= set(names)


def test_every_module_of_the_zip_is_imported_with_nothing_but_the_zip(archive: Path) -> None:
    """An import of something that is not sent is refused, with the name of the module that imports it."""
    names = [name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in zipfile.ZipFile(archive).namelist()]
    code = f"""
import importlib
for name in {names!r}:
    found = importlib.import_module(name)
    assert found.__file__.startswith({str(archive)!r}), found.__file__
"""
    done = run(code, path=str(archive))
    assert done.returncode == 0, done.stderr


BY_VALUE = """
import sys
from pyspark import cloudpickle
from penstock.broker_core import executor_modules as shipped
from penstock.connector import registration
registration._ship_by_value()
names = [name.removeprefix(shipped.NAME + ".").rstrip(".") for name in shipped.SOURCES if name != shipped.NAME + "."]

def modules():
    return [shipped.module(name).__name__ for name in names]

open(sys.argv[1], "wb").write(cloudpickle.dumps((registration.AmqpSource, modules)))
"""
ELSEWHERE = """
import pickle, sys
sys.modules["penstock"] = None  # as where it is not installed
source, modules = pickle.load(open(sys.argv[1], "rb"))
found = modules()
assert source.name() == "amqp" and len(found) > 80 and all(name.startswith("penstock_shipped.") for name in found), found
"""


def test_what_travels_by_value_is_enough_where_nothing_is_installed(archive: Path, tmp_path: Path) -> None:
    """As with Spark Connect: the source is pickled, late imports go as source, and each of these modules can be imported."""
    for code in (BY_VALUE, ELSEWHERE):
        done = run(code, str(tmp_path / "pickled"), path=str(archive))
        assert done.returncode == 0, done.stderr


def test_functions_that_travel_by_value_import_nothing_of_ours(archive: Path) -> None:
    """The other side has no `penstock`; such functions ask `executor_modules.module`."""
    by_value = tuple(f"penstock/broker_core/{name}" for name in executor_modules.AT_ONCE)
    late = "penstock/broker_core/messages/encoding/"  # goes as source
    with zipfile.ZipFile(archive) as files:
        for name in files.namelist():
            if name.startswith((*by_value, "penstock/connector/")) and not name.startswith((*WHERE_INSTALLED, late)):
                for node in ast.walk(ast.parse(files.read(name))):
                    if isinstance(node, ast.FunctionDef):
                        inside = [inner for inner in ast.walk(node) if isinstance(inner, ast.ImportFrom)]
                        ours = [item.module for item in inside if item.level or str(item.module).startswith("penstock")]
                        assert not ours, f"{name}: {node.name}"


def test_the_zip_is_enough_to_discover_a_broker(archive: Path) -> None:
    code = (
        "from penstock.broker_core import executor_modules as shipped;"
        " print(shipped.module('client.amqp').__file__, len(shipped.sources()) > 30)"
    )
    done = run(code, path=str(archive))
    assert done.stdout == f"{archive}/penstock/broker_core/client/amqp/__init__.py True\n", done.stderr


DECODE = """
import pyarrow as pa
from penstock.broker_core.messages import assembly
batch = pa.record_batch({"message": pa.array([b"\\0Su\\xa0\\1x", b"\\0Sw\\xa1\\1y", b"\\0Sv\\x45"])})
system = {"queue": "q", "sequenceNumber": 0, "enqueuedTime": 0}
print(assembly.assemble(["body"], batch, system, malformed={}).column(0).to_pylist())
"""


def test_the_zip_is_enough_to_decode_messages(archive: Path) -> None:
    done = run(DECODE, path=str(archive))
    assert done.stdout == "[b'x', b'y', b'[]']\n", done.stderr


def test_the_zip_is_enough_to_import_the_source(archive: Path, tmp_path: Path) -> None:
    code = f"import penstock.connector.source as s; assert s.__file__.startswith({str(archive)!r}), s.__file__"
    done = run(code, path=str(archive))
    assert done.returncode == 0, done.stderr


def test_the_same_content_gives_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    pyfiles.write(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_the_command_writes_the_zip_and_refuses_anything_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert pyfiles.main([str(tmp_path / "x.zip")]) == 0
    assert (tmp_path / "x.zip").exists()
    assert pyfiles.main([]) == 2
    assert "usage" in capsys.readouterr().err


def test_what_every_planning_worker_imports_is_light(archive: Path) -> None:
    modules = imported("penstock.connector.source", path=str(archive))
    for heavy in ("pyarrow.compute", "pandas", "penstock.broker_core.amqp", "penstock.broker_core.messages.encoding"):
        assert heavy not in modules
