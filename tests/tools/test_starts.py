"""A start in an interpreter of its own, which the other tests save (tests/forking.py), and how a fork stands in for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock.broker_core
from penstock.broker_core.server import serve as serving
from penstock.broker_core.server.child import Broker
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import load

from .. import forking

COMMAND = [sys.executable, "-m", "penstock"]
#: Imports each module in a fork without modules of Penstock, and prints the failures.
EACH = """
import os, sys
import numpy, pyarrow.compute, pyarrow.flight, rich.console, rich.table
for name in sys.argv[1:]:
    assert not any(module.startswith("penstock") for module in sys.modules)
    child = os.fork()
    if child == 0:
        __import__(name)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(name, flush=True)
"""


def modules(folder: Path) -> list[str]:
    return sorted(f"penstock.broker_core.{folder.name}.{path.stem}" for path in folder.glob("*.py") if path.stem != "__init__")


def test_any_module_of_the_command_line_can_be_imported_first() -> None:
    """Each command imports its modules when it runs, and must not rely on the imports of another command."""
    names = [
        *modules(Path(penstock.broker_core.__file__).parent / "cli"),
        "penstock.broker_core.server.serve",
        "penstock.broker_core.client.flight",
    ]
    assert len(names) > 15
    done = subprocess.run([sys.executable, "-c", EACH, *names], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.usefixtures("interpreters")
def test_the_command_line_in_an_interpreter_of_its_own(broker: Broker) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments, "--url", broker.url], capture_output=True, text=True, timeout=60, check=False
        )

    assert run("queue", "declare", "orders").stdout == "queue orders is declared\n"
    assert run("queue", "list", "--json").stdout.startswith('[{"queue": "orders"')
    refused = run("queue", "stat", "nope")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("penstock: the broker refused this request: ")


@pytest.fixture
def forks() -> None:
    if sys.platform != "linux":
        pytest.skip("elsewhere nothing is forked")
    if os.environ.get("PENSTOCK_TEST_FORK") == "0":
        pytest.skip("PENSTOCK_TEST_FORK is 0")


@pytest.mark.usefixtures("forks")
def test_a_fork_is_a_child_with_its_own_files_folder_and_environment(tmp_path: Path) -> None:
    with open(tmp_path / "said", "w") as output:
        started = subprocess.Popen([*COMMAND, "--version"], cwd=tmp_path, stdout=output, stderr=subprocess.PIPE)
        assert isinstance(started, forking.Popen)
        assert started.communicate(timeout=60) == (None, b"")
    assert started.returncode == 0
    assert (tmp_path / "said").read_text() == f"penstock {penstock.broker_core.__version__}\n"


@pytest.mark.usefixtures("forks")
def test_a_template_that_ended_is_told_with_what_it_said_and_the_next_start_has_another() -> None:
    command, own = [*COMMAND, "--version"], {**os.environ, "PYTHONFAULTHANDLER": "1"}  # which prints to stderr
    assert subprocess.run(command, env=own, capture_output=True, check=True).stdout
    _, template = forking.template_for(own)
    template.process.send_signal(signal.SIGABRT)
    template.process.wait(30)
    with pytest.raises(RuntimeError, match=r"has ended with exit code -6: Fatal Python error: Aborted"):
        subprocess.run(command, env=own, capture_output=True, check=True)
    assert subprocess.run(command, env=own, capture_output=True, check=True).stdout


class Mistake(Exception):
    """Raised at one step of a start."""


def ignore(line: Any) -> None:
    pass


@pytest.mark.parametrize("step", ["the recovery", "the words about it", "the way to reload", "the AMQP plane", "the ready line"])
def test_a_start_that_fails_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """A failed step leaves no thread and no lock of the data directory."""

    def fail(*arguments: Any, **named: Any) -> Any:
        raise Mistake

    steps = {"the recovery": "BrokerService", "the words about it": "_introduce", "the AMQP plane": "AmqpPlane"}
    if step in steps:
        monkeypatch.setattr(serving, steps[step], fail)
    settings = load(None, {"data": tmp_path, "flight_port": 0, "amqp_port": 0, "http_port": 0, "fsync": "never"})
    before = set(threading.enumerate())
    ready, reloads = (fail if step == stage else ignore for stage in ("the ready line", "the way to reload"))
    with pytest.raises(Mistake):
        serving.serve(settings, ready, threading.Event(), reloads)
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive(), thread.name
    BrokerService(settings).close()
