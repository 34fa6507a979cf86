"""The jobs as processes with a Spark of their own, as a user runs them, against a real broker."""

from __future__ import annotations

import json
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
from penstock.broker_core.server.child import Broker
from penstock.jobs import replay

from ..amqp_client.test_discovery import add_user
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
    """A broker with the user ann only."""
    add_user(tmp_path / "users.json", "ann", "pencil")
    with Broker(tmp_path / "guarded", fsync="never", users_file=tmp_path / "users.json") as running:
        yield running


def ingest(broker: Broker, folder: Path, *more: str) -> list[str]:
    where = ["--table", str(folder / "table"), "--checkpoint", str(folder / "checkpoint")]
    return ["--url", broker.url, "--queue", "orders", *where, *more]


def test_ingest_then_replay_into_a_table_and_a_queue_and_what_is_refused_is_one_sentence(
    broker: Broker, client: Client, guarded: Broker, tmp_path: Path
) -> None:
    with Client(guarded.url, Credentials("ann", "pencil")) as session:
        enqueue(session, "kept", b"x")
        session.call("queue.declare", queue="kept-again")
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
    assert [line.split("done: ")[1].split(" in ")[0] for output in replayed for line in output.splitlines()] == [
        "100 messages",
        "500 messages",
        "nothing was sent, because evens was sent to again before",
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
    arguments = ["--url", "amqp://a", "--queue", "q", "--to-queue", "r", "--option", "username=ann", "--option", "pushdown=true"]

    def target(*more: str) -> dict[str, str]:
        return replay.target(replay._parser().parse_args([*arguments, *more]))

    assert target() == {"url": "amqp://a", "queue": "r", "username": "ann"}
    assert target("--to-option", "userName=bob", "--to-url", "amqp://b") == {"url": "amqp://b", "queue": "r", "userName": "bob"}
    assert target("--to-option-file", f"connectionString={secret}") == {
        "queue": "r",
        "connectionString": secret.read_text().strip(),
    }


@pytest.mark.parametrize(
    ("pair", "complaint"),
    [(["--option", "pace"], "'pace' is not of the form NAME=VALUE"), (["--option-file", "password=/not/there"], "No such file")],
)
def test_an_option_that_cannot_be_read_is_named(pair: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        replay._parser().parse_args(["--url", "amqp://a", "--queue", "q", "--to", "t", *pair])
    assert complaint in capsys.readouterr().err


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
