"""S8: batch reads of settled messages, whether the journal or the archive's table has them: each row once, none missing."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan

from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from penstock.broker_core.archive.read import files
from penstock.broker_core.client.discovery import this_host
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.states import Outcome
from penstock.broker_core.engine.model import retention
from penstock.broker_core.messages import columns as message
from penstock.broker_core.service import block_reads
from penstock.connector.batch.reader import PushdownBatchReader
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.task import archive
from penstock.connector.task.partition import BrowsePartition, RecordedPartition

from .recording import Site

READ = [name for name in (*message.SENT_COLUMNS, *message.SYSTEM_COLUMNS) if name not in ("delivery", "ttl", "deliveryTime")]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    archive._unreachable.clear()
    running = Site(tmp_path)
    yield running
    running.close()
    archive._unreachable.clear()


@pytest.fixture
def numbered(site: Site) -> Site:
    """Ten messages in a table by two passes, ten settled ones that no table has, ten that wait."""
    site.client.call("queue.declare", queue="q")
    subjects = ["odd" if number % 2 else "even" for number in range(30)]
    site.send("q", body=[b"%d" % number for number in range(30)], subject=subjects)
    site.settle("q", 20)
    site.record("q", 4)
    site.record("q", 6)
    return site


def forget(patch: pytest.MonkeyPatch, site: Site, queue: str, first: int, last: int) -> None:
    """The journal has payloads of these messages no longer."""
    real = retention.with_payloads

    def without(block: Any, rows: Any, dropped: Any) -> Any:
        reads = real(block, rows, dropped)
        numbers = block_reads.as_array(reads) + block.base
        gone = (numbers >= first) & (numbers <= last)
        return block_reads.as_array(reads)[~gone] if gone.any() else reads

    patch.setattr(block_reads, "with_payloads", without)


def kinds(site: Site, **options: str) -> tuple[int, int]:
    parts = site.reader("q", **options).partitions()
    return sum(isinstance(part, RecordedPartition) for part in parts), sum(isinstance(part, BrowsePartition) for part in parts)


def test_each_row_once_from_the_table_and_from_the_broker(numbered: Site) -> None:
    assert numbered.numbers("q") == list(range(20))
    assert numbered.numbers("q", states="available, archived") == list(range(30))
    assert numbered.numbers("q", states="available") == list(range(20, 30))
    assert kinds(numbered) == (1, 1)
    numbered.record("q")
    assert numbered.numbers("q") == list(range(20))
    assert kinds(numbered) == (1, 0), "the broker is asked for nothing that is in the table"
    numbered.settle("q", 10)
    assert numbered.numbers("q") == list(range(30))


def test_bounds_outcomes_and_selectors_hold_for_both(numbered: Site) -> None:
    assert numbered.numbers("q", startingSequence="8", endingSequence="12") == [8, 9, 10, 11, 12]
    assert numbered.numbers("q", selector="JMSType = 'odd'") == list(range(1, 20, 2))
    assert numbered.numbers("q", outcome="accepted") == list(range(20))
    assert numbered.numbers("q", outcome="rejected") == []
    assert numbered.numbers("q", startingTimestamp="2100-01-01T00:00:00Z") == []
    assert numbered.numbers("q", endingTimestamp="2100-01-01T00:00:00Z") == list(range(20))


@pytest.mark.parametrize("settled", [0, 5])
@pytest.mark.parametrize("recorded_rows", [0, 5, 99])
@pytest.mark.parametrize("gone", [0, 15, 20])
def test_rows_move_between_the_two_while_a_query_runs(
    numbered: Site, monkeypatch: pytest.MonkeyPatch, settled: int, recorded_rows: int, gone: int
) -> None:
    """After the plan more messages are settled and recorded, and the journal loses recorded ones."""
    reader = numbered.reader("q", states="available, archived")
    parts = reader.partitions()
    if settled:
        numbered.settle("q", settled)
    if recorded_rows:
        numbered.record("q", recorded_rows)
    forget(monkeypatch, numbered, "q", 0, min(gone, 10 + recorded_rows) - 1)
    numbers = sorted(n for part in parts for batch in reader.read(part) for n in batch.column("sequenceNumber").to_pylist())
    assert numbers == list(range(30))


def test_a_block_that_has_left_memory_is_in_one_of_the_two(site: Site) -> None:
    site.client.call("queue.declare", queue="q")
    site.send("q", body=[b"%d" % number for number in range(BLOCK_ROWS + 10)])
    site.settle("q", BLOCK_ROWS)
    site.record("q", 1000)
    site.service.pack_blocks()
    assert not site.service.state.queues["q"].blocks.get(0)
    assert site.numbers("q") == list(range(BLOCK_ROWS))
    site.record("q")
    assert kinds(site) == (1, 0)
    assert site.numbers("q") == list(range(BLOCK_ROWS))
    site.settle("q", 10)
    assert site.numbers("q") == list(range(BLOCK_ROWS + 10))
    assert [row["sequenceNumber"] for row in peek(site, first=BLOCK_ROWS - 2)] == list(range(BLOCK_ROWS - 2, BLOCK_ROWS + 10))


def peek(site: Site, **more: Any) -> list[dict[str, Any]]:
    ticket = {"op": "browse", "queue": "q", "states": ["archived"], "columns": ["sequenceNumber", "state", "outcome", "body"]}
    return [row for batch in site.client.get(**{**ticket, **more}) for row in batch.to_pylist()]


def test_who_asks_the_broker_alone_sees_what_is_recorded(numbered: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `penstock queue peek --states archived` and older connectors do."""
    forget(monkeypatch, numbered, "q", 0, 9)
    rows = peek(numbered)
    assert [row["sequenceNumber"] for row in rows] == list(range(20))
    assert {(row["state"], row["outcome"]) for row in rows} == {("archived", "accepted")}
    assert [row["sequenceNumber"] for row in peek(numbered, states=["archived", "available"], first=8)] == list(range(8, 30))
    assert [row["body"] for row in peek(numbered, selector="JMSType = 'odd'", last=5)] == [b"1", b"3", b"5"]


def test_the_broker_reads_for_a_task_that_does_not_see_the_folder(numbered: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    reader = numbered.reader("q", READ, selector="JMSType = 'odd'")
    expected = numbered.read("q", READ, selector="JMSType = 'odd'")
    parts = reader.partitions()
    monkeypatch.setattr(archive, "scan", Elsewhere(archive.scan, asked))
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(rows, key=lambda row: row["sequenceNumber"]) == expected
    assert len(expected) == 10
    assert len(asked) == 1, "a folder that is not there is not tried again for each file"


class Elsewhere:
    """The module `scan` in a process that does not see the folder."""

    def __init__(self, module: Any, asked: list[str]) -> None:
        self._module, self._asked = module, asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def opened(self, url: str, path: str) -> Any:
        self._asked.append(path)
        raise errors.ArchiveUnreachable("not here")

    def is_folder(self, url: str) -> bool:
        return False


def test_the_broker_lists_the_files_where_the_planner_has_no_deltalake(numbered: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*arguments: Any) -> None:
        raise ImportError("No module named 'deltalake'")

    monkeypatch.setattr(archive, "version", without)
    assert numbered.numbers("q") == list(range(20))
    assert kinds(numbered) == (1, 1)


def test_another_table_at_the_same_path_is_not_read(numbered: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a planner on another machine has a folder of that name: the broker's own is listed, by the broker."""

    def another(known: Any, bounds: Any, number: Any = None) -> Any:
        return files.version(known._replace(broker="another"), bounds, number)

    monkeypatch.setattr(archive, "version", another)
    assert numbered.numbers("q") == list(range(20))
    assert archive._unreachable


def test_files_that_are_gone_are_named(numbered: Site) -> None:
    reader = numbered.reader("q")
    parts = reader.partitions()
    for day in Path(numbered.url("q")).glob("day=*"):
        shutil.rmtree(day)
    with pytest.raises(errors.DataLoss, match="is gone: retention"):
        [list(reader.read(part)) for part in parts]


def test_a_queue_declared_anew_has_nothing_of_its_predecessor(numbered: Site) -> None:
    numbered.client.call("queue.delete", queue="q", force=True)
    numbered.finished.clear()
    numbered.client.call("queue.declare", queue="q")
    assert numbered.numbers("q") == []
    numbered.send("q", body=[b"new"])
    numbered.settle("q", 1)
    numbered.record("q")
    assert [row["body"] for row in numbered.read("q")] == [b"new"]


def test_a_queue_that_is_declared_anew_between_plan_and_read(numbered: Site) -> None:
    """D4: planned messages come from the table, also if the broker reads it. A missing message is always an error."""
    archive._unreachable.add(numbered.url("q"))
    reader = numbered.reader("q", endingSequence="9")
    parts = [part for part in reader.partitions() if isinstance(part, RecordedPartition)]
    numbered.client.call("queue.delete", queue="q", force=True)
    numbered.finished.clear()
    numbered.client.call("queue.declare", queue="q")
    numbered.send("q", body=[b"new"])
    numbered.settle("q", 1)
    numbered.record("q")
    numbers = [row["sequenceNumber"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert sorted(numbers) == list(range(10))


def test_messages_of_a_queue_that_records_nothing_come_from_the_journal(site: Site) -> None:
    site.client.call("queue.declare", queue="q", options={"archive": False})
    site.send("q", body=[b"1", b"2"])
    site.settle("q", 1)
    assert site.numbers("q") == [0]


def test_a_settled_batch_is_read_again_wherever_it_lies(numbered: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: the last batches of a lease, of which the journal has only a part, or nothing."""
    fields = {"lease": "l-q", "run": "r"}
    epoch = numbered.client.call("lease.list")["leases"][0]["epoch"]
    columns = ["sequenceNumber", "body", "deliveryCount"]
    ticket = {**fields, "epoch": epoch, "batch": 1, "first": 0, "last": 2**60, "columns": columns}

    def again(op: str = "batch", **more: Any) -> list[Any]:
        return sorted(row["body"] for batch in numbered.client.get(op=op, **{**ticket, **more}) for row in batch.to_pylist())

    whole = again()
    assert len(whole) == 20
    with monkeypatch.context() as patch:
        forget(patch, numbered, "q", 0, 6)
        assert again() == whole
        assert again(last=3) == sorted([b"0", b"1", b"2", b"3"])
        assert again("map", orMessages=True, host=this_host()) == whole
        with_delivery = list(numbered.client.get(op="batch", **{**ticket, "columns": ["delivery"], "stored": True}))
        assert sum(batch.column("delivery").is_valid().sum().as_py() for batch in with_delivery) == 20
    with monkeypatch.context() as patch:
        forget(patch, numbered, "q", 0, 12)  # three of these are in no table
        with pytest.raises(errors.DataLoss, match="neither in the journal nor in the archive"):
            again()
        assert len(again(failOnDataLoss=False)) == 17


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_settled_batch_of_groups_is_read_again_when_the_journal_has_nothing_of_it(site: Site, tasks: int) -> None:
    """S1 S6: all comes from the table, however many tasks there are."""
    site.client.call("queue.declare", queue="q", options={"groups": "held"})
    site.send("q", body=[b"%d" % number for number in range(20)], groupId=[f"group {number % 5}" for number in range(20)])
    site.settle("q", 20)
    site.record("q")
    with site.service._lock:
        del site.service.state.queues["q"].blocks[0]
    batch, epoch = site.finished["q"]
    named = {"lease": "l-q", "run": "r", "epoch": epoch}
    parts = site.client.call("lease.plan", queue="q", **named, after=0, batch=batch, minPartitions=tasks)["parts"]
    settled = []
    for _, first, last, _, bucket, buckets in parts:
        ticket = {**named, "batch": batch, "first": first, "last": last, "bucket": bucket, "buckets": buckets}
        settled += [row for rows in site.client.get(op="batch", columns=["sequenceNumber"], **ticket) for row in rows.to_pylist()]
    assert sorted(row["sequenceNumber"] for row in settled) == list(range(20))


def test_a_read_of_other_states_asks_for_no_table(numbered: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "version", None)
    assert numbered.numbers("q", states="available") == list(range(20, 30))


#: A value of each type of AMQP.
VALUES: list[Any] = [
    *(None, True, UByte(1), UShort(2), UInt(3), ULong(2**63), Byte(-1), Short(-2), Int(-3), Long(-4), Float(0.5), 0.25),
    *(Decimal32(b"1234"), Decimal64(b"12345678"), Decimal128(b"1234567890123456"), Char("ü"), Timestamp(1), uuid.UUID(int=7)),
    *(b"octets", "text", Symbol("symbol")),
]
NESTED: list[Any] = [[1, "a"], {"k": [1]}, Array("int", (1, 2)), Described(Symbol("x:y"), "z")]


def encoded() -> list[bytes]:
    """Bare messages: a property of each type, a body of each type and kind, and ids of all four types."""
    ids = [ULong(1), uuid.UUID(int=1), b"id", "id"]
    values = {f"p{number}": value for number, value in enumerate(VALUES)}
    made = [Message(properties=Properties(message_id=id_), application_properties=values, data=[b"x", b"y"]) for id_ in ids]
    made += [Message(value=value, has_value=True) for value in [*VALUES, *NESTED]]
    return [message.encode() for message in [*made, Message(sequences=[[1, "two"], [b"3"]])]]


#: Options of a read, and filters that Spark pushes into it; both by the time of the first encoded message, microseconds.
READS: list[Callable[[int], tuple[dict[str, str], list[Filter]]]] = [
    lambda time: ({}, []),
    lambda time: ({"outcome": "dead-lettered"}, []),
    lambda time: ({"startingSequence": "2", "endingSequence": "9"}, []),
    lambda time: ({"startingTimestamp": moment(time).isoformat()}, []),
    lambda time: ({"endingTimestamp": moment(time).isoformat()}, []),
    lambda time: ({"selector": "p1 = TRUE OR JMSType = 'a'"}, []),
    lambda time: ({}, [EqualTo(("outcome",), "accepted"), LessThan(("sequenceNumber",), 12)]),
    lambda time: ({}, [GreaterThan(("enqueuedTime",), moment(time - 1)), GreaterThanOrEqual(("settledTime",), moment(time))]),
]
COUNTS = [33, 4, 8, 30, 3, 5, 12, 30]


def moment(time: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=time)


def test_all_columns_filters_and_types_are_those_of_a_read_before(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row by row: columnar messages, and encoded ones of every type of AMQP; rejected ones, and dead letters. Before anything is
    recorded, when half of it is, while the rest moves from the journal to the table, after that, and read by the broker."""
    site.client.call("queue.declare", queue="dead")
    site.client.call("queue.declare", queue="q", options={"deadLetterQueue": "dead", "maxAttempts": 2})
    texts = pa.array(["a", None, "ü"])
    maps = pa.array([[("k", "v")], None, [("x", None)]], message.STRING_MAP)
    annotations = pa.array([[("x-a", "1")], None, []], message.STRING_MAP)
    numbers = pa.array([1, None, 9], pa.int16())
    body = pa.array([b"1", b"", b"\xff"])
    site.send("q", body=body, subject=texts, priority=numbers, properties=maps, annotations=annotations, messageId=texts)
    octets = pa.array(encoded(), pa.binary())
    site.send("q", message=octets, durable=pa.array([True] * len(octets)))
    count = 3 + len(octets)
    site.settle("q", count - 4)
    fields = {"queue": "q", "lease": "other", "run": "r"}
    epoch = site.client.call("lease.advance", **fields, epoch=None, finished=0, fresh=True)["epoch"]
    ticket = {"lease": "other", "run": "r", "epoch": epoch, "batch": 1, "first": 0, "last": 2**60, "columns": ["body"]}
    list(site.client.get(op="batch", **ticket))
    for number in range(count - 4, count):
        site.client.call("lease.settleRow", lease="other", sequence=number, outcome="rejected", error=f"why {number}")
    site.settle("dead", 4)
    time = int(site.read("q", ("sequenceNumber", "enqueuedTime"))[3]["enqueuedTime"].timestamp() * 1e6)

    def planned(queue: str, way: int) -> tuple[Any, list[Any]]:
        options, filters = READS[way](time)
        settings = {"url": site.plane.url, "queue": queue, "states": "archived", **options}
        made = PushdownBatchReader(Options(settings), source_schema(tuple(READ)))
        list(made.pushFilters(filters))
        return made, made.partitions()

    def rows(reader: Any, parts: list[Any]) -> tuple[Any, list[Any]]:
        batches = [batch for part in parts for batch in reader.read(part)]
        records = [row for batch in batches for row in batch.to_pylist()]
        return batches[0].schema if batches else None, sorted(records, key=lambda row: row["sequenceNumber"])

    for queue, most in (("q", count), ("dead", 4)):
        ways = range(len(READS))
        before = [rows(*planned(queue, way)) for way in ways]
        assert len(before[0][1]) == most
        assert queue == "dead" or [len(records) for _, records in before] == COUNTS
        site.record(queue, most // 2)
        assert [rows(*planned(queue, way)) for way in ways] == before
        on_the_way = [planned(queue, way) for way in ways]
        site.record(queue)
        with monkeypatch.context() as patch:
            forget(patch, site, queue, 0, most)
            assert [rows(*plan) for plan in on_the_way] == before
            assert [rows(*planned(queue, way)) for way in ways] == before
            assert not [part for part in planned(queue, 0)[1] if isinstance(part, BrowsePartition)]
            archive._unreachable.add(site.url(queue))
            assert [rows(*planned(queue, way)) for way in ways] == before
    dead = before[0][1][0]
    assert dict(dead["annotations"])["x-opt-death-reason"] == "rejected"
    assert (dead["outcome"], dead["error"]) == ("accepted", f"why {count - 4}")


def test_Q13_Q23_what_has_failed_too_often_and_has_no_dead_letter_queue_is_a_row_that_says_why(site: Site) -> None:
    site.client.call("queue.declare", queue="q", options={"maxAttempts": 1})
    site.send("q", body=[b"poison", b"other"])
    fields = {"queue": "q", "lease": "l", "run": "r"}
    epoch = site.client.call("lease.advance", **fields, epoch=None, finished=0, fresh=True)["epoch"]
    part = {"lease": "l", "run": "r", "epoch": epoch, "batch": 1, "first": 0, "last": 2**60, "columns": ["body"]}
    list(site.client.get(op="batch", **part))
    site.client.call("lease.settleRow", lease="l", sequence=0, outcome="modified")
    site.record("q")
    reader = site.reader("q", READ)
    (partition,) = reader.partitions()
    assert isinstance(partition, RecordedPartition)
    (row,) = [row for batch in reader.read(partition) for row in batch.to_pylist()]
    assert (row["body"], row["outcome"]) == (b"poison", "dead-lettered")
    died = dict(row["annotations"])
    assert (died["x-opt-death-reason"], died["x-opt-death-queue"]) == ("delivery_limit", "q")


def test_pages_for_people_follow_the_sequence_numbers(site: Site) -> None:
    """Also if files overlap, with unrecorded messages between them, and a message that was settled twice."""
    site.client.call("queue.declare", queue="q", options={"deadLetterQueue": "nowhere"})
    site.send("q", body=[b"%d" % number for number in range(40)])
    service = site.service
    link = service.submit(c.Subscribe("q"))
    rows = service.submit(c.Acquire("q", link, 40)).rows.sequences()
    for part in (rows[[0, 9, 20, 39]], rows[[3, 4, 38]], rows[5:9]):
        service.submit(c.Settle("q", link, RowSet.of_sequences(part), Outcome.REJECTED))
        if part[0] != 5:
            site.record("q")
    service.submit(c.Redrive("q", first=4, last=4))
    service.submit(c.Settle("q", link, service.submit(c.Acquire("q", link, 1)).rows))
    for count in (1, 2, 5, 50):
        seen, following = [], 0
        while following is not None:
            page = site.client.call("queue.messages", queue="q", states=["archived"], first=following, count=count)
            numbers = [message["sequenceNumber"] for message in page["messages"]]
            assert len(numbers) >= count or page["next"] is None
            seen, following = seen + numbers, page["next"]
        assert seen == [0, 3, 4, 4, 5, 6, 7, 8, 9, 20, 38, 39]
    both = site.client.call("queue.messages", queue="q", states=["archived", "acquired"], first=18, count=4)
    assert [message["sequenceNumber"] for message in both["messages"]] == [18, 19, 20, 21]


def test_a_recorded_time_that_python_cannot_hold_is_null(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """S8: read by a task and by the broker; the message has it."""
    milliseconds = [-(2**63), -62_167_219_200_000, 253_402_300_800_000, 2**63 - 1]
    messages = [Message(properties=Properties(creation_time=Timestamp(time)), data=[b""]).encode() for time in milliseconds]
    site.client.call("queue.declare", queue="q")
    site.send("q", message=messages)
    site.send("q", body=[b""], creationTime=pa.array([253_402_300_800_000_000]).view(message.TIMESTAMP))
    site.settle("q", 5)
    site.record("q")
    for way in ("task", "broker"):
        if way == "broker":
            archive._unreachable.add(site.url("q"))
        rows = site.read("q", ["sequenceNumber", "creationTime", "settledTime", "message"])
        assert [row["creationTime"] for row in rows] == [None] * 5
        assert all(row["settledTime"] is not None for row in rows)
        assert [row["message"] for row in rows[:4]] == messages
