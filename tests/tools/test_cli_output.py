"""Output of the command line: complete in a pipe, cut on a terminal except names; questions before a deletion."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core.cli import connection, queue, top
from penstock.broker_core.cli.show import counted, duration, print_table
from penstock.broker_core.client.flight import Client
from penstock.broker_core.errors import Unroutable
from penstock.broker_core.server.child import Broker

from .conftest import Run, enqueue, hold

LONG = "a-queue-with-a-name-that-is-longer-than-the-terminal-is-wide." * 3


def at_a_terminal(*arguments: str, url: str, width: int = 80, typed: str = "") -> tuple[int, str]:
    """Run `penstock …` at a terminal of this width with typed input; return exit code and output."""
    master, terminal = pty.openpty()
    environment = {**os.environ, "PENSTOCK_URL": url, "COLUMNS": str(width), "LINES": "24", "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    os.write(master, typed.encode())
    seen = b""
    while True:
        try:
            read = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        seen += read
    os.close(master)
    return process.wait(60), seen.decode()


def test_a_pipe_gets_a_line_for_each_row_with_whole_values(penstock: Run, broker: Broker, client: Client) -> None:
    """W13: names that are longer than the screen, on one line each, so that `grep` and `cut` find them."""
    enqueue(client, LONG, b"x" * 500)
    enqueue(client, "other", b"y")
    lines = penstock("queue", "list", url=broker.url).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["queue", LONG, "other"]
    assert "\x1b" not in "".join(lines)


def test_a_terminal_gets_cut_columns_but_whole_names(broker: Broker, client: Client) -> None:
    """W13"""
    enqueue(client, "orders", *[b"a long body, " * 9] * 3)
    hold(client, "orders", LONG, 1)
    _, peeked = at_a_terminal("queue", "peek", "orders", url=broker.url, width=60)
    lines = peeked.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert len(lines) == 4
    assert max(map(len, lines[:3])) == 60
    assert "…" in lines[1]
    _, listed = at_a_terminal("lease", "list", url=broker.url, width=60)
    assert LONG in listed


class Screen(io.StringIO):
    """A terminal of the width in COLUMNS."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]], columns: dict[str, str], width: int = 80) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout", screen := Screen())
    print_table(rows, columns, empty="nothing")
    return re.sub("\x1b\\[[01]m", "", screen.getvalue()).splitlines()


@pytest.mark.parametrize("columns", [top._COLUMNS, queue._LIST], ids=["top", "queue list"])
def test_a_narrow_terminal_gets_fewer_columns_and_whole_numbers(monkeypatch: pytest.MonkeyPatch, columns: dict[str, str]) -> None:
    """Columns without a value are left out first, then the last ones. A line names them."""
    row = {**dict.fromkeys(columns, 179_812_345), "queue": "orders-of-the-north", "type": "priority", "delayed": 0}
    rows = [{**row, "leases": ["a-query", "another"]}]
    assert len(shown(monkeypatch, rows, columns, 200)) == 2
    for width in (80, 60, 40, 20):
        *lines, last = shown(monkeypatch, rows, columns, width)
        assert max(map(len, lines)) <= max(width, len("orders-of-the-north"))
        assert "…" not in "".join(lines)
        assert set(lines[1].split()) <= {"orders-of-the-north", "priority", "179,812,345", "0", "a-query,", "another"}
        heading, hidden = lines[0].split(), last.removeprefix("a wider terminal, or --json, shows: ").split(", ")
        assert sorted(heading + hidden) == sorted(columns.values())
        assert "delayed" in hidden


def test_a_narrow_list_of_connections_has_whole_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {
        "id": "amqp-1234",
        "user": "shop",
        "peer": "[2001:db8:85a3::8a2e:370:7334]:54321",
        "container": "orders.py@host-of-a-pod",
    }
    row |= {"tls": False, "since": 1.7e15, "linkCount": 2, "slow": False, "links": []}  # type: ignore[dict-item]
    link = {"queue": "orders", "credit": 1000, "unsettled": 12}
    lines = shown(monkeypatch, [connection._row({**row, "links": [link]})], connection._LIST)
    assert max(map(len, lines[:2])) <= 80
    assert lines[1].split()[:4] == ["amqp-1234", "shop", "[2001:db8:85a3::8a2e:370:7334]:54321", "orders"]
    assert lines[2].startswith("a wider terminal, or --json, shows: ")


def test_a_subject_cannot_drive_the_terminal(penstock: Run, broker: Broker, client: Client) -> None:
    """Control characters of clients are escaped."""
    client.call("queue.declare", queue="orders")
    batch = pa.record_batch({"body": pa.array([b"one"]), "subject": ["red\x1b[31m"]})
    client.put({"op": "enqueue", "queue": "orders"}, batch.schema, [batch])
    shown = penstock("queue", "peek", "orders", url=broker.url).stdout
    assert "\x1b" not in shown
    assert "red\\x1b[31m" in shown


def test_the_error_of_a_message_cannot_drive_the_terminal(penstock: Run, broker: Broker, client: Client) -> None:
    enqueue(client, "orders", b"one")
    hold(client, "orders", "lease", 1)
    client.call("lease.settleRow", lease="lease", sequence=0, outcome="rejected", error="red\x1b[31m")
    shown = penstock("queue", "peek", "orders", "--states", "archived", url=broker.url).stdout
    assert "\x1b" not in shown
    assert "message 0: red\\x1b[31m" in shown


def test_an_output_that_is_not_UTF_8_gets_what_it_can_hold(
    penstock: Run, broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a locale of ISO 8859: a table with its dashes, and JSON that can be read."""
    client.call("queue.declare", queue="zwölf–")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert "zw\\xf6lf\\u2013" in penstock("queue", "list", url=broker.url).stdout
    (queue,) = json.loads(penstock("queue", "list", "--json", url=broker.url).stdout)
    assert queue["queue"] == "zwölf–"


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        (["queue", "list"], "penstock: the output cannot be written: No space left on device\n"),
        (["receive", "orders"], "stdout cannot be written to: No space left on device; unaccepted messages return"),
    ],
)
def test_an_output_on_a_full_disk_is_one_sentence(broker: Broker, client: Client, command: list[str], cause: str) -> None:
    """And nothing is lost."""
    enqueue(client, "orders", b"one")
    with Path("/dev/full").open("w") as full:
        environment = {**os.environ, "PENSTOCK_URL": broker.amqp_url}
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *command], stdout=full, stderr=subprocess.PIPE, env=environment
        )
        _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint.count(b"\n")) == (1, 1), complaint
    assert cause in complaint.decode()
    assert client.call("queue.stat", queue="orders")["available"] == 1


def test_numbers_have_plurals_and_units(penstock: Run, broker: Broker) -> None:
    assert [counted(number, "message") for number in (0, 1, 2000)] == ["0 messages", "1 message", "2,000 messages"]
    times = (0.04, 90, 45 * 60, 36 * 3600, 30 * 86_400)
    assert [duration(seconds) for seconds in times] == ["0.0 s", "90.0 s", "45 minutes", "36 hours", "30 days"]
    broker.declare("orders")
    assert "retention        30 days\n" in penstock("archive", url=broker.url).stdout
    assert "lag=0.0 s, error=–, diskFullIn=–" in penstock("queue", "stat", "orders", url=broker.url).stdout


# --- delete


def test_a_queue_with_messages_is_not_deleted_unasked(penstock: Run, broker: Broker, client: Client) -> None:
    """W15: without a terminal the error names the messages and the flags."""
    enqueue(client, "orders", b"one", b"two")
    refused = penstock("queue", "delete", "orders", url=broker.url)
    assert refused.returncode == 2
    assert "2 messages that would be lost: --yes deletes them" in refused.stderr
    assert client.call("queue.stat", queue="orders")["available"] == 2
    done = penstock("queue", "delete", "orders", "--yes", url=broker.url)
    assert done.stdout == "queue orders is deleted; 2 messages lost\n"


@pytest.mark.parametrize(
    ("typed", "left", "last"),
    [
        ("y\n", [], "queue orders is deleted; 1 message lost"),
        ("\n", ["orders"], "penstock: not deleted"),
        ("\x04", ["orders"], "penstock: the question was not answered, so nothing was done"),
    ],
)
def test_a_person_is_asked_with_the_number(broker: Broker, client: Client, typed: str, left: list[str], last: str) -> None:
    """W15: Enter means no, and so does Ctrl-D."""
    enqueue(client, "orders", b"one")
    code, seen = at_a_terminal("queue", "delete", "orders", url=broker.url, typed=typed)
    assert "has 1 message that would be lost (0 consumers, 0 leases)" in seen
    assert [queue["queue"] for queue in client.call("queue.list")["queues"]] == left
    assert code == (1 if left else 0)
    assert seen.endswith(f"{last}\r\n")


@pytest.mark.parametrize("condition", [(), ("--if-empty",)])
def test_a_dead_letter_queue_of_others_is_not_deleted_unasked(
    penstock: Run, broker: Broker, client: Client, condition: tuple[str, ...]
) -> None:
    """The command names these queues, and exchanges with this alternate, also if the queue is empty."""
    client.call("queue.declare", queue="dead", options={"deadLetterQueue": "dead"})
    for number in range(7):
        client.call("queue.declare", queue=f"q{number}", options={"deadLetterQueue": "dead", "maxAttempts": 1})
    client.call("queue.declare", queue="other", options={"deadLetterQueue": "q1"})
    client.call("exchange.declare", exchange="events", type="direct", options={"alternate": "dead"})
    refused = penstock("queue", "delete", "dead", *condition, url=broker.url)
    assert refused.returncode == 2
    assert "dead is the dead-letter queue of q0, q1, q2, q3, q4 and 2 more, whose dead letters would stay" in refused.stderr
    assert "dead is the alternate of events, which would refuse messages without another bound queue" in refused.stderr
    assert "--yes deletes it, `penstock queue alter q0 --option deadLetterQueue=OTHER`" in refused.stderr
    assert penstock("queue", "delete", "dead", "--yes", *condition, url=broker.url).stdout == "queue dead is deleted\n"
    batch = pa.record_batch({"body": pa.array([b"one"])})
    client.put({"op": "enqueue", "queue": "q0"}, batch.schema, [batch])
    hold(client, "q0", "lease", 1)
    client.call("lease.settleRow", lease="lease", sequence=0, outcome="rejected")
    stat = client.call("queue.stat", queue="q0")
    assert (stat["archived"], stat["stayed"], stat["deadLettered"]) == (1, 1, 1)
    with pytest.raises(Unroutable):
        client.put({"op": "enqueue", "exchange": "events"}, batch.schema, [batch])


@pytest.mark.parametrize(("typed", "left"), [("y\n", ["orders"]), ("\n", ["orders", "dead"])])
def test_a_person_is_asked_about_a_dead_letter_queue_of_others(
    broker: Broker, client: Client, typed: str, left: list[str]
) -> None:
    client.call("queue.declare", queue="orders", options={"deadLetterQueue": "dead"})
    enqueue(client, "dead", b"one")
    code, seen = at_a_terminal("queue", "delete", "dead", url=broker.url, width=200, typed=typed)
    assert "has 1 message that would be lost (0 consumers, 0 leases).\r\ndead is the dead-letter queue of orders, whose" in seen
    assert [queue["queue"] for queue in client.call("queue.list")["queues"]] == left
    assert code == (1 if len(left) > 1 else 0)


def test_conditions_are_checked_by_the_broker(penstock: Run, broker: Broker, client: Client) -> None:
    """W15: --if-empty and --if-unused hold at the moment of the deletion."""
    enqueue(client, "orders", b"one")
    refused = penstock("queue", "delete", "orders", "--yes", "--if-empty", url=broker.url)
    assert (refused.returncode, "is not empty: it has 1 messages" in refused.stderr) == (1, True)
    hold(client, "orders", "q1", 1)
    refused = penstock("queue", "delete", "orders", "--yes", "--force", "--if-unused", url=broker.url)
    assert (refused.returncode, "is used: it has 0 consumers and 1 leases" in refused.stderr) == (1, True)
    assert penstock("queue", "delete", "orders", "--yes", "--force", url=broker.url).returncode == 0


# --- surroundings


def test_the_environment_may_say_who_logs_in(tmp_path: Path, penstock: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """PENSTOCK_USER and PENSTOCK_PASSWORD_FILE, as --user and --password-file."""
    (tmp_path / "password").write_text("secret\n")
    data = tmp_path / "data"
    assert penstock("user", "add", "ann", "--data", str(data), "--password-file", "password").returncode == 0
    assert penstock("permit", "ann", "*", "all", "--data", str(data)).returncode == 0
    with Broker(data, fsync="never") as running:
        assert "without a user name may not" in penstock("queue", "list", url=running.url).stderr
        monkeypatch.setenv("PENSTOCK_USER", "ann")
        monkeypatch.setenv("PENSTOCK_PASSWORD_FILE", str(tmp_path / "password"))
        assert penstock("queue", "declare", "orders", url=running.url).returncode == 0


def test_a_shell_learns_how_a_command_line_goes_on(tmp_path: Path, penstock: Run) -> None:
    """`penstock completion bash`, asked as bash asks."""
    (tmp_path / "penstock.bash").write_text(penstock("completion", "bash").stdout)
    (tmp_path / "penstock").write_text(f'#!/bin/sh\nexec {sys.executable} -m penstock "$@"\n')
    (tmp_path / "penstock").chmod(0o755)
    script = """
        . ./penstock.bash; COMP_LINE='penstock queue de'; COMP_POINT=17; COMP_TYPE=9; COMP_WORDS=(penstock queue de); COMP_CWORD=2
        "$(complete -p penstock | sed 's/.*-F \\([^ ]*\\).*/\\1/')" penstock; printf '%s\n' "${COMPREPLY[@]}"
    """
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    completed = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert sorted(completed.stdout.split()) == ["dead-letters", "declare", "delete"], completed.stderr
