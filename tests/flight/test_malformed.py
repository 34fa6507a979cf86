"""Messages that cannot be decoded, stored without today's checks: each is set aside, and all other messages are delivered."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.cli.main import main
from penstock.broker_core.client.flight import Client
from penstock.broker_core.security import Right
from penstock.connector.access import BrokerAccess
from penstock.connector.task import mapping as mapped
from penstock.connector.task.partition import BrowsePartition, LeasePartition
from penstock.connector.task.reading import read_browsed, read_leased

from .helpers import Reader, browse, numbered, plant, rows_of, send
from .peers import Site

WRONG = b"\0Ss\xc0\6\4\x40\x40\x40\x54\7\0Su\xa0\1x"  # a subject that is an int
NESTED = b"\x40"
for _ in range(1500):
    NESTED = b"\xd0" + (len(NESTED) + 4).to_bytes(4, "big") + b"\0\0\0\1" + NESTED
NESTED = b"\0Sw" + NESTED
BAD = {7: WRONG, 50: NESTED, 98: b"\0Sw\xa1\2\xc3\x28"}
COLUMNS = ["sequenceNumber", "body", "subject"]  # of all sections that some of them are wrong in
GOOD = [number for number in range(101) if number not in BAD]


def body(number: int) -> bytes:
    return Message(properties=Properties(subject="s"), data=[b"%d" % number]).encode()


def hundred() -> pa.RecordBatch:
    """A hundred good messages and three bad ones among them."""
    return pa.record_batch({"message": pa.array([BAD.get(number) or body(number) for number in range(101)], pa.binary())})


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Client]:
    """A broker on a directory where `plain` has no dead-letter queue, and `dying` has one."""
    data = tmp_path / "data"
    plant(data, "dead")
    plant(data, "plain", hundred())
    plant(data, "dying", hundred(), deadLetterQueue="dead", rejected="return")
    with Broker(data, fsync="never") as broker, Client(broker.url) as client:
        yield client


def settle(reader: Reader, batch: int) -> None:
    reader.client.call("lease.settle", **reader.named, finished=batch)


def test_a_batch_goes_on_without_them_and_they_are_archived_with_the_reason(old: Client) -> None:
    reader = Reader(old, "plain")
    number = reader.advance()
    for _ in range(2):  # a repeated task reports the same
        rows = reader.read(number, columns=COLUMNS)
        assert [row["sequenceNumber"] for row in rows] == GOOD
        assert [row["body"] for row in rows] == [b"%d" % number_sent for number_sent in GOOD]
    assert old.call("queue.stat", queue="plain")["malformed"] == 0  # nothing happens before the batch is settled
    settle(reader, number)
    stat = old.call("queue.stat", queue="plain")
    assert (stat["available"], stat["acquired"], stat["archived"], stat["malformed"]) == (0, 0, 101, 3)
    ended = browse(old, "plain", "sequenceNumber", "outcome", "error", "message", states=["archived"])
    rejected = {row["sequenceNumber"]: row for row in ended if row["outcome"] == "rejected"}
    assert {number: row["message"] for number, row in rejected.items()} == BAD
    assert all(row["error"].startswith("malformed: amqp:") for row in rejected.values())
    # A batch that is read again after its end reads the same.
    assert [row["sequenceNumber"] for row in reader.read(number, columns=COLUMNS)] == GOOD
    assert old.call("queue.stat", queue="plain")["malformed"] == 3


def test_where_there_is_a_dead_letter_queue_they_go_there_whatever_becomes_of_what_is_rejected(old: Client) -> None:
    reader = Reader(old, "dying")
    number = reader.advance()
    reader.read(number, columns=COLUMNS)
    settle(reader, number)
    assert old.call("queue.stat", queue="dying")["malformed"] == 3
    dead = browse(old, "dead", "message", "annotations", "error")
    assert [row["message"] for row in dead] == list(BAD.values())
    notes = [dict(row["annotations"]) for row in dead]
    assert [(n["x-opt-death-reason"], n["x-opt-death-queue"]) for n in notes] == [("malformed", "dying")] * 3
    assert [n["x-opt-death-sequence"] for n in notes] == [str(number) for number in BAD]
    # A reader of the dead letters also sets them aside: they end in its archive.
    second = Reader(old, "dead")
    assert second.read(second.advance(), columns=COLUMNS) == []
    settle(second, 1)
    assert old.call("queue.stat", queue="dead")["malformed"] == 3
    assert [row["outcome"] for row in browse(old, "dead", "outcome", states=["archived"])] == ["rejected"] * 3


def part(client: Client, reader: Reader, batch: int) -> LeasePartition:
    return LeasePartition(
        known=None,
        broker=client.call("hello")["broker"],
        queue=reader.queue,
        lease=reader.lease,
        run=reader.run,
        epoch=reader.epoch or 0,
        batch=batch,
        first=0,
        last=100,
    )


@pytest.mark.parametrize("local", [True, False])
def test_a_task_says_which_it_cannot_decode_and_goes_on(old: Client, local: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the segment files, and over Flight as they are stored."""
    reader = Reader(old, "plain")
    number = reader.advance()
    mine = part(old, reader, number)
    if not local:
        monkeypatch.setattr(mapped, "_unreachable", {mine.broker})
    for _ in range(2):
        rows = rows_of(read_leased(mine, BrokerAccess(old.url), COLUMNS, True))
        assert [row["sequenceNumber"] for row in rows] == GOOD
    settle(reader, number)
    assert old.call("queue.stat", queue="plain")["malformed"] == 3


def test_who_does_not_look_inside_gets_them_all(old: Client) -> None:
    reader = Reader(old, "plain")
    rows = reader.read(reader.advance(), columns=["message"])
    assert len(rows) == 101
    settle(reader, 1)
    assert old.call("queue.stat", queue="plain")["malformed"] == 0


def test_a_zombie_sets_nothing_aside_and_what_is_not_of_the_batch_is_left_alone(old: Client) -> None:
    reader = Reader(old, "plain")
    number = reader.advance(messages=10)
    reader.read(number, columns=["message"])
    say = {"lease": reader.lease, "batch": number, "reasons": {"why": [3, 3, 50]}}
    with pytest.raises(errors.Fenced):
        old.call("lease.setAside", **say, epoch=99)
    assert old.call("lease.setAside", **say, epoch=reader.epoch) == {"messages": 1}
    assert old.call("lease.setAside", **say, epoch=reader.epoch) == {"messages": 0}
    for wrong in ([-1], ["1"], 3, [True]):
        with pytest.raises(errors.InvalidRequest, match="must be a list of sequence numbers"):
            old.call("lease.setAside", **{**say, "reasons": {"why": wrong}}, epoch=reader.epoch)


def test_a_reason_writes_no_line_of_its_own_into_the_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    alice = site.user("alice", *Right)
    alice.call("queue.declare", queue="q")
    alice.put(*numbered(3), op="enqueue", queue="q")
    assert alice.call("lease.advance", queue="q", lease="l", run="r", epoch=None, finished=0, fresh=True)["batch"] == 1
    named = {"lease": "l", "run": "r", "epoch": 1, "batch": 1}
    alice.get(op="batch", **named, first=0, last=9, columns=["sequenceNumber"])
    forged = "why\nWARNING penstock: all is well " + "x" * 10_000
    assert alice.call("lease.setAside", **named, reasons={forged: [1]}) == {"messages": 1}
    [line] = [record.getMessage() for record in caplog.records if "because of invalid AMQP" in record.getMessage()]
    assert line.isprintable()
    assert len(line) < 1000


def test_a_look_shows_them_with_the_reason_and_never_keeps_others_back(old: Client, capfd: pytest.CaptureFixture[str]) -> None:
    rows = browse(old, "plain", *COLUMNS, "error")
    assert [row["sequenceNumber"] for row in rows] == list(range(101))
    assert [row["sequenceNumber"] for row in rows if row["error"]] == list(BAD)
    assert all((row["body"] is None) == (row["error"] is not None) for row in rows)
    ticket: dict[str, Any] = {
        "op": "browse",
        "queue": "plain",
        "states": ["available"],
        "columns": [*COLUMNS, "error"],
    }
    look = BrowsePartition(None, ticket)
    assert rows_of(read_browsed(look, BrokerAccess(old.url))) == rows
    assert "message 50 of 'plain' is not a valid AMQP message (amqp:decode-error: nested too deep" in capfd.readouterr().err


def peek(client: Client, *arguments: str) -> list[dict[str, Any]]:
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["queue", "peek", *arguments, "--url", client.url, "--json"]) == 0
    return list(json.loads(out.getvalue()))


def test_peek_shows_what_is_before_and_after(old: Client) -> None:
    assert [row["sequenceNumber"] for row in peek(old, "plain", "--from", "0", "--count", "1")] == [0]
    rows = peek(old, "plain", "--from", "6", "--count", "3")
    assert [(row["sequenceNumber"], row["body"], bool(row["error"])) for row in rows] == [
        (6, "6", False),
        (7, None, True),
        (8, "8", False),
    ]


def test_the_error_of_a_rejected_message_is_shown(old: Client) -> None:
    """Q12: in a browse, in peek, also when the block is archived: see tests/service."""
    old.call("queue.declare", queue="q")
    send(old, "q", [b"a", b"b"])
    reader = Reader(old, "q")
    reader.read(reader.advance())
    old.call("lease.settleRow", lease=reader.lease, sequence=1, outcome="rejected", error="no such customer")
    reader.epoch = None
    reader.advance(fresh=False)
    settle(reader, 1)
    settled = browse(old, "q", "sequenceNumber", "outcome", "error", states=["archived"])
    assert [(row["outcome"], row["error"]) for row in settled] == [("accepted", None), ("rejected", "no such customer")]
    rows = peek(old, "q", "--states", "archived")
    assert [row["error"] for row in rows] == [None, "no such customer"]
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["queue", "peek", "q", "--states", "archived", "--url", old.url]) == 0
    assert "no such" in out.getvalue()


def test_a_message_that_is_none_matches_nothing_and_stops_nobody(old: Client) -> None:
    reader = Reader(old, "plain")
    number = reader.advance(selector="JMSType = 's' OR JMSType IS NULL")
    rows = reader.read(number, columns=["sequenceNumber"])
    assert 7 not in [row["sequenceNumber"] for row in rows]
    assert set(GOOD) <= {row["sequenceNumber"] for row in rows}


@pytest.mark.parametrize("as_json", [False, True])
def test_receive_writes_the_others_and_rejects_what_it_cannot_read(
    tmp_path: Path, as_json: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path / "data", "q", hundred())
    with Broker(tmp_path / "data", fsync="never") as broker, Client(broker.url) as client:
        arguments = ["receive", "q", "--count", "101", "--url", broker.amqp_url]
        assert main([*arguments, "--json"] if as_json else arguments) == 1
        out, err = capfd.readouterr()
        unreadable = 3 if as_json else 2  # the line of a body does not contain its subject
        assert len(out.splitlines()) == 101 - unreadable
        assert err.count("it is not well-formed AMQP (amqp:") == unreadable
        rejected = [row for row in browse(client, "q", "outcome", "error", states=["archived"]) if row["outcome"] == "rejected"]
        assert len(rejected) == unreadable
        assert all(row["error"].startswith("amqp:decode-error: it is not well-formed AMQP") for row in rejected)
