"""D2 D1: kill -9 of a broker that does nothing but send, settle and clean, on a real disk: every message that waits is there."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from penstock.broker_core.journal import LocalDisk
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.service.cleaning import SLACK, SPARE_SEGMENTS
from penstock.broker_core.settings.keys import Settings

from .helpers import MIB, everything, open_service

OPTIONS = {"segment_bytes": MIB, "retention_bytes": MIB, "archive": "off", "clean_bandwidth": 1 << 40}

KILLED = """
    import sys

    sys.path.append(sys.argv[2])  # for the tests; the broker is the one that is installed
    from tests.service.test_cleaning import pass_through, stick
    from tests.service.test_cleaning_killed import started

    service = started(sys.argv[1])
    if not service.state.queues:
        stick(service)
    print("ready", flush=True)
    while True:
        pass_through(service, messages=200)
        service.cleaner.clean()
        print("turn", flush=True)
"""


def started(data: str) -> BrokerService:
    return BrokerService(Settings(data=Path(data), **OPTIONS))  # type: ignore[arg-type]


@pytest.mark.parametrize("turns", [1, 3, 7])
def test_a_broker_that_is_killed_while_it_cleans_has_every_message(tmp_path: Path, repository: Path, turns: int) -> None:
    for _ in range(2):
        command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "data"), str(repository)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(turns + 1):
            assert process.stdout.readline()
        process.kill()
        process.wait()
        process.stdout.close()
    service = open_service(LocalDisk(tmp_path / "data"), **OPTIONS)
    try:
        assert list(everything(service, "stuck").values()) == [b"stuck" * 10]
        for _ in range(3):
            service.cleaner.clean()
        size = sum(path.stat().st_size for path in (tmp_path / "data").glob("*.seg"))
        assert size <= SLACK * service.cleaner.usage().total + (SPARE_SEGMENTS + 1) * MIB
    finally:
        service.close()
