"""The commands of an operator: status, top, connection, definitions, doctor, against a real broker."""

from __future__ import annotations

import json
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.broker_core.client.amqp import connect
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from ..waiting import until
from .conftest import Run, enqueue


def test_status_says_what_runs_where_and_what_is_wrong(penstock: Run, broker: Broker) -> None:
    """U9"""
    output = penstock("status", url=broker.url).stdout
    facts = dict(line.split(maxsplit=1) for line in output.splitlines() if line and line != "no alarms")
    assert (facts["version"], facts["directory"]) == ("0.1.0", str(broker.data_dir))
    assert broker.amqp_url in facts["listeners"]
    assert output.endswith("no alarms\n")


def test_connections_are_listed_and_closed(penstock: Run, broker: Broker, client: Client) -> None:
    """U9: messages of a closed connection return to their queue."""
    enqueue(client, "orders", b"one", b"two")
    with connect(broker.amqp_url, timeout_s=60) as connection:
        receiver = connection.receiver("orders", credit=10)
        assert len(receiver.receive(timeout_s=60)) > 0
        connections = json.loads(penstock("connection", "list", "--json", url=broker.url).stdout)
        (amqp,) = (connection for connection in connections if connection["protocol"] == "amqp")
        listed = penstock("connection", "list", url=broker.url).stdout
        (line,) = (line for line in listed.splitlines() if line.startswith(amqp["id"]))
        assert "orders" in line
        assert amqp["id"] not in penstock("connection", "list", "--slow", url=broker.url).stdout
        closed = penstock("connection", "close", amqp["id"], "--reason", "maintenance", url=broker.url)
        assert closed.returncode == 0, closed.stderr
        assert client.call("queue.stat", queue="orders")["available"] == 2
    again = penstock("connection", "close", amqp["id"], url=broker.url)
    assert (again.returncode, "or it is closed" in again.stderr) == (1, True)


def test_top_shows_rates(penstock: Run, broker: Broker, client: Client) -> None:
    enqueue(client, "orders", b"one")
    client.call("queue.declare", queue="idle")
    shown = penstock("top", "--interval", "0.1", "--count", "2", url=broker.url).stdout
    assert shown.count("settled/s") == 2
    assert shown.index("orders") < shown.index("idle")
    pictures = penstock("top", "--interval", "0.1", "--count", "1", "--json", url=broker.url).stdout
    assert [row["queue"] for row in json.loads(pictures)] == ["orders", "idle"]


def test_definitions_go_from_one_broker_into_another(tmp_path: Path, penstock: Run, broker: Broker, client: Client) -> None:
    """U9: all definitions, and again without a change. Different ones are reported and not changed."""
    client.call("queue.declare", queue="orders", type="priority", options={"levels": 3, "maxAttempts": 5})
    client.call("queue.declare", queue="plain")
    client.call("exchange.declare", exchange="events", type="topic")
    client.call("exchange.bind", exchange="events", queue="orders", key="eu.#", selector="size > 5")
    assert penstock("definitions", "export", "all.json", url=broker.url).stdout == "2 queues and 1 exchange written to all.json\n"
    with Broker(tmp_path / "other", fsync="never") as target:
        done = penstock("definitions", "import", "all.json", url=target.url)
        assert done.stdout.endswith("\n4 declared, 0 existed already, 0 refused\n"), done.stderr
        again = penstock("definitions", "import", "all.json", url=target.url).stdout
        assert again.endswith("\n0 declared, 4 existed already, 0 refused\n")
        assert penstock("definitions", "export", url=target.url).stdout == (tmp_path / "all.json").read_text()
        changed = json.loads((tmp_path / "all.json").read_text())
        changed["queues"][0]["type"] = "fifo"
        changed["queues"][0]["options"].pop("levels")
        (tmp_path / "changed.json").write_text(json.dumps(changed))
        refused = penstock("definitions", "import", "changed.json", url=target.url)
    assert refused.returncode == 1
    assert "refused   queue orders (fifo, " in refused.stdout
    assert "queue 'orders' exists with type 'priority'" in refused.stdout


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[", "is not JSON"),
        ("[]", "no definitions"),
        ('{"version": 9}', "the version is 9"),
        ('{"version": 1}', "no definitions"),
        ('{"version": 1, "queues": ["orders"], "exchanges": []}', "no definitions"),
    ],
)
def test_a_file_that_has_no_definitions_is_refused(tmp_path: Path, penstock: Run, text: str, complaint: str) -> None:
    (tmp_path / "file").write_text(text)
    refused = penstock("definitions", "import", "file")
    assert (refused.returncode, complaint in refused.stderr) == (2, True), refused.stderr


def test_an_import_ends_where_the_broker_is_gone(tmp_path: Path, penstock: Run) -> None:
    """Reported once, and not for each declaration."""
    queues = [{"queue": name, "type": "fifo", "options": {}} for name in ("a", "b")]
    (tmp_path / "file").write_text(json.dumps({"version": 1, "queues": queues, "exchanges": []}))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        gone = penstock("definitions", "import", "file", "--url", f"grpc://127.0.0.1:{taken.getsockname()[1]}")
    assert (gone.returncode, gone.stdout, gone.stderr.count("no broker answers")) == (3, "", 1), gone.stderr
    assert gone.stderr.endswith("; 0 of 2 are declared: import again\n")


@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["text", "json"])
def test_an_import_that_is_cut_off_says_what_was_refused_before(
    tmp_path: Path, penstock: Run, broker: Broker, client: Client, flags: list[str]
) -> None:
    client.call("queue.declare", queue="orders", type="priority")
    queues = [{"queue": name, "type": "fifo", "options": {}} for name in ("orders", *map(str, range(5000)))]
    (tmp_path / "file").write_text(json.dumps({"version": 1, "queues": queues, "exchanges": []}))
    with ThreadPoolExecutor(1) as beside:
        importing = beside.submit(penstock, "definitions", "import", "file", *flags, url=broker.url)
        until(lambda: len(client.call("queue.list")["queues"]) > 3, "the import has begun")
        broker.kill()
        cut = importing.result()
    assert cut.returncode == 3, cut.stderr
    (last,) = cut.stderr.splitlines()
    message = json.loads(last)["error"]["message"] if flags else last
    assert re.search(r"; \d[\d,]* of 5,001 are declared, 1 refused: import again$", message), cut.stderr
    assert cut.stdout.count("queue 'orders' exists with type 'priority'") == (0 if flags else 1)


def test_an_import_tries_a_wrong_password_once(tmp_path: Path, penstock: Run) -> None:
    """Each try is a failed login of the user, which may block the user."""
    (tmp_path / "right").write_text("right\n")
    (tmp_path / "wrong").write_text("wrong\n")
    queues = [{"queue": str(number), "type": "fifo", "options": {}} for number in range(20)]
    (tmp_path / "file").write_text(json.dumps({"version": 1, "queues": queues, "exchanges": []}))
    assert penstock("user", "add", "ann", "--password-file", "right", "--data", "data").returncode == 0
    assert penstock("permit", "ann", "*", "all", "--data", "data").returncode == 0
    with Broker(tmp_path / "data", fsync="never") as running:
        login = ("--url", running.url, "--user", "ann", "--password-file")
        refused = penstock("definitions", "import", "file", *login, "wrong")
        assert (refused.returncode, refused.stderr.count("\n")) == (1, 1), refused.stderr
        assert penstock("definitions", "import", "file", *login, "right").returncode == 0


# --- doctor


def looked(penstock: Run, *arguments: str, url: str | None = None) -> tuple[int, list[dict[str, str]]]:
    done = penstock("doctor", "--json", *arguments, url=url)
    return done.returncode, json.loads(done.stdout)


def finding_about(findings: list[dict[str, str]], subject: str) -> dict[str, str]:
    (match,) = (finding for finding in findings if finding["what"] == subject)
    return match


def test_the_doctor_finds_nothing_wrong_with_a_healthy_broker(penstock: Run, broker: Broker) -> None:
    """U9"""
    code, findings = looked(penstock, "--data", str(broker.data_dir), url=broker.url)
    assert code == 0, findings
    assert finding_about(findings, "data")["text"].startswith(f"{broker.data_dir} is in use by process {broker.pid} on ")
    assert finding_about(findings, "broker")["level"] == "ok"
    assert finding_about(findings, "users")["level"] == "warning"


def test_the_doctor_names_what_is_wrong(tmp_path: Path, penstock: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """U9: a port in use, an invalid certificate, wrong settings, a Python without penstock, no broker."""
    (tmp_path / "none.pem").write_text("no certificate")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        lines = [f"flight_port = {port}", 'tls_cert_file = "none.pem"', 'tls_key_file = "none.pem"', "http_port = 0"]
        (tmp_path / "penstock.toml").write_text("\n".join([*lines, "amqp_port = 0"]))
        code, findings = looked(penstock, "--config", "penstock.toml", "--data", "data")
    assert code == 1
    assert "in use by process" in finding_about(findings, "flight_port")["text"]
    assert "contains no certificate" in finding_about(findings, "certificate")["text"]
    (tmp_path / "penstock.toml").write_text("flight_prt = 1")
    monkeypatch.setenv("PYSPARK_PYTHON", "/bin/false")
    code, findings = looked(penstock, "--config", "penstock.toml", "--url", "grpc://127.0.0.1:1")
    assert code == 1
    assert "flight_prt is not a key" in finding_about(findings, "settings")["text"]
    assert "install penstock-mq there" in finding_about(findings, "PYSPARK_PYTHON")["text"]
    assert "no broker answers" in finding_about(findings, "broker")["text"]
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert finding_about(looked(penstock)[1], "PYSPARK_PYTHON")["level"] == "ok"


def test_the_doctor_repeats_an_alarm_with_the_name_of_its_queue(tmp_path: Path, penstock: Run) -> None:
    """A file occupies the place of the archive table, so the alarm archive-failing is raised."""
    with Broker(tmp_path / "broker", fsync="never", archive_after_s=0.1) as broker, Client(broker.url) as client:
        (broker.data_dir / "archive").mkdir(exist_ok=True)
        (broker.data_dir / "archive" / "orders").write_text("a file, and not a table")
        enqueue(client, "orders", b"one")
        client.call("queue.purge", queue="orders")
        until(lambda: client.call("broker.status")["alarms"], "the alarm is raised")
        (finding,) = (finding for finding in looked(penstock, url=broker.url)[1] if finding["what"].startswith("alarm"))
    assert finding["what"] == "alarm archive-failing"
    assert finding["text"].startswith("queue orders: ")
