"""The command line against a real broker: output, errors and exit codes."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
import trustme

from penstock.broker_core.client.flight import Client
from penstock.broker_core.messages.columns import STRING_MAP
from penstock.broker_core.server.child import Broker
from penstock.broker_core.settings.keys import KEYS

from .conftest import Run, enqueue, hold, serve

#: A password from here would be in clear on the network.
REMOTE_LOGIN = ["--url", "grpc://192.0.2.1:8815", "--user", "ann", "--password-file", __file__]


def test_a_queue_from_declare_to_delete(penstock: Run, broker: Broker, client: Client) -> None:
    assert "no queues yet" in penstock("queue", "list", url=broker.url).stdout
    assert penstock("queue", "declare", "orders", url=broker.url).stdout == "queue orders is declared\n"
    assert "exists already" in penstock("queue", "declare", "orders", url=broker.url).stdout
    enqueue(client, "orders", b"one", b"two", b"three")

    listed = penstock("queue", "list", url=broker.url)
    assert listed.stdout.split()[:2] == ["queue", "type"]
    assert "orders" in listed.stdout
    assert json.loads(penstock("queue", "list", "--json", url=broker.url).stdout)[0]["available"] == 3

    facts = dict(line.split(maxsplit=1) for line in penstock("queue", "stat", "orders", url=broker.url).stdout.splitlines())
    assert (facts["available"], facts["acquired"], facts["archived"]) == ("3", "0", "0")
    assert (facts["consumers"], facts["refused"]) == ("0", "0")
    assert facts["delayed"] == "0"

    assert json.loads(penstock("queue", "purge", "orders", "--json", url=broker.url).stdout) == {"purged": 3}
    facts = dict(line.split(maxsplit=1) for line in penstock("queue", "stat", "orders", url=broker.url).stdout.splitlines())
    assert facts["available"] == "0"
    assert penstock("queue", "delete", "orders", url=broker.url).stdout == "queue orders is deleted\n"
    assert json.loads(penstock("queue", "list", "--json", url=broker.url).stdout) == []


def test_peek_takes_nothing(penstock: Run, broker: Broker, client: Client) -> None:
    enqueue(client, "orders", b"first", "zwölf".encode(), b"\xff\x00", b"x" * 500)
    shown = penstock("queue", "peek", "orders", url=broker.url).stdout
    assert "first" in shown
    assert "zwölf" in shown
    assert "0xff00" in shown
    assert "…" in shown
    rows = json.loads(penstock("queue", "peek", "orders", "--from", "1", "--count", "2", "--json", url=broker.url).stdout)
    assert [row["sequenceNumber"] for row in rows] == [1, 2]
    assert [row["body"] for row in rows] == ["zwölf", {"base64": "/wA="}]
    assert rows[0]["enqueuedTime"].endswith("Z")
    assert client.call("queue.stat", queue="orders")["available"] == 4


def test_peek_shows_what_arrived_in_a_time(penstock: Run, broker: Broker, client: Client) -> None:
    """A flag and a time ago are two words, or one."""
    enqueue(client, "orders", b"one")
    (row,) = json.loads(penstock("queue", "peek", "orders", "--since", "-2h", "--until", "now", "--json", url=broker.url).stdout)
    shown = penstock("queue", "peek", "orders", "--since=yesterday", url=broker.url).stdout
    assert row["enqueuedTime"].replace("T", " ")[:19] + " UTC" in shown
    before = penstock("queue", "peek", "orders", "--until", "-2h", url=broker.url).stdout
    assert re.fullmatch(r"no available message in orders until 2\d{3}-\d\d-\d\dT[\d:.]*Z\n", before)


def test_peek_shows_what_a_selector_matches(penstock: Run, broker: Broker, client: Client) -> None:
    """Q8"""
    client.call("queue.declare", queue="orders")
    maps = pa.array([[("size", size)] for size in "179"], STRING_MAP)
    batch = pa.record_batch([pa.array([b"1", b"7", b"9"]), maps], names=["body", "properties"])
    client.put({"op": "enqueue", "queue": "orders"}, batch.schema, [batch])
    rows = json.loads(penstock("queue", "peek", "orders", "--selector", "size <> 7", "--json", url=broker.url).stdout)
    assert [row["body"] for row in rows] == ["1", "9"]
    refused = penstock("queue", "peek", "orders", "--selector", "size =", url=broker.url)
    assert refused.returncode == 1
    assert "at character 7: found the end" in refused.stderr


def test_peek_names_the_field_that_a_selector_may_mean(penstock: Run, broker: Broker, client: Client) -> None:
    enqueue(client, "orders", b"one")

    def peeked(selector: str) -> tuple[str, str]:
        done = penstock("queue", "peek", "orders", "--selector", selector, url=broker.url)
        assert done.returncode == 0
        return done.stdout, done.stderr

    stdout, stderr = peeked("subject = 'created'")
    assert "no available message" in stdout
    assert stderr == (
        "note: in a selector 'subject' is an application property, which no compared message has; for the message's subject write"
        " JMSType or amqp.subject\n"
    )
    assert peeked("JMSType = 'created'")[1] == peeked("subject IS NULL")[1] == ""
    assert "one" in peeked("")[0]


def test_peek_shows_what_was_settled_and_how(penstock: Run, broker: Broker, client: Client) -> None:
    enqueue(client, "orders", b"one")
    penstock("queue", "purge", "orders", url=broker.url)
    assert "no available message" in penstock("queue", "peek", "orders", url=broker.url).stdout
    (row,) = json.loads(penstock("queue", "peek", "orders", "--states", "archived", "--json", url=broker.url).stdout)
    assert (row["state"], row["outcome"], row["body"]) == ("archived", "purged", "one")


def test_peek_of_a_long_queue_answers_at_once(penstock: Run, broker: Broker, client: Client) -> None:
    enqueue(client, "orders", *[b"x" * 1000] * 50_000)
    assert len(json.loads(penstock("queue", "peek", "orders", "--json", url=broker.url, limit_s=20).stdout)) == 10


def test_a_lease_is_listed_released_and_forgotten(penstock: Run, broker: Broker, client: Client) -> None:
    enqueue(client, "orders", b"one", b"two", b"three")
    assert "no leases" in penstock("lease", "list", url=broker.url).stdout
    hold(client, "orders", "q1", 2)
    (lease,) = json.loads(penstock("lease", "list", "--json", url=broker.url).stdout)
    assert (lease["lease"], lease["queue"], lease["messages"], lease["stage"]) == ("q1", "orders", 2, "read")
    assert "q1" in penstock("lease", "list", url=broker.url).stdout

    refused = penstock("queue", "delete", "orders", "--yes", url=broker.url)
    assert refused.returncode == 1
    assert "penstock lease release" in refused.stderr

    released = penstock("lease", "release", "q1", "--return", url=broker.url)
    assert released.stdout == "2 messages of lease q1 returned\n"
    assert client.call("queue.stat", queue="orders")["available"] == 3
    assert penstock("lease", "delete", "q1", url=broker.url).stdout == "lease q1 is deleted\n"
    assert json.loads(penstock("lease", "list", "--json", url=broker.url).stdout) == []


def test_a_poisonous_message_is_settled_out_of_a_held_batch(penstock: Run, broker: Broker, client: Client) -> None:
    enqueue(client, "orders", b"good", b"poison", b"good too")
    hold(client, "orders", "q1", 3)
    done = penstock("lease", "settle", "q1", "--sequence", "1", "--outcome", "rejected", "--error", "not JSON", url=broker.url)
    assert done.returncode == 0, done.stderr
    assert penstock("lease", "release", "q1", "--settle", url=broker.url).returncode == 0
    rows = json.loads(penstock("queue", "peek", "orders", "--states", "archived", "--json", url=broker.url).stdout)
    assert [row["outcome"] for row in rows] == ["accepted", "rejected", "accepted"]


@pytest.mark.parametrize(
    "command",
    [
        ["queue", "stat", "nope"],
        ["queue", "peek", "nope"],
        ["queue", "purge", "nope"],
        ["queue", "delete", "nope"],
        ["queue", "declare", "q", "--type", "heap"],
        ["queue", "declare", "q", "--option", "colour=blue"],
        ["lease", "release", "nope", "--settle"],
        ["lease", "settle", "nope", "--sequence", "1", "--outcome", "accepted"],
        ["lease", "delete", "nope"],
    ],
)
def test_what_the_broker_refuses_is_one_sentence_and_exit_code_1(penstock: Run, broker: Broker, command: list[str]) -> None:
    refused = penstock(*command, url=broker.url)
    assert refused.returncode == 1
    assert refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith("penstock: the broker refused this request: ")
    as_json = penstock(*command, "--json", url=broker.url)
    assert as_json.returncode == 1
    assert json.loads(as_json.stderr)["error"]["fault"] == "caller"


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["queue", "list", "--url", "http://127.0.0.1"], "--url must be amqp://HOST[:PORT]"),
        (["queue", "list", "--url", "amqp://ann:secret@127.0.0.1"], "without a user (see --user)"),
        (["queue", "list", "--url", "amqp://127.0.0.1:99999"], "is not an address of a broker"),
        (["queue", "purge", "q", "--url", "grpc://127.0.0.1"], "it must be grpc://HOST:PORT"),
        (["queue", "list", "--url", "amqp://127.0.0.1,grpc://127.0.0.1:0"], "it must be grpc://HOST:PORT"),
        (["queue", "list", *REMOTE_LOGIN], "would cross the network in the open"),
        (["queue", "purge", "q", *REMOTE_LOGIN], "would cross the network in the open"),
        (["send", "q", "--url", "amqp://"], "is not an address of a broker"),
        (["receive", "q", "--url", "amqp://127.0.0.1,amqp://127.0.0.2"], "--url names several brokers"),
        (["queue", "list", "--password-file", "p"], "--password-file needs --user"),
        (["queue", "list", "--user", "ann"], "--user needs --password-file"),
        (["queue", "list", "--user", "ann", "--password-file", "nowhere"], "nowhere cannot be read"),
        (["queue", "list", "--ca-file", "nowhere"], "CA file nowhere cannot be read"),
        (["queue", "list", "more"], "usage: penstock queue list"),
        (["queue", "list", "more"], "unrecognized arguments: more\n"),
        (["queue", "list", "--jsn"], "unrecognized arguments: --jsn; did you mean --json?"),
        (["queue", "declare", "q", "--max-attempts", "3"], "did you mean --option maxAttempts=…?"),
        (["queue", "alter", "q", "max_attempts=3"], "did you mean --option maxAttempts=…?"),
        (["send", "q", "--prio", "4"], "did you mean --priority?"),
        (["send", "q", "a", "--whole", "b", "--prio", "4"], "did you mean --priority?"),
        (["queue", "lst"], "did you mean 'list'?"),
        (["queue", "show", "q"], "did you mean 'stat'?"),
        (["queue", "rm", "q"], "did you mean 'delete'?"),
        (["send", "q", "--url", "grpc://127.0.0.1:1"], "must be amqp://HOST[:PORT] or amqps://HOST[:PORT]"),
        (["send", "q", "--ttl", "0"], "0 is not above 0"),
        (["send", "q", "--priority", "10"], "--priority: invalid choice: 10"),
        (["send", "q", "--delay", "-1"], "-1 is less than 0"),
        (["send", "q", "--delay", "316224000"], "316224000 is not above 0 and at most 316,223,999"),
        (["send", "q", "--property", "blue"], "it must be NAME=VALUE"),
        (["send", "q", "nowhere.txt"], "nowhere.txt cannot be read; nothing was sent"),
        (["send", "q", "--whole", "file", "--fast"], "unrecognized arguments: file --fast"),
        (["receive", "q", "--count", "0"], "0 is less than 1"),
        (["receive", "q", "--wait", "-1"], "-1 is less than 0"),
        (["receive", "q", "--json", "--output", "d"], "no meaning with --output"),
        (["send", "q", "--property", "a=1", "--property", "a=1"], "--property names 'a' twice"),
        (["queue", "declare", "q", "--option", "blue"], "it must be NAME=VALUE"),
        (["queue", "declare", "q", "--option", "maxAttempts=3", "--option", "maxAttempts=4"], "names 'maxAttempts' twice"),
        (["queue", "alter", "q", "--option", "levels=3", "--reset", "levels"], "--option and --reset both name 'levels'"),
        (["exchange", "bind", "e", "q", "--argument", "a=1", "--argument", "a=2"], "--argument names 'a' twice"),
        (["queue", "peek", "q", "--states", "gone"], "allowed are available, acquired, archived"),
        (["queue", "peek", "q", "--count", "0"], "0 is less than 1"),
        (["queue", "peek", "q", "--since", "tomorrow"], "'tomorrow' is not a time; it must be a time such as -2h, -30m"),
        (["queue", "peek", "q", "--until", "-2"], "'-2' is not a time"),
        (["queue", "peek", "q", "--since", "-1h", "--until", "-2h"], "penstock: since 2"),
        (["queue", "peek", "q", "-2h"], "unrecognized arguments: -2h"),
        (["queue", "peek", "q", "--from", "x"], "invalid whole number value: 'x'"),
        (["queue", "peek", "q", "--from", "٣"], "invalid whole number value: '٣'"),
        (["receive", "q", "--wait", "٣"], "invalid number of seconds value: '٣'"),
        (["queue", "redrive", "q", "--sequence", f"1-{2**63}"], "is more than 9,223,372,036,854,775,807"),
        (["work", "shop:handle", "--user", "ann"], "--user needs --password-file"),
        (["work", "shop", "--grace", "3", "other:handle"], "'shop' does not name a worker"),
        (["work", "shop:handle", "--metrics-port", "65536"], "invalid port value: '65536'"),
        (["lease", "release", "q"], "one of the arguments --settle --return is required"),
        (["lease", "settle", "q", "--sequence", "1", "--outcome", "eaten"], "invalid choice: 'eaten'"),
        (["serve"], "give --data DIR"),
        (["serve", "--data", "d", "--fsync", "maybe"], "fsync cannot be 'maybe'; it must be one of always, interval, never"),
        (["serve", "--data", "d", "--http-port", "web"], "a port number, 0 for a free one"),
        (["serve", "--data", "d", "--config", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["dance"], "invalid choice: 'dance'"),
        ([], "required: COMMAND"),
    ],
)
def test_a_wrong_command_line_is_exit_code_2(penstock: Run, command: list[str], complaint: str) -> None:
    refused = penstock(*command)
    assert refused.returncode == 2
    assert complaint in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("command", [["work", "shop:handle"], ["send", "q"], ["queue", "list"], ["queue", "purge", "q"]])
def test_a_CA_for_a_url_without_TLS_is_exit_code_2(tmp_path: Path, penstock: Run, command: list[str]) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "shop.py").write_text("import penstock\nhandle = penstock.worker('q')(print)\n")
    refused = penstock(*command, "--ca-file", "ca.pem", "--url", "amqp://127.0.0.1:1")
    assert refused.returncode == 2
    assert refused.stderr.startswith("penstock: certificates have no meaning for amqp://127.0.0.1:1: use ")


@pytest.mark.parametrize(
    "command", [["queue", "peek", "--json"], ["queue", "lst", "--json"], ["send", "q", "--url", "x", "--json"]]
)
def test_a_program_hears_in_JSON_that_its_command_line_is_wrong(penstock: Run, command: list[str]) -> None:
    refused = penstock(*command)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert json.loads(refused.stderr)["error"]["code"] == "USAGE"


def test_flags_of_every_command_may_stand_in_any_place(penstock: Run, broker: Broker) -> None:
    """Before the command, between its two words, and behind."""
    for command in (
        ["--url", broker.url, "--json", "queue", "list"],
        ["--json", "queue", f"--url={broker.url}", "list"],
        ["queue", "list", "--json", "--url", broker.url],
    ):
        assert penstock(*command).stdout == "[]\n"


def test_what_a_broker_starts_for_itself_is_named_to_nobody(penstock: Run) -> None:
    for command in (["dance"], ["--help"]):
        process = penstock(*command)
        assert "archiver" not in process.stdout + process.stderr


def test_without_a_broker_it_says_how_to_start_one(penstock: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: no answer, and no other process gets the port
        refused = penstock("queue", "list", "--url", f"grpc://127.0.0.1:{taken.getsockname()[1]}")
    assert refused.returncode == 3
    (line,) = refused.stderr.splitlines()
    assert line.startswith("penstock: the broker cannot be used: ")
    assert "penstock serve --data DIR" in line


@pytest.mark.timeout(60)
def test_ctrl_c_ends_a_command_that_waits_for_a_silent_broker() -> None:
    """Also in gRPC, which would block until its own limit."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "queue", "purge", "orders", "--url", url],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # independent of the inherited handler
        )
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            try:
                _, output = process.communicate(timeout=10)
            finally:
                process.kill()
    assert (process.returncode, output) == (130, b"")


def test_help_names_the_exit_codes(penstock: Run) -> None:
    for command in (["--help"], ["serve", "--help"], ["queue", "peek", "--help"]):
        assert "exit codes: 0 done" in penstock(*command).stdout


def test_the_options_of_serve_stand_in_groups(penstock: Run) -> None:
    """U9: each setting once, and those of a subject together."""
    shown = penstock("serve", "--help").stdout
    groups = {block.split("\n")[0]: block for block in shown.split("\n\n")}
    for title, flag in (("AMQP:", "--amqp-port"), ("HTTP:", "--http-sessions"), ("users and TLS:", "--tls-cert-file")):
        assert flag in groups[title]
    for name in KEYS:
        assert len(re.findall(rf"^  --{name.replace('_', '-')} ", shown, re.MULTILINE)) == 1, name
    numbers, times = "a whole number|a port number", "a time|a whole number"
    for metavar, values in (("N", numbers), ("BYTES", "a size"), ("SECONDS", times), ("BOOL", "true")):
        flags = re.findall(rf"^  --(\S+) {metavar}\b", shown, re.MULTILINE)
        assert all(re.match(values, KEYS[flag.replace("-", "_")].allowed) for flag in flags), metavar
    shown_host = re.findall(r"^  --(\S+host\S*|host) (\w+)", shown, re.MULTILINE)
    assert shown_host == [("host", "HOST"), ("http-host", "HOST")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_one_line_when_ready_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    process = serve(tmp_path / "data")
    assert process.stdout is not None
    ready = json.loads(process.stdout.readline())
    assert list(ready) == ["ready", "amqp", "flight", "http"]
    assert ready["ready"]
    assert re.fullmatch(r"amqp://127\.0\.0\.1:\d+", ready["amqp"])
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", ready["http"])
    with Client(ready["flight"]) as client:
        assert client.call("queue.list") == {"queues": []}
    process.send_signal(number)
    rest, _ = process.communicate(timeout=30)
    assert (process.returncode, rest) == (0, "")


def test_a_broker_at_an_IPv6_address_is_reached_by_what_it_says(tmp_path: Path, penstock: Run) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no ::1")
    with Broker(tmp_path / "data", host="::1", fsync="never") as running:
        assert running.http_url.startswith("http://[::1]:")
        for url in (running.amqp_url, running.url):
            assert json.loads(penstock("queue", "list", "--json", url=url).stdout) == []


def test_a_signal_right_after_the_ready_line_is_not_lost(tmp_path: Path) -> None:
    for attempt in range(5):
        process = serve(tmp_path / f"data{attempt}")
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        process.communicate(timeout=30)
        assert process.returncode == 0


def test_a_port_that_is_taken_is_refused_and_not_shared(tmp_path: Path, penstock: Run, broker: Broker) -> None:
    port = broker.url.rpartition(":")[2]
    refused = penstock("serve", "--data", str(tmp_path / "other"), "--flight-port", port, "--amqp-port", "0", "--http-port", "0")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"penstock: port {port} of 127.0.0.1 is in use by process {broker.pid} (")
    assert "choose another with --flight-port, or 0 for any free one" in refused.stderr


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("/proc/foo", "/proc/foo cannot be made"),
        ("file", "it is not a directory"),
        ("/proc/self", "the data directory /proc/self cannot be used: "),
    ],
)
def test_a_directory_that_cannot_be_is_one_sentence(tmp_path: Path, penstock: Run, data: str, complaint: str) -> None:
    """U9: `--data` with a file, an impossible path, or a directory of another user."""
    (tmp_path / "file").touch()
    refused = penstock("serve", "--data", str(tmp_path / data), "--flight-port", "0", "--amqp-port", "0", "--http-port", "0")
    assert refused.returncode != 0
    (line,) = (entry for entry in refused.stderr.splitlines() if " INFO " not in entry)
    assert complaint in line


@pytest.mark.parametrize(
    "command", [("serve", "--data"), ("user", "list", "--data"), ("backup", "--to", "to", "--data"), ("check",)]
)
def test_a_directory_that_cannot_be_looked_at_is_one_sentence(penstock: Run, command: tuple[str, ...]) -> None:
    """Here: a name that is too long, which not even root can look at."""
    refused = penstock(*command, "x" * 300)
    assert refused.returncode in (1, 2, 4)
    assert "x" * 300 in next(line for line in refused.stderr.splitlines() if line.startswith("penstock: "))
    assert "Traceback" not in refused.stderr


def test_a_broker_on_a_network_without_users_says_both_ways_out(tmp_path: Path, penstock: Run) -> None:
    """W3: no plane is open to a network without a setting."""
    data = tmp_path / "data"
    refused = penstock(
        "serve", "--data", str(data), "--host", "0.0.0.0", "--flight-port", "0", "--amqp-port", "0", "--http-port", "0"
    )
    assert refused.returncode == 1
    (line,) = (entry for entry in refused.stderr.splitlines() if " INFO " not in entry)
    assert f"penstock user add NAME --data {data}" in line
    assert "allow_anonymous = true" in line
    assert not data.exists()


def test_a_directory_in_use_says_by_whom(penstock: Run, broker: Broker) -> None:
    refused = penstock("serve", "--data", str(broker.data_dir), "--flight-port", "0", "--amqp-port", "0", "--http-port", "0")
    assert refused.returncode == 4
    assert str(broker.pid) in refused.stderr


def test_the_journal_says_what_is_needed_and_by_whom(penstock: Run, broker: Broker, client: Client) -> None:
    """D2: position, queue, number, state and since when; for a person and for a program."""
    penstock("queue", "declare", "orders", url=broker.url)
    assert "nothing" in penstock("journal", url=broker.url).stdout
    enqueue(client, "orders", b"one", b"two")
    answer = json.loads(penstock("journal", "--json", url=broker.url).stdout)
    assert {name: answer["oldest"][name] for name in ("queue", "sequence", "state")} == {
        "queue": "orders",
        "sequence": 0,
        "state": "available",
    }
    assert [queue["queue"] for queue in answer["queues"]] == ["orders"]
    assert 0 < answer["neededBytes"] <= answer["bytes"] <= answer["mostBytes"]
    assert sum(segment["neededBytes"] for segment in answer["segments"]) == answer["neededBytes"]
    since = f"{datetime.fromtimestamp(answer['oldest']['time'] / 1e6, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    assert abs(answer["oldest"]["time"] / 1e6 - time.time()) < 60
    text = f"position {answer['oldest']['position']}: message 0 of 'orders', available, since {since}"
    assert text in penstock("journal", url=broker.url).stdout
    assert text in penstock("queue", "stat", "orders", url=broker.url).stdout
    assert json.loads(penstock("queue", "stat", "orders", "--json", url=broker.url).stdout)["oldest"] == answer["oldest"]
    hold(client, "orders", "nightly", 1)
    held = text.replace("available", "acquired by nightly")
    assert held in penstock("journal", url=broker.url).stdout
    assert held in penstock("queue", "stat", "orders", url=broker.url).stdout


def test_the_journal_says_what_of_it_waits_for_the_archive_and_in_stages(penstock: Run, broker: Broker, client: Client) -> None:
    """D2 D4: a settled message that is not recorded, and staged messages."""
    enqueue(client, "orders", b"one", b"two")
    client.call("queue.purge", queue="orders")
    text = penstock("journal", url=broker.url).stdout
    assert re.search(r"position \d+: message 0 of 'orders', archived, since 20", text)
    assert re.search(r"^oldest +nothing$", penstock("queue", "stat", "orders", url=broker.url).stdout, re.MULTILINE)
    penstock("queue", "delete", "orders", url=broker.url)
    penstock("queue", "declare", "other", "--option", "archive=false", url=broker.url)
    batch = pa.record_batch({"body": pa.array([b"x"], pa.binary())})
    client.put({"op": "stage", "queue": "other", "stage": "load"}, batch.schema, [batch])
    text = penstock("journal", url=broker.url).stdout
    assert re.search(r"position \d+: message 0 of 'orders', archived, since 20", text), "its table is to have it yet"
    answer = json.loads(penstock("journal", "--json", url=broker.url).stdout)
    assert {queue["queue"] for queue in answer["queues"]} == {"orders", "other"}
