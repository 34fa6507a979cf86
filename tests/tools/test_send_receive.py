"""`penstock send` and `penstock receive` in a shell, against a real broker: confirmed and returned messages."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp_plane.loop import interest
from penstock.broker_core.cli.arguments import message
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from ..waiting import until
from .conftest import Run

LINES = 100
COLUMNS = ["body", "contentType", "durable", "properties", "deliveryCount"]


def shell(broker: Broker, *arguments: str, lines: bytes = b"", url: str | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        input=lines,
        capture_output=True,
        timeout=60,
        env={**os.environ, "PENSTOCK_URL": url or broker.amqp_url},
        cwd=broker.data_dir.parent,
        check=False,
    )


def begin(broker: Broker, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PENSTOCK_URL": broker.amqp_url},
        cwd=broker.data_dir.parent,
    )


def rows(client: Client, queue: str) -> list[dict[str, Any]]:
    batches = client.get(op="browse", queue=queue, states=["available"], columns=COLUMNS)
    return [row for batch in batches for row in batch.to_pylist()]


def counts(client: Client, queue: str = "orders") -> tuple[int, int, int]:
    stat = client.call("queue.stat", queue=queue)
    return stat["available"], stat["acquired"], stat["archived"]


@pytest.fixture
def orders(broker: Broker, client: Client) -> Broker:
    client.call("queue.declare", queue="orders")
    return broker


def test_lines_in_lines_out(orders: Broker, client: Client) -> None:
    lines = "one\nzwölf\n\n last without an end".encode()
    sent = shell(orders, "send", "orders", lines=lines)
    assert (sent.returncode, sent.stdout, sent.stderr) == (0, b"4 messages sent to orders\n", b"")
    assert counts(client) == (4, 0, 0)
    received = shell(orders, "receive", "orders", "--wait", "0.2")
    assert (received.returncode, received.stdout, received.stderr) == (0, lines + b"\n", b"")
    assert counts(client) == (0, 0, 4)
    assert shell(orders, "receive", "orders", "--wait", "0").stdout == b""


def test_many_lines_come_whole_and_in_order(orders: Broker, client: Client, tmp_path: Path) -> None:
    text = b"".join(b"%d %s\n" % (number, b"x" * (number % 700)) for number in range(5_000))
    (tmp_path / "lines").write_bytes(text)
    sent = shell(orders, "send", "orders", "lines", "--json")
    assert json.loads(sent.stdout) == {"queue": "orders", "sent": 5_000, "interrupted": False}
    assert shell(orders, "receive", "orders", "--count", "5000").stdout == text


def test_files_as_whole_messages_and_back_as_files(orders: Broker, client: Client, tmp_path: Path) -> None:
    contents = [b"", b"two\nlines\n", bytes(range(256)) * 2000]
    names = [f"file{number}" for number in range(len(contents))]
    for name, content in zip(names, contents, strict=True):
        (tmp_path / name).write_bytes(content)
    for _ in range(2):
        assert shell(orders, "send", "orders", "--whole", *names).returncode == 0
        done = shell(orders, "receive", "orders", "--output", "out", "--wait", "0.2")
        assert (done.returncode, done.stdout) == (0, b"")
    written = sorted((tmp_path / "out").iterdir())
    assert [file.name for file in written] == [f"{number:08}" for number in range(1, 7)]  # the second run continues the numbers
    assert [file.read_bytes() for file in written] == contents * 2
    assert counts(client) == (0, 0, 6)


def test_what_is_said_about_the_messages_arrives_with_them(orders: Broker, client: Client) -> None:
    flags = [
        "--property",
        "colour=blue",
        "--property",
        "empty=",
        "--content-type",
        "application/json",
        "--no-durable",
        "--ttl",
        "60",
    ]
    shell(orders, "send", "orders", *flags, lines=b"{}\n")
    shell(orders, "send", "orders", lines=b"plain\n")
    marked, plain = rows(client, "orders")
    assert (marked["body"], marked["contentType"]) == (b"{}", "application/json")
    assert not marked["durable"]  # false is the default
    assert dict(marked["properties"]) == {"colour": "blue", "empty": ""}
    assert (plain["contentType"], plain["durable"], plain["properties"]) == (None, True, None)
    first, second = map(json.loads, shell(orders, "receive", "orders", "--json", "--count", "2").stdout.splitlines())
    assert first == {"body": "{}", "contentType": "application/json", "properties": {"colour": "blue", "empty": ""}}
    assert second == {"body": "plain"}


def test_what_kinds_of_queues_go_by_can_be_said(orders: Broker, client: Client) -> None:
    """Q7 Q16 Q17 Q18 Q19 E1: from a shell too."""
    shell(orders, "send", "orders", "--group-id", "g", "--message-id", "m", "--subject", "s", lines=b"1\n")
    columns = ["priority", "groupId", "messageId", "subject"]
    (batch,) = client.get(op="browse", queue="orders", states=["available"], columns=columns)
    assert batch.to_pylist() == [{"priority": None, "groupId": "g", "messageId": "m", "subject": "s"}]
    client.call("queue.declare", queue="urgent", type="priority", options={"duplicateWindow": 10})
    for priority, text in (("1", b"low"), ("8", b"high"), ("9", b"highest")):
        assert shell(orders, "send", "urgent", "--priority", priority, lines=text).returncode == 0
    assert shell(orders, "receive", "urgent", "--count", "3").stdout == b"highest\nhigh\nlow\n"
    for _ in range(2):
        assert shell(orders, "send", "urgent", "--message-id", "7", lines=b"once").returncode == 0
    assert counts(client, "urgent") == (1, 0, 3)
    assert shell(orders, "send", "orders", "--delay", "3600", lines=b"later").returncode == 0
    stat = client.call("queue.stat", queue="orders")
    assert (stat["available"], stat["delayed"]) == (1, 1)


def test_a_count_takes_no_more_than_that(orders: Broker, client: Client) -> None:
    shell(orders, "send", "orders", lines=b"1\n2\n3\n4\n5\n")
    assert shell(orders, "receive", "orders", "--count", "2").stdout == b"1\n2\n"
    assert counts(client) == (3, 0, 2)
    (row,) = list(client.get(op="browse", queue="orders", states=["available"], columns=["deliveryCount"]))
    assert row.column(0).to_pylist() == [0, 0, 0]


def test_a_selector_takes_what_matches(orders: Broker, client: Client) -> None:
    """Q8"""
    for colour in ("red", "blue", "red"):
        shell(orders, "send", "orders", "--property", f"colour={colour}", lines=colour.encode())
    taken = shell(orders, "receive", "orders", "--selector", "colour = 'red'")
    assert (taken.stdout, counts(client)) == (b"red\nred\n", (1, 0, 2))
    refused = shell(orders, "receive", "orders", "--selector", "colour =")
    assert refused.returncode == 1
    assert b"at character 9: found the end" in refused.stderr


def test_receive_names_the_field_that_a_selector_may_mean(orders: Broker, client: Client) -> None:
    shell(orders, "send", "orders", "--priority", "9", lines=b"urgent\n")
    taken = shell(orders, "receive", "orders", "--wait", "0.2", "--selector", "priority > 4")
    assert (taken.returncode, taken.stdout) == (0, b"")
    assert taken.stderr.startswith(b"note: in a selector 'priority' is an application property")
    assert b"write JMSPriority or amqp.priority\n" in taken.stderr
    shell(orders, "send", "orders", "--property", "priority=5", lines=b"with the property\n")
    taken = shell(orders, "receive", "orders", "--wait", "0.2", "--selector", "priority = '5'")
    assert (taken.stdout, taken.stderr) == (b"with the property\n", b"")
    taken = shell(orders, "receive", "orders", "--wait", "0.2", "--selector", " ")
    assert (taken.stdout, taken.stderr) == (b"urgent\n", b"")


def test_a_hint_is_shown_while_receive_goes_on_waiting(orders: Broker) -> None:
    waiting = begin(orders, "receive", "orders", "--wait", "inf", "--selector", "subject = 'a'")
    try:
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith(b"note: in a selector 'subject'")
        assert waiting.poll() is None
    finally:
        waiting.send_signal(signal.SIGINT)
        assert waiting.communicate(timeout=60) == (b"", b"")


def test_who_else_may_consume_can_be_said(orders: Broker, client: Client) -> None:
    """C2 Q5"""
    low = begin(orders, "receive", "orders", "--wait", "inf")
    high = begin(orders, "receive", "orders", "--wait", "inf", "--priority", "5", "--count", "20")
    try:
        until(lambda: client.call("queue.stat", queue="orders")["consumers"] == 2, "both receive")
        refused = shell(orders, "receive", "orders", "--exclusive")
        assert (refused.returncode, b"exclusive" in refused.stderr) == (1, True)
        for _ in range(2):
            shell(orders, "send", "orders", lines=b"x\n" * 10)
        assert high.communicate(timeout=60)[0] == b"x\n" * 20
    finally:
        for process in (low, high):
            process.kill()
            process.communicate()
    until(lambda: not client.call("queue.stat", queue="orders")["consumers"], "both are gone")
    alone = begin(orders, "receive", "orders", "--exclusive", "--wait", "inf")
    until(lambda: client.call("queue.stat", queue="orders")["consumers"] == 1, "one receives")
    assert shell(orders, "receive", "orders").returncode == 1
    alone.send_signal(signal.SIGINT)
    assert alone.communicate(timeout=30)[0] == b""


def test_browsing_takes_nothing(orders: Broker, client: Client) -> None:
    shell(orders, "send", "orders", lines=b"1\n2\n3\n")
    for _ in range(2):
        assert shell(orders, "receive", "orders", "--browse", "--wait", "0.2").stdout == b"1\n2\n3\n"
    assert counts(client) == (3, 0, 0)


def test_a_line_is_sent_while_stdin_stays_open(orders: Broker, client: Client) -> None:
    process = begin(orders, "send", "orders")
    assert process.stdin is not None
    process.stdin.write(b"now\nnot y")
    process.stdin.flush()
    until(lambda: counts(client)[0] == 1, "the line has arrived")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, b"interrupted: 1 message sent to orders\n"), err
    assert [row["body"] for row in rows(client, "orders")] == [b"now"]


@pytest.mark.parametrize("written", [False, True])
def test_a_named_pipe_is_waited_for_and_so_is_ctrl_c(orders: Broker, client: Client, tmp_path: Path, written: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    process = begin(orders, "send", "orders", str(tmp_path / "pipe"))

    def attached() -> bool:
        return any(connection["linkCount"] for connection in client.call("connection.list")["connections"])

    until(attached, "it waits for a writer")
    if written:
        (tmp_path / "pipe").write_bytes(b"now\nand then")
    else:
        process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    report = b"2 messages sent to orders\n" if written else b"interrupted: 0 messages sent to orders\n"
    assert (process.returncode, out) == (0 if written else 130, report), err


def test_two_senders_share_a_named_pipe(orders: Broker, client: Client, tmp_path: Path) -> None:
    """A line wakes both, and only one of them finds it."""
    os.mkfifo(tmp_path / "pipe")
    senders = [begin(orders, "send", "orders", str(tmp_path / "pipe")) for _ in range(2)]

    def attached() -> int:
        return sum(connection["linkCount"] for connection in client.call("connection.list")["connections"])

    def arrived(number: int) -> bool:
        return counts(client)[0] > number

    try:
        until(lambda: attached() == 2, "both wait for a writer")
        with (tmp_path / "pipe").open("wb", buffering=0) as pipe:
            for number in range(LINES):
                pipe.write(b"%d\n" % number)
                until(partial(arrived, number), "the line has arrived")
        ends = [sender.communicate(timeout=30) for sender in senders]
    finally:
        for sender in senders:
            sender.kill()
    assert [sender.returncode for sender in senders] == [0, 0], ends
    assert {row["body"] for row in rows(client, "orders")} == {b"%d" % number for number in range(LINES)}


def test_ctrl_c_while_receiving_gives_back_what_was_not_written(orders: Broker, client: Client) -> None:
    process = begin(orders, "receive", "orders", "--wait", "inf")
    shell(orders, "send", "orders", lines=b"1\n2\n3\n")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]
    until(lambda: counts(client) == (0, 0, 3), "all are accepted")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, b""), err


def test_what_a_reader_that_ends_has_not_taken_goes_back(orders: Broker, client: Client) -> None:
    count = 300
    shell(orders, "send", "orders", lines=b"".join(b"%01000d\n" % number for number in range(count)))
    process = begin(orders, "receive", "orders", "--wait", "inf")
    assert process.stdout is not None
    read = [process.stdout.readline() for _ in range(3)]
    process.stdout.close()
    process.wait(30)
    until(lambda: counts(client)[1] == 0, "nothing is held any more")
    available, _, archived = counts(client)
    assert (available, archived) == (count - 3, 3)  # nothing is accepted that was not read
    left = rows(client, "orders")
    assert [int(row["body"]) for row in left] == list(range(3, count))  # the rest is in its place
    assert {row["deliveryCount"] for row in left} == {0}
    assert [int(line) for line in read] == [0, 1, 2]
    assert process.returncode == 0


def test_a_broker_that_dies_is_said_with_what_is_confirmed(orders: Broker, client: Client) -> None:
    process = begin(orders, "send", "orders", "--json")
    assert process.stdin is not None
    process.stdin.write(b"".join(b"%d\n" % number for number in range(1000)))
    process.stdin.flush()
    until(lambda: counts(client)[0] == 1000, "all have arrived")
    orders.kill()
    assert process.wait(60) == 3  # the command ends although its input is still open
    _, err = process.communicate()
    error = json.loads(err)["error"]
    assert error["fault"] == "peer"
    match = re.search(r"; ([\d,]+) messages? confirmed, ([\d,]+) may or may not have arrived", error["message"])
    assert match is not None, error
    confirmed, unknown = (int(number.replace(",", "")) for number in match.groups())
    assert confirmed + unknown == 1000
    orders.start()
    assert confirmed <= counts(client)[0] <= 1000


def test_a_queue_that_is_not_there_is_refused(orders: Broker) -> None:
    for command in (["send", "nowhere"], ["receive", "nowhere"]):
        refused = shell(orders, *command, lines=b"1\n")
        assert refused.returncode == 1
        assert refused.stderr.startswith(b"penstock: the broker refused this request: ")
        assert b"nowhere" in refused.stderr


def test_a_message_that_no_queue_is_for_is_refused_by_a_broker_that_can_be_used(orders: Broker, penstock: Run) -> None:
    assert penstock("exchange", "declare", "events", url=orders.url).returncode == 0
    refused = shell(orders, "send", "events/nobody", lines=b"1\n")
    assert refused.returncode == 1
    assert refused.stderr.startswith(
        b"penstock: the broker refused this request: 1 of 1 messages to 'events/nobody' were released"
    )


def test_nobody_there_is_exit_code_3(broker: Broker) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        refused = shell(broker, "send", "orders", url=f"amqp://127.0.0.1:{taken.getsockname()[1]}")
    assert refused.returncode == 3
    assert b"penstock serve --data DIR" in refused.stderr


def test_a_user_logs_in_for_every_command(tmp_path: Path, penstock: Run) -> None:
    (tmp_path / "password").write_text("pencil\n")
    (tmp_path / "wrong").write_text("wrong\n")
    (tmp_path / "broker").mkdir()
    user = ["--user", "ann", "--password-file", "password"]
    assert penstock("user", "add", "ann", "--password-file", "password", "--data", "broker").returncode == 0
    assert penstock("permit", "ann", "*", "all", "--data", "broker").returncode == 0
    with Broker(tmp_path / "broker", fsync="never") as broker:
        for url in (broker.amqp_url, broker.flight_url):
            assert penstock("queue", "declare", "orders", *user, url=url).returncode == 0
            refused = penstock("queue", "list", *user[:3], "wrong", url=url)
            assert (refused.returncode, refused.stdout) == (1, "")
            assert "wrong" in refused.stderr
        assert shell(broker, "send", "orders", *user, lines=b"1\n").stdout == b"1 message sent to orders\n"
        assert shell(broker, "receive", "orders", *user, "--count", "1").stdout == b"1\n"
        assert shell(broker, "receive", "orders", "--count", "1").returncode == 1


@pytest.mark.parametrize("priority", ["128", "-129", "99999999999", "1.5", "high"])
def test_a_priority_of_a_consumer_that_cannot_be_granted_is_refused(penstock: Run, priority: str) -> None:
    """C2: a broker must not replace an unsupported request by a similar one."""
    refused = penstock("receive", "orders", f"--priority={priority}")
    assert refused.returncode == 2
    assert "--priority" in refused.stderr
    assert priority in refused.stderr
    assert "Traceback" not in refused.stderr
    assert priority in ("1.5", "high") or "-128 to 127" in refused.stderr


def test_the_command_line_knows_the_brokers_priorities() -> None:
    assert message.LINK_PRIORITIES == interest.PRIORITIES
