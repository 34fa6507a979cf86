"""Reads of rows that are scattered over many records: each has its own payload and the broker's columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.failures import KEPT
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome
from penstock.broker_core.messages import batch_checks
from penstock.broker_core.messages.columns import arrow_schema
from penstock.broker_core.messages.payloads import store, stored_sizes
from penstock.broker_core.reading.batches import JOINED_ROWS, BatchRequest, record_batches, record_tables
from penstock.broker_core.reading.records import SMALL_ROWS
from penstock.broker_core.service.broker import BrokerService

from ..journal.lying_disk import LyingDisk
from .helpers import Clock, enqueue, numbered, running, table

COLUMNS = ["sequenceNumber", "enqueuedTime", "body", "subject", "deliveryCount", "delivery", "state", "outcome", "settledTime"]


def _at(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=micros)


def _filled(service: BrokerService, clock: Clock, records: list[int], random: Random) -> list[dict[str, Any]]:
    """Records with different numbers and lengths of messages, at different times, and the expected content of each row."""
    truth: list[dict[str, Any]] = []
    for count in records:
        clock.advance(0.25)
        bodies = [b"%d " % (len(truth) + i) + b"x" * random.randrange(12) for i in range(count)]
        subjects = [None if random.random() < 0.5 else f"subject {body!r}" for body in bodies]
        levels = [random.randrange(10) for _ in bodies]
        columns = {"body": pa.array(bodies, pa.binary()), "subject": subjects, "priority": pa.array(levels, pa.int16())}
        batch = batch_checks.validate(pa.record_batch(columns))
        sizes, attributes = stored_sizes(batch), service.attributes("q", batch)
        service.submit(c.Enqueue("q", count, sizes, store(batch), attributes=attributes))
        truth += [
            {"body": body, "subject": subject, "enqueuedTime": _at(clock.wall), "level": level}
            for body, subject, level in zip(bodies, subjects, levels, strict=True)
        ]
    return truth


def _read(service: BrokerService, rows: RowSet) -> list[dict[str, Any]]:
    made = list(record_batches(service.journal, service.slices("q", rows), BatchRequest(COLUMNS, "q", b"of ")))
    assert all(batch.schema.equals(arrow_schema(COLUMNS)) for batch in made)
    return pa.Table.from_batches(made).to_pylist()


@pytest.mark.parametrize("records", [[3_000] * 30, [1] * 300 + [7, 5_000, 40, 1, 9_000], [BLOCK_ROWS - 5, 11, BLOCK_ROWS]])
def test_every_scattered_row_is_read_with_what_is_its_own(records: list[int]) -> None:
    clock, random = Clock(), Random(sum(records))
    with running(LyingDisk(), clock) as service:
        service.submit(c.DeclareQueue("q", "priority"), c.Subscribe("q"))
        truth = _filled(service, clock, records, random)
        for level in (9, 8):
            clock.advance(1)
            wanted = [place for place, message in enumerate(truth) if message["level"] == level]
            rows: RowSet = service.submit(c.Acquire("q", 1, len(wanted))).rows
            assert rows.sequences().tolist() == wanted
            _check(service, rows, truth, {"state": "acquired", "outcome": None, "settledTime": None})
            done = RowSet.of_sequences(np.array(wanted[::3]))
            service.submit(c.Settle("q", 1, done))
            settled = {"state": "archived", "outcome": "accepted", "settledTime": _at(clock.wall)}
            _check(service, rows, truth, {"state": "acquired", "outcome": None, "settledTime": None}, done, settled)


def _check(
    service: BrokerService,
    rows: RowSet,
    truth: list[dict[str, Any]],
    properties: dict[str, Any],
    but: RowSet | None = None,
    of_those: dict[str, Any] | None = None,
) -> None:
    actual_rows, others = _read(service, rows), set() if but is None else set(but.sequences().tolist())
    assert [row["sequenceNumber"] for row in actual_rows] == rows.sequences().tolist()
    for row in actual_rows:
        place = row["sequenceNumber"]
        expected = {**truth[place], **(of_those or {} if place in others else properties)}
        time, settled = row["settledTime"], expected["settledTime"]  # kept in milliseconds
        assert (time is None) == (settled is None)
        assert time is None or abs(time - settled) < timedelta(milliseconds=2)
        assert {name: row[name] for name in expected if name not in ("level", "settledTime")} == {
            name: value for name, value in expected.items() if name not in ("level", "settledTime")
        }
        assert row["delivery"].startswith(b"of ")


def test_messages_of_one_record_that_were_moved_one_after_another_have_each_their_own_time() -> None:
    clock = Clock()
    with running(LyingDisk(), clock) as service:
        service.submit(c.DeclareQueue("q"), c.DeclareQueue("t"), enqueue("q", *numbered(4)))
        times = []
        for count in (1, 3):
            clock.advance(1)
            times += [_at(clock.wall)] * count
            service.submit(c.Move("q", "t", messages=count))
        rows = table(service, "t", "enqueuedTime", "body")
        assert [row["body"] for row in rows] == numbered(4)
        assert [row["enqueuedTime"] for row in rows] == times


def test_rows_of_small_records_are_joined_and_those_of_large_ones_are_not() -> None:
    records = [3_000] * 12 + [SMALL_ROWS] + [1] * 5
    with running(LyingDisk()) as service:
        service.submit(c.DeclareQueue("q"))
        for count in records:
            service.submit(enqueue("q", *numbered(count)))
        slices = service.slices("q", RowSet.range(0, sum(records)))
        sizes = [made.num_rows for made in record_batches(service.journal, slices, BatchRequest(["body"], "q"))]
    assert sum(sizes) == sum(records)
    assert sizes == [6 * 3_000, 6 * 3_000, SMALL_ROWS, 5]
    assert all(size < JOINED_ROWS + SMALL_ROWS for size in sizes)


def test_each_message_has_its_own_failed_deliveries() -> None:
    """Messages fail together, alone, at the time of others, or never."""
    clock, random, count = Clock(), Random(1), 60
    expected: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    with running(LyingDisk(), clock) as service:
        service.submit(c.DeclareQueue("q", options={"rejected": "return"}))
        for _ in range(count // 3):
            service.submit(enqueue("q", *numbered(3)))
        for step in range(40):
            clock.advance(random.choice([0, 0.25]))
            user, error = random.choice([None, "ann", "bob"]), random.choice([None, "no such product", "ü"])
            link = service.submit(c.Subscribe("q", user=user))
            acquired: RowSet = service.submit(c.Acquire("q", link, random.randint(1, count))).rows
            failed = acquired if step % 4 == 0 else _some_of(acquired.sequences().tolist(), random)
            service.submit(
                c.Settle("q", link, failed, Outcome.REJECTED, error) if error else c.Release("q", link, failed, Cause.LINK_LOST),
                c.Release("q", link, acquired.minus(failed), Cause.RELEASED),
                c.Unsubscribe("q", link),
            )
            delivery = {"time": _at(clock.wall).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "cause": "rejected" if error else "link lost"}
            delivery |= {name: value for name, value in (("holder", user), ("error", error)) if value}
            for row in failed.sequences().tolist():
                expected[row] = [*expected[row], delivery][-KEPT:]
            wanted = _some_of(range(count), random)
            tables = record_tables(service.journal, service.slices("q", wanted), ["failures"], "q", rows=10, size=1 << 20)
            texts = [text for table in tables for text in table["failures"].to_pylist()]
            assert [json.loads(text or "[]") for text in texts] == [expected[row] for row in wanted.sequences().tolist()]
    assert len({json.dumps(deliveries) for deliveries in expected}) > 10


def _some_of(numbers: Sequence[int], random: Random) -> RowSet:
    return RowSet.of_sequences(np.array(sorted(random.sample(numbers, random.randint(1, len(numbers))))))
