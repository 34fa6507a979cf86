"""S3 over Flight: outcomes of single messages of a batch are staged, published together, and applied when the batch settles."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client
from penstock.broker_core.messages import delivery_key

from .helpers import Reader, browse, numbered, rows_of, send

_stages = (f"outcomes-{number}" for number in itertools.count())


class Settler:
    """A reader that hands on the deliveries it has read."""

    def __init__(self, client: Client, queue: str, messages: int = 6) -> None:
        self.client, self.queue = client, queue
        send(client, queue, numbered(messages))
        self.reader = Reader(client, queue)
        self.batch = self.reader.advance()

    def deliveries(self) -> list[bytes]:
        columns = ["delivery", "sequenceNumber"]
        return [row["delivery"] for row in rows_of(self.client.get(**self.reader.ticket(self.batch, columns=columns)))]

    def stage(self, rows: list[tuple[bytes, Any, Any]], stage: str | None = None) -> str:
        stage = stage or next(_stages)
        named, outcome, error = zip(*rows, strict=True)
        arrays = [pa.array(named, pa.binary()), pa.array(outcome, pa.string()), pa.array(error, pa.string())]
        batch = pa.record_batch(arrays, ["delivery", "outcome", "error"])
        reply = self.client.put({"op": "settle", "stage": stage, "lease": self.reader.lease}, batch.schema, [batch])
        assert reply == {"batches": 1, "messages": len(rows)}
        return stage

    def outcomes(self) -> list[str | None]:
        states = ["available", "acquired", "archived"]
        return [row["outcome"] or row["state"] for row in browse(self.client, self.queue, "outcome", "state", states=states)]


def test_outcomes_from_the_read_to_the_settlement(client: Client, queue: str) -> None:
    settler = Settler(client, queue)
    key_1, two, three, four, *_ = settler.deliveries()
    first = settler.stage([(key_1, "rejected", "bad"), (two, "released", None), (key_1, None, "says nothing")])
    second = settler.stage([(three, "modified", None), (four, "rejected", None), (four, "accepted", None)])
    client.call("stage.publish", stages=[first, second])
    assert settler.outcomes() == ["acquired"] * 6
    assert settler.reader.settle(settler.batch)["settled"] == 6
    assert settler.outcomes() == ["rejected", "available", "available", "accepted", "accepted", "accepted"]
    counts = [row["deliveryCount"] for row in browse(client, queue, "deliveryCount")]
    assert counts == [0, 1]
    again = settler.stage([(key_1, "released", None)])  # Spark repeats the write: that is done already
    client.call("stage.publish", stages=[again])
    assert settler.outcomes()[0] == "rejected"


def test_more_different_errors_than_are_kept_are_said_all_the_same(client: Client, queue: str) -> None:
    """Each message with an error of its own, in two records: none is refused, and all are rejected."""
    count = 10_500
    settler = Settler(client, queue, count)
    named = settler.deliveries()
    half = count // 2
    stage = settler.stage([(key, "rejected", f"row {row}") for row, key in enumerate(named[:half])])
    settler.stage([(key, "rejected", f"row {half + row}") for row, key in enumerate(named[half:])], stage)
    client.call("stage.publish", stages=[stage])
    assert settler.reader.settle(settler.batch)["settled"] == count
    assert set(settler.outcomes()) == {"rejected"}


def test_a_zombie_settles_nothing(client: Client, queue: str) -> None:
    settler = Settler(client, queue)
    first, two, *_ = settler.deliveries()
    early = settler.stage([(first, "rejected", None)])
    settler.reader.epoch = None
    settler.batch = settler.reader.advance(fresh=True)
    with pytest.raises(errors.Fenced):
        settler.stage([(two, "rejected", None)])
    with pytest.raises(errors.Fenced):
        client.call("stage.publish", stages=[early])
    assert settler.deliveries()[0] != first


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"delivery": [b"junk"], "outcome": ["rejected"]}, "'delivery' contains no key from a stream in row 0"),
        ({"delivery": [b"\x02" + b"\0" * 40], "outcome": ["rejected"]}, "'delivery' contains no key from a stream"),
        ({"delivery": [b"x", None], "outcome": ["rejected", None]}, "'delivery' is null in row 1"),
        ({"delivery": [b"x"]}, "'delivery' and 'outcome' must be there"),
        ({"outcome": ["rejected"]}, "'delivery' and 'outcome' must be there"),
        ({"delivery": ["text"], "outcome": ["rejected"]}, "column 'delivery' of type string"),
        ({"delivery": [b"x"], "outcome": ["rejected"], "body": [b"x"]}, "column 'body'"),
    ],
)
def test_what_is_no_outcome_is_refused_by_name(client: Client, columns: dict[str, list[Any]], says: str) -> None:
    batch = pa.record_batch({name: pa.array(values) for name, values in columns.items()})
    with pytest.raises(errors.InvalidRequest, match=says):
        client.put({"op": "settle", "stage": next(_stages), "lease": "any"}, batch.schema, [batch])


def test_unknown_outcomes_and_other_leases_are_refused(client: Client, queue: str) -> None:
    settler = Settler(client, queue)
    first, *_ = settler.deliveries()
    with pytest.raises(errors.InvalidRequest, match="'refused' is not one of accepted, rejected, released, modified"):
        settler.stage([(first, "refused", None)])
    settler.reader.lease = "another"
    with pytest.raises(errors.InvalidRequest, match="send the outcomes of each lease separately"):
        settler.stage([(first, "rejected", None)])


@pytest.mark.parametrize("column", ["outcome", "error"])
def test_a_text_that_is_not_utf8_is_refused_by_column_and_row(client: Client, queue: str, column: str) -> None:
    settler = Settler(client, queue)
    first, two, *_ = settler.deliveries()
    columns = {"outcome": pa.array(["rejected"] * 2), column: pa.array([b"rejected", b"\xff"], pa.binary()).view(pa.string())}
    batch = pa.record_batch({"delivery": pa.array([first, two], pa.binary()), **columns})
    with pytest.raises(errors.InvalidColumn, match=f"column '{column}' is not UTF-8 in row 1"):
        client.put({"op": "settle", "stage": next(_stages), "lease": settler.reader.lease}, batch.schema, [batch])
    assert settler.outcomes() == ["acquired"] * 6


def test_deliveries_of_several_batches_are_told_apart() -> None:
    """The column is read as it was written, with any other columns between."""
    heads = [delivery_key.prefix("a", 1, 2), delivery_key.prefix("longer", 1, 2), delivery_key.prefix("a", 1, 3)]
    columns = [delivery_key.column(head, range(count)).to_pylist() for head, count in zip(heads, (3, 2, 1), strict=True)]
    mixed = [columns[0][0], columns[1][0], columns[2][0], columns[0][1], b"not chosen", columns[1][1], columns[0][2]]
    groups = delivery_key.parse(pa.array([b"before", *mixed], pa.binary()).slice(1), np.arange(7) != 4)
    parsed = {(group.lease, group.batch, group.epoch): (group.rows.tolist(), group.sequences.tolist()) for group in groups}
    assert parsed == {("a", 1, 2): ([0, 3, 6], [0, 1, 2]), ("longer", 1, 2): ([1, 5], [0, 1]), ("a", 1, 3): ([2], [0])}
    assert not list(delivery_key.parse(pa.array([], pa.binary()), np.array([], bool)))


def test_a_batch_in_each_row_holds_nobody_up(client: Client, queue: str) -> None:
    """Each row of another batch: one record batch of these took the broker hours. The first that it does not know is refused,
    and rows without an outcome say nothing."""
    settler = Settler(client, queue)
    known = settler.deliveries()[0]
    many = [delivery_key.prefix(settler.reader.lease, number, 1) + bytes(8) for number in range(100, 200_000)]
    with pytest.raises(errors.DataLoss, match="batch 100 of lease"):
        settler.stage([(known, "rejected", None), *((key, "rejected", None) for key in many)])
    client.call("stage.publish", stages=[settler.stage([*((key, None, None) for key in many), (known, "released", None)])])
    settler.reader.settle(settler.batch)
    assert settler.outcomes()[0] == "available"
