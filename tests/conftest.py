"""The tests run against the installed wheel. This file checks that `./dev test` imports the package from there.

A bare `pytest` tests the checkout instead, without a build.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from . import forking
from .azure import AzureServer
from .s3 import S3Server

if TYPE_CHECKING:
    from .brokers import RealBroker

ROOT = Path(__file__).resolve().parent.parent

if not os.environ.get("PENSTOCK_TEST_WHEEL"):
    sys.path.insert(0, str(ROOT))
    # For the processes that tests start: brokers, Spark's workers.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

# A JVM of a test lives for seconds: its second compiler, its parallel collector and its check of each class's code cost more than
# they save. The start of a Spark session takes a third of the CPU time without them.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)


def pytest_configure(config: pytest.Config) -> None:
    forking.install()
    if not os.environ.get("PENSTOCK_TEST_WHEEL"):
        return
    spec = importlib.util.find_spec("penstock")
    origin = Path(spec.origin or "") if spec else None
    if origin is None or ROOT / "penstock" in origin.parents or "site-packages" not in origin.parts:
        raise pytest.UsageError(f"penstock would be tested from {origin}, not from the installed wheel: run ./dev test")


# Folders whose tests share an expensive start (a JVM, foreign clients, foreign brokers), and therefore one process.
TOGETHER = ("spark", "clients", "foreign")
# The longest go first, so that no process is alone with one of them at the end.
_LONG = (
    "tools/test_jobs.py",
    "tools/test_demo.py",
    "tools/test_documents.py",
    "amqp_plane/test_leaving.py",
    "spark_versions/test_versions.py",
)
FIRST = (*TOGETHER, *(f"tests/{name}" for name in _LONG))


def _group(nodeid: str) -> str:
    path = nodeid.partition("::")[0]
    folder = path.split("/")[1]
    return folder if folder in TOGETHER else path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: FIRST.index(group) if (group := _group(item.nodeid)) in FIRST else len(FIRST))


def pytest_collection_finish() -> None:
    """Exclude the thousands of tests from garbage collection. Otherwise each explicit collection takes half a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`./dev test` runs three processes side by side: the tests of a file, or of a folder of `TOGETHER`, go to the same one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return ByGroup(config, log)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server for all tests that need one; each uses a prefix of its own."""
    from .clients.conftest import command_or_skip

    server = S3Server(command_or_skip("versitygw"), tmp_path_factory.mktemp("s3") / "files")
    yield server
    server.close()


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """Azure's blob storage, by Microsoft's emulator, for all tests that need it; each uses a folder of its own."""
    from .clients.conftest import command_or_skip

    server = AzureServer(command_or_skip("azurite"), tmp_path_factory.mktemp("azure") / "files")
    yield server
    server.close()


@pytest.fixture(scope="session")
def artemis_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    """ActiveMQ Artemis, real; see brokers.py."""
    from . import brokers

    yield from brokers.started(brokers.Artemis, tmp_path_factory)


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    """RabbitMQ 3 with its plugin for AMQP 1.0, real."""
    from . import brokers

    yield from brokers.started(brokers.RabbitMQ, tmp_path_factory)


@pytest.fixture(scope="session")
def qpid_broker_j(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    """Qpid Broker-J, real."""
    from . import brokers

    yield from brokers.started(brokers.BrokerJ, tmp_path_factory)


@pytest.fixture(autouse=True)
def _all_lines_are_logged(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """A process has one limit on log lines, which the lines of earlier tests would use up. A test of the limit has *fill_the_log*
    in its name."""
    from penstock.broker_core.security.log_limit import LogLimit

    if "fill_the_log" not in request.node.name:
        monkeypatch.setattr(LogLimit, "omitted_before", lambda limit, peer: 0)


@pytest.fixture
def interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers and command lines start in an interpreter of their own, as a user's do, not as forks (see forking.py)."""
    monkeypatch.setattr(subprocess, "Popen", forking.ByExec)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout, for tests of its scripts and documents."""
    return ROOT
