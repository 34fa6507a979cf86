"""The wheel, its metadata, and facts that two files of the repository contain."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import penstock.broker_core
from penstock.connector.spark_settings import LATEST_WITH_DELTA, delta_settings, recommended_settings


@pytest.fixture(scope="session")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*command, str(repository)], check=True, stdin=subprocess.DEVNULL)
    (built,) = folder.glob("penstock_mq-*-py3-none-any.whl")
    return built


def test_it_holds_every_module_and_nothing_else(wheel: Path, repository: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {
        f"penstock/{path.relative_to(repository)}"
        for package in ("broker_core", "connector", "jobs")
        for path in (repository / package).rglob("*.py")
    }
    modules |= {f"penstock/conf/{path.name}" for path in (repository / "conf").iterdir()}
    page = (path for path in (repository / "broker_core" / "http_plane" / "page").rglob("*") if path.is_file())
    modules |= {f"penstock/{path.relative_to(repository)}" for path in page}
    modules |= {f"penstock/{name}" for name in ("__init__.py", "__main__.py", "extras.py", "py.typed", "testing.py")}
    # The one file that moves: Spark looks for it at the top.
    assert names == modules - {"penstock/connector/_discovery.py"} | {"pyspark_penstock.py"}


def test_the_packages_at_the_top_are_linked(repository: Path) -> None:
    links = {path.name: path.readlink().as_posix() for path in (repository / "penstock").iterdir() if path.is_symlink()}
    assert links == {name: f"../{name}" for name in ("broker_core", "conf", "connector", "jobs")}


def test_spark_s_entry_is_the_connector_s_discovery(wheel: Path, repository: Path) -> None:
    assert zipfile.ZipFile(wheel).read("pyspark_penstock.py") == (repository / "connector" / "_discovery.py").read_bytes()


def metadata(wheel: Path, name: str) -> str:
    archive = zipfile.ZipFile(wheel)
    (path,) = (entry for entry in archive.namelist() if entry.endswith(f".dist-info/{name}"))
    return archive.read(path).decode()


def test_without_extras_it_needs_only_pyarrow(wheel: Path) -> None:
    message = Parser().parsestr(metadata(wheel, "METADATA"))
    needed = [line for line in message.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert [re.match(r"[\w-]+", line)[0] for line in needed] == ["pyarrow"]  # type: ignore[index]
    assert set(message.get_all("Provides-Extra", [])) == {"broker", "spark", "delta", "amqp", "dev"}
    assert message["License-Expression"] == "Apache-2.0"
    assert message["Version"] == penstock.broker_core.__version__


def test_the_sdist_builds_the_same_wheel(wheel: Path, repository: Path, tmp_path: Path) -> None:
    """U6: `./dev release` publishes both. `build` makes the wheel from the sdist."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(repository)]
    subprocess.run(build, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    (again,) = tmp_path.glob("*.whl")
    assert contents(again) == contents(wheel)
    if importlib.util.find_spec("twine") is None:
        assert not os.environ.get("CI")
        pytest.skip("twine is not installed: ./dev setup installs it")
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *tmp_path.iterdir()], check=True)


def contents(wheel: Path) -> dict[str, bytes]:
    archive = zipfile.ZipFile(wheel)
    return {name: archive.read(name) for name in archive.namelist()}


def test_the_files_of_conf_come_out_of_the_wheel_without_an_extra(wheel: Path, repository: Path, tmp_path: Path) -> None:
    """`penstock conf` lists them and prints each byte for byte, in an environment that has pyarrow at most."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "site"), "LC_ALL": "C"}

    def conf(*names: str) -> bytes:
        command = [sys.executable, "-S", "-m", "penstock", "conf", *names]  # -S: without this interpreter's packages
        return subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True).stdout

    files = dict(line.split()[:2] for line in conf().decode().splitlines())
    assert files.keys() == {"spark", "broker", "systemd", "container", "constraints", "ignore", "alerts", "grafana"}
    assert set(files.values()) == {path.name for path in (repository / "conf").iterdir()}
    for name, file in files.items():
        assert conf(name) == (repository / "conf" / file).read_bytes()


def test_the_folder_of_the_jobs_is_printed_for_spark_submit() -> None:
    done = subprocess.run([sys.executable, "-m", "penstock.jobs"], check=True, capture_output=True, text=True)
    assert {"archive.py", "ingest.py", "redrive.py", "replay.py"} <= {path.name for path in Path(done.stdout.strip()).iterdir()}


def test_the_changelog_has_a_section_for_this_version(repository: Path) -> None:
    heading = rf"^## {re.escape(penstock.broker_core.__version__)}, \d{{4}}-\d\d-\d\d$"
    assert re.search(heading, (repository / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_command_line_is_installed(wheel: Path) -> None:
    assert "penstock = penstock.__main__:main" in metadata(wheel, "entry_points.txt")


def test_an_executor_needs_neither_numpy_nor_rich_nor_pyspark_for_the_client() -> None:
    program = (
        "import sys\n"
        "for name in ('numpy', 'pandas', 'rich', 'pyspark'): sys.modules[name] = None\n"
        "import penstock.broker_core.client.flight, penstock.broker_core.messages.columns, penstock.broker_core.errors\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_spark_s_entry_imports_no_pyarrow() -> None:
    program = "import sys; sys.modules['pyarrow'] = None; import pyspark_penstock; print(pyspark_penstock.DefaultSource.name())"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "amqp\n"


@pytest.mark.skipif(not os.environ.get("PENSTOCK_TEST_WHEEL"), reason="only ./dev test promises it")
def test_what_is_tested_is_the_wheel(repository: Path) -> None:
    assert "site-packages" in penstock.broker_core.__file__
    child = [sys.executable, "-c", "import penstock; print(penstock.__file__)"]
    done = subprocess.run(child, check=True, capture_output=True, text=True, cwd=repository)
    assert "site-packages" in done.stdout


def settings_in(text: str) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#"))


def test_the_spark_conf_is_what_the_jobs_set(repository: Path) -> None:
    settings = settings_in((repository / "conf" / "spark.conf").read_text())
    assert settings == {**delta_settings(LATEST_WITH_DELTA), **recommended_settings(LATEST_WITH_DELTA)}


@pytest.mark.parametrize("spark", ["4.0.1", "4.1", "4.2.1", "4.3.0"])
def test_the_printed_spark_conf_is_that_of_the_version(repository: Path, spark: str) -> None:
    command = [sys.executable, "-m", "penstock", "conf", "spark", "--spark", spark]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    settings = settings_in(printed)
    assert settings == {**delta_settings(spark), **recommended_settings(spark)}
    assert settings.get("spark.jars.packages", "").startswith(f"io.delta:delta-spark_{spark[:3]}_") == (spark != "4.3.0")
    assert "commented out" in printed or spark != "4.3.0"
    assert printed.endswith((repository / "conf" / "spark.conf").read_text()[-200:]) or spark == "4.0.1"


@pytest.mark.parametrize(
    ("arguments", "says"), [(["spark", "--spark", "new"], "a version such as 4.2"), (["broker", "--spark", "4.1"], "is for")]
)
def test_a_wrong_version_of_spark_is_refused(arguments: list[str], says: str) -> None:
    done = subprocess.run([sys.executable, "-m", "penstock", "conf", *arguments], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr


def test_the_extra_for_delta_ends_where_delta_does(wheel: Path) -> None:
    """tests/spark_versions shows that Delta fails on the next Spark."""
    needed = Parser().parsestr(metadata(wheel, "METADATA")).get_all("Requires-Dist", [])
    limits = [line for line in needed if line.startswith("pyspark")]
    major, minor = LATEST_WITH_DELTA.split(".")
    assert sorted(limits) == [
        f"pyspark<{major}.{int(minor) + 1}; extra == 'delta'",
        f"pyspark[connect]>={major}.0; extra == 'spark'",
    ]
    others = [line for line in needed if not line.endswith("extra == 'dev'")]
    assert not [line for line in others if line.startswith(("pandas", "delta-spark"))]


def tracked_files(repository: Path) -> list[str]:
    """Return the names of all files of the checkout except this one, which contains the forbidden texts."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=repository, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = listed.stdout.rstrip("\0").split("\0")
    return [name for name in names if name != "tests/tools/test_packaging.py" and (repository / name).is_file()]


def test_no_file_names_a_place_of_one_machine(repository: Path) -> None:
    """A repository must not contain paths of one machine or hosts of package registries."""
    wrong = re.compile(rb"/(root|home|Users)/\w|/work/(main|shared)|repo1?\.maven|(?<!files\.)pypi\.org|pythonhosted|/opt/wheels")
    matches = {name: wrong.search((repository / name).read_bytes()) for name in tracked_files(repository)}
    assert [f"{name}: {match[0].decode()}" for name, match in matches.items() if match] == []


#: Installations of `penstock`, with or without extras or a version, instead of `penstock-mq`, a file or a folder.
WRONG_NAME = re.compile(
    r"\b(?:pip3?|uv|pipx|poetry)\b[^\n|;`]*?\b(?:install|add)\b[^\n|;`]*?[\s'\"]penstock(?=$|[\s'\"`\[=<>~!@,.)])", re.MULTILINE
)
#: Extras of the wrong name, wherever they stand.
WRONG_EXTRAS = re.compile(r"\bpenstock\[(?:broker|spark|delta|amqp|dev)\b")


def recommends_the_unrelated_project(text: str) -> list[str]:
    return [match.group().strip() for pattern in (WRONG_NAME, WRONG_EXTRAS) for match in pattern.finditer(text)]


@pytest.mark.parametrize(
    ("text", "is_wrong"),
    [
        ("run pip install penstock", True),
        ("`python -m pip install -U penstock`, then", True),
        ('!pip install "penstock==0.1"', True),
        ("pip install 'penstock[broker]'", True),
        ("uv add penstock", True),
        ("pip install 'penstock-mq[broker]'", False),
        ("pip install ./penstock_mq-0.1.0-py3-none-any.whl", False),
        ("pip install numpy; penstock serve", False),
        ("pip install 'penstock-mq[broker]' into /opt/penstock, then", False),
        ("useradd penstock", False),
    ],
)
def test_the_search_for_the_wrong_name_finds_it(text: str, is_wrong: bool) -> None:
    assert bool(recommends_the_unrelated_project(text)) == is_wrong


def test_no_text_recommends_the_unrelated_project_of_the_index(repository: Path) -> None:
    """`penstock` on the public index is not ours. CHANGELOG.md may name it."""
    texts = {
        name: (repository / name).read_text(errors="replace") for name in tracked_files(repository) if name != "CHANGELOG.md"
    }
    wrong = {name: names for name, text in texts.items() if (names := recommends_the_unrelated_project(text))}
    assert wrong == {}


def test_the_name_of_hints_is_that_of_the_project(wheel: Path) -> None:
    message = Parser().parsestr(metadata(wheel, "METADATA"))
    assert message["Name"] == penstock.broker_core.DISTRIBUTION
    assert message["Version"] == penstock.broker_core.__version__
