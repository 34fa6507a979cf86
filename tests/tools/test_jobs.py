"""The jobs as processes with a Spark of their own, as a user runs them, against a real broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import ULong
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.process import Broker
from penstock.jobs import demo, lost_machine, replay, under_kills
from penstock.jobs.told import Told

from ..amqp_client.test_discovery import add_user
from ..brokers import distribution_or_skip
from ..clients.conftest import command_or_skip
from .conftest import enqueue

pytestmark = pytest.mark.spark

#: Bare messages as AMQP clients send them: a text with a number as its id, and one without a body.
OF_AMQP = [
    Message(properties=Properties(message_id=ULong(7)), value="text", has_value=True).encode(),
    Message(properties=Properties(subject="no body")).encode(),
]

Job = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    def start(module: str, *arguments: str) -> subprocess.Popen[str]:
        return started(tmp_path, "-m", module, *arguments)

    return start


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=folder,
    )


def in_turn(folder: Path, *runs: tuple[str, list[str]]) -> subprocess.Popen[str]:
    """One process for several runs of jobs, by name: a start of Spark takes some thirty times as long as such a run."""
    script = (
        "import importlib, json, sys\n"
        "for job, given in json.loads(sys.argv[1]):\n"
        "    print('exit', importlib.import_module(f'penstock.jobs.{job}').main(given), flush=True)\n"
    )
    return started(folder, "-c", script, json.dumps(runs))


def finished(process: subprocess.Popen[str], limit_s: float = 200) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=limit_s)
    return process.returncode, out, err


def bodies(table: Path) -> list[str]:
    """The bodies in a Delta or Parquet table, read without Spark: the files of the latest version."""
    files = {path.name: path for path in table.glob("*.parquet")}
    log = sorted((table / "_delta_log").glob("*.json"))
    if log:
        live: set[str] = set()
        for version in log:
            for action in map(json.loads, version.read_text().splitlines()):
                live |= {action["add"]["path"]} if "add" in action else set()
                live -= {action["remove"]["path"]} if "remove" in action else set()
        files = {name: files[name] for name in live}
    return sorted(body.decode() for path in files.values() for body in pq.read_table(path)["body"].to_pylist())


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Broker]:
    """A broker that knows ann, and nobody else."""
    add_user(tmp_path / "users.json", "ann", "pencil")
    with Broker(tmp_path / "guarded", fsync="never", users_file=tmp_path / "users.json") as running:
        yield running


def ingest(broker: Broker, folder: Path, *more: str) -> list[str]:
    where = ["--table", str(folder / "table"), "--checkpoint", str(folder / "checkpoint")]
    return ["--url", broker.url, "--queue", "orders", *where, *more]


def test_ingest_then_replay_into_a_table_and_a_queue_and_what_is_refused_is_one_sentence(
    broker: Broker, client: Client, guarded: Broker, tmp_path: Path
) -> None:
    with Client(guarded.url, Credentials("ann", "pencil")) as other:
        enqueue(other, "kept", b"x")
        other.call("queue.declare", queue="kept-again")
    sent = [f"order {number:04}" for number in range(1000)]
    enqueue(client, "orders", *[text.encode() for text in sent])
    of_amqp = pa.record_batch({"message": pa.array(OF_AMQP, pa.binary()), "priority": pa.array([7, None], pa.int16())})
    for queue in ("again", "amqp", "amqp-again"):
        client.call("queue.declare", queue=queue)
    client.put({"op": "enqueue", "queue": "amqp"}, of_amqp.schema, [of_amqp])

    orders = ["--url", broker.url, "--queue", "orders"]
    first_hundred = ["--from-sequence", "0", "--to-sequence", "99", "--outcome", "accepted"]
    into_table = [*orders, *first_hundred, "--to", str(tmp_path / "again"), "--format", "parquet"]
    into_queue = [*orders, "--where", "sequenceNumber % 2 = 0", "--to-queue", "again", "--once-as", "evens"]
    as_it_came = ["--url", broker.url, "--queue", "amqp", "--states", "available", "--to-queue", "amqp-again"]
    (tmp_path / "ann").write_text("pencil\n")
    as_ann = ["--option", "userName=ann", "--option-file", f"password={tmp_path / 'ann'}"]
    logged_in = ["--url", guarded.url, "--queue", "kept", "--states", "available", "--to-queue", "kept-again", *as_ann]
    runs = (into_table, into_queue, into_queue, as_it_came, logged_in, [*logged_in, "--once-as", "me"])
    replays = [("replay", run) for run in runs]  # the third sends nothing
    by_400 = ingest(broker, tmp_path, "--available-now", "--option", "maxMessagesPerTrigger=400")
    no_queue = ["--url", broker.url, "--queue", "gone"]
    into_nothing = [*no_queue, "--table", str(tmp_path / "x"), "--checkpoint", str(tmp_path / "y"), "--available-now"]
    refused = [("ingest", into_nothing), ("replay", [*no_queue, "--to", str(tmp_path / "x")])]
    code, out, err = finished(in_turn(tmp_path, ("ingest", by_400), *replays, *refused))
    assert code == 0, err
    ingested, *replayed, rest = out.split("exit 0\n")
    assert rest == "exit 1\n" * len(refused), err
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert ["there is no queue 'gone'" in line for line in errors] == [True, True]
    assert [line.split("  ")[1].split(" messages")[0] for line in ingested.splitlines()] == [
        "batch 0: 400",
        "batch 1: 400",
        "batch 2: 200",
        "done: 1,000",
    ]
    assert bodies(tmp_path / "table") == sent
    assert [line.split("done: ")[1].split(" in ")[0] for said in replayed for line in said.splitlines()] == [
        "100 messages",
        "500 messages",
        "nothing was sent, since evens has been sent to again before",
        "2 messages",
        "1 messages",
        "1 messages",
    ]
    assert bodies(tmp_path / "again") == sent[:100]
    assert client.call("queue.stat", queue="again")["enqueued"] == 500
    (batch, *_) = client.get(op="browse", queue="again", states=["available"], columns=["body"])
    assert batch["body"].to_pylist()[:2] == [b"order 0000", b"order 0002"]
    stat = client.call("queue.stat", queue="orders")
    assert (stat["available"], stat["acquired"], stat["archived"]) == (0, 0, 1000)
    (batch, *_) = client.get(op="browse", queue="amqp-again", columns=["message", "priority"])
    assert batch.equals(of_amqp)


def test_a_login_goes_to_its_own_broker_alone(tmp_path: Path) -> None:
    secret = tmp_path / "bus"
    secret.write_text("Endpoint=sb://b/;SharedAccessKeyName=n;SharedAccessKey=k\n")
    given = ["--url", "amqp://a", "--queue", "q", "--to-queue", "r", "--option", "username=ann", "--option", "pushdown=true"]

    def target(*more: str) -> dict[str, str]:
        return replay.target(replay._parser().parse_args([*given, *more]))

    assert target() == {"url": "amqp://a", "queue": "r", "username": "ann"}
    assert target("--to-option", "userName=bob", "--to-url", "amqp://b") == {"url": "amqp://b", "queue": "r", "userName": "bob"}
    assert target("--to-option-file", f"connectionString={secret}") == {
        "queue": "r",
        "connectionString": secret.read_text().strip(),
    }


@pytest.mark.parametrize(
    ("pair", "said"),
    [(["--option", "pace"], "'pace' is not of the form NAME=VALUE"), (["--option-file", "password=/not/there"], "No such file")],
)
def test_an_option_that_cannot_be_read_is_named(pair: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        replay._parser().parse_args(["--url", "amqp://a", "--queue", "q", "--to", "t", *pair])
    assert said in capsys.readouterr().err


def test_a_running_ingest_follows_the_queue_and_stops_on_sigterm(
    job: Job, broker: Broker, client: Client, tmp_path: Path
) -> None:
    enqueue(client, "orders", b"one")
    process = job("penstock.jobs.ingest", *ingest(broker, tmp_path, "--interval", "0.2", "--lease", "orders-to-delta"))
    assert process.stdout is not None
    assert "batch 0: 1 messages" in process.stdout.readline()
    enqueue(client, "orders", b"two", b"three")
    assert "2 messages" in process.stdout.readline()
    assert [lease["lease"] for lease in client.call("lease.list")["leases"]] == ["orders-to-delta"]
    process.send_signal(signal.SIGTERM)
    code, out, err = finished(process)
    assert code == 0, err
    assert "done: 3 messages" in out
    assert bodies(tmp_path / "table") == ["one", "three", "two"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_on_a_few_days(job: Job, tmp_path: Path) -> None:
    process = job("penstock.jobs.demo", "--work", str(tmp_path / "demo"), "--flights", "8000", "--day", "2013-01-07")
    code, out, err = finished(process, 500)
    assert code == 0, out + err
    assert out.count("kill -9") == 2
    assert "✓ 8,000 rows, 8,000 different messages, none missing, none twice" in out
    assert "933 messages, sequence numbers" in out
    assert "✓ Spark: 8,000 messages, each once; outcomes: accepted" in out  # D4
    assert re.search(r"✓ DuckDB: EWR [\d,]+, JFK [\d,]+, LGA [\d,]+\n", out)
    assert re.search(r"✓ 100 messages came again in [\d.]+ s, in their order; at this pace it takes [\d.]+ s\n", out)  # S9
    # What it says to try next.
    with Broker(tmp_path / "demo" / "broker") as broker:
        environment = {**os.environ, "PENSTOCK_URL": broker.url}
        for command in ("queue stat flights", "queue peek flights --states archived", "lease list"):
            assert command in out
            subprocess.run([sys.executable, "-m", "penstock", *command.split()], env=environment, check=True, timeout=60)


@pytest.mark.skipif(
    not {"CI", "PENSTOCK_TEST_ARTEMIS_DEMO"} & set(os.environ), reason="three starts of Spark: set PENSTOCK_TEST_ARTEMIS_DEMO"
)
def test_the_demo_with_a_broker_that_is_no_penstock(job: Job, tmp_path: Path) -> None:
    arguments = ["--work", str(tmp_path / "demo"), "--broker", "artemis", "--artemis", str(distribution_or_skip())]
    code, out, err = finished(job("penstock.jobs.demo", *arguments, "--flights", "4000"), 500)
    assert code == 0, out + err
    assert out.count("kill -9") == 2
    assert "✓ 4,000 rows, 4,000 different messages, none missing, none twice, every byte as it was sent" in out


def test_the_demo_says_what_it_needs_of_artemis(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = ["--broker", "artemis", "--work", str(tmp_path / "work")]
    assert demo.main([*given, "--artemis", str(tmp_path)]) == 1
    out = capfd.readouterr().out
    assert f"there is no ActiveMQ Artemis in {tmp_path}: name the folder of an unpacked one" in out
    assert "bug" not in out
    with pytest.raises(SystemExit):
        demo.main(given)
    assert "--broker artemis needs --artemis DIR" in capfd.readouterr().err


def test_the_demo_says_that_it_kills_nothing_where_the_job_ends_before(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A demo without its kills shows nothing, and must not look as if it did."""
    monkeypatch.setattr(under_kills, "ATTEMPTS", 1)
    broker = Broker(tmp_path / "never-started")
    under_kills.ingest(broker, "--no-url", under_kills.Reader({}, lambda: 0), tmp_path, 9, Told())
    out = capfd.readouterr().out
    assert "the Spark driver is not killed: the job ended before, after 0 batches, with exit code 2" in out
    assert "the broker is not killed: the job ended before" in out
    assert "✗ the job does not come to an end" in out


def test_the_demo_of_a_lost_machine(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """D7: clients go on at the broker that was restored from S3; without an S3 server it is skipped, and said."""
    assert lost_machine.run(tmp_path / "lost", Path(*command_or_skip("versitygw")), Told())
    out = capfd.readouterr().out
    assert out.count("kill -9") == 1
    assert re.search(r"✓ [\d,]+ messages confirmed, 0 lost, 0 doubled; [\d,]+ deliveries\n", out)
    assert lost_machine.run(tmp_path / "none", None, Told())
    assert "skipped: there is no S3 server here" in capfd.readouterr().out


def test_the_demo_spares_a_folder_that_is_not_its_own(job: Job, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    code, _, err = finished(job("penstock.jobs.demo", "--work", str(tmp_path / "mine")))
    assert code == 1
    assert "is not empty" in err
    assert (tmp_path / "mine" / "letter").exists()
