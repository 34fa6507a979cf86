"""The demo, as `./dev demo` runs it, on a few flights."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.broker_core.server.child import Broker

from ..brokers import distribution_or_skip
from ..clients.conftest import command_or_skip
from ..demo import kills, lost_machine, program
from ..demo.output import Output
from .test_jobs import finished, started

pytestmark = pytest.mark.spark


def run(repository: Path, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return started(folder, str(repository / "tests" / "demo"), *arguments)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_on_a_few_days(repository: Path, tmp_path: Path) -> None:
    process = run(repository, tmp_path, "--work", str(tmp_path / "demo"), "--flights", "8000", "--day", "2013-01-07")
    code, out, err = finished(process, 500)
    assert code == 0, out + err
    assert out.count("kill -9") == 3  # Spark, the broker, and the machine of the last step
    assert "✓ 8,000 rows, 8,000 different messages, 0 missing, 0 duplicated" in out
    assert "933 messages, sequence numbers" in out
    assert "✓ Spark: 8,000 messages, each once; outcomes: accepted" in out  # D4
    assert re.search(r"✓ DuckDB: EWR [\d,]+, JFK [\d,]+, LGA [\d,]+\n", out)
    assert re.search(r"✓ 100 messages were replayed in their order, the last one [\d.]+ s after the first; with", out)  # S9
    # Of the whole transfer, also after a kill.
    counts = re.findall(r"batch \d+ in [\d.]+ s: ([\d,]+) of 8,000 flights are in the table", out)
    arrived = [int(number.replace(",", "")) for number in counts]
    assert arrived == sorted(arrived)
    assert arrived[-1] == 8000
    assert "8 of 8  A machine is lost with its disk" in out
    assert re.search(r"✓ [\d,]+ messages were confirmed to the senders: 0 of them are lost, 0 are stored twice", out)  # D7
    # The commands that its last lines recommend.
    with Broker(tmp_path / "demo" / "broker") as broker:
        environment = {**os.environ, "PENSTOCK_URL": broker.url}
        for command in ("queue stat flights", "queue peek flights --states archived", "lease list"):
            assert command in out
            subprocess.run([sys.executable, "-m", "penstock", *command.split()], env=environment, check=True, timeout=60)


@pytest.mark.skipif(
    not {"CI", "PENSTOCK_TEST_ARTEMIS_DEMO"} & set(os.environ), reason="three starts of Spark: set PENSTOCK_TEST_ARTEMIS_DEMO"
)
def test_the_demo_with_a_broker_that_is_no_penstock(repository: Path, tmp_path: Path) -> None:
    arguments = ["--work", str(tmp_path / "demo"), "--broker", "artemis", "--artemis", str(distribution_or_skip())]
    code, out, err = finished(run(repository, tmp_path, *arguments, "--flights", "4000"), 500)
    assert code == 0, out + err
    assert out.count("kill -9") == 2  # Spark and the broker
    assert "✓ 4,000 rows, 4,000 different messages, 0 missing, 0 duplicated, identical byte for byte" in out


def test_the_demo_says_what_it_needs_of_artemis(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--broker", "artemis", "--work", str(tmp_path / "work")]
    assert program.main([*arguments, "--artemis", str(tmp_path)]) == 1
    out = capfd.readouterr().out
    assert f"there is no ActiveMQ Artemis in {tmp_path}: name the folder of an unpacked one" in out
    assert "bug" not in out
    with pytest.raises(SystemExit):
        program.main(arguments)
    assert "--broker artemis needs --artemis DIR" in capfd.readouterr().err


def test_the_demo_says_that_it_kills_nothing_where_the_job_ends_before(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its kills the demo proves nothing, and its output must say so."""
    monkeypatch.setattr(kills, "ATTEMPTS", 1)
    broker = Broker(tmp_path / "never-started")
    kills.ingest(broker, "--no-url", kills.Reader({}, lambda: 0), tmp_path, 9, Output())
    out = capfd.readouterr().out
    assert "the Spark driver is not killed: the job ended after 0 batches, with exit code 2" in out
    assert "the broker is not killed: the job ended after" in out
    assert "✗ the job fails repeatedly" in out


def test_the_demo_of_a_lost_machine(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """D7: clients continue with the broker that was restored from S3."""
    assert lost_machine.run(tmp_path / "lost", Path(*command_or_skip("versitygw")), Output())
    out = capfd.readouterr().out
    assert out.count("kill -9") == 1
    assert re.search(r"✓ [\d,]+ messages were confirmed to the senders: 0 of them are lost, 0 are stored twice", out)
    [different] = re.findall(r"the receiver has acknowledged ([\d,]+) different messages", out)
    [confirmed] = re.findall(r"✓ ([\d,]+) messages were confirmed", out)
    assert int(different.replace(",", "")) > int(confirmed.replace(",", "")) // 2  # it is at most seconds behind


def test_the_demo_spares_a_folder_that_is_not_its_own(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    code, _, err = finished(run(repository, tmp_path, "--work", str(tmp_path / "mine")))
    assert code == 1
    assert "is not empty" in err
    assert (tmp_path / "mine" / "letter").exists()
