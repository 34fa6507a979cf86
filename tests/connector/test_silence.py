"""Planner, reading tasks and writing tasks end if the network goes silent, with an error that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.broker_core import errors
from penstock.broker_core.client import timeouts
from penstock.connector.options import Options
from penstock.connector.sink import writer as sink
from penstock.connector.sink.writer import BatchWriter
from penstock.connector.stream import lease
from penstock.connector.stream.reader import StreamReader
from penstock.connector.task import reading as read
from penstock.connector.task.partition import LeasePartition

from ..flight.silent_wire import SilentWire
from .helpers import INITIAL, LIMIT, Queue, elsewhere

BODY = StructType([StructField("body", BinaryType())])
SAYS = "has sent nothing for .* the network is silent"
MIB = 1 << 20


@pytest.fixture
def wire(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Iterator[SilentWire]:
    for module in (lease, read):
        monkeypatch.setattr(module, "RECONNECT_S", 0.0)
    monkeypatch.setattr(timeouts, "SILENCE_S", 0.5)
    monkeypatch.setattr(sink, "FORGET_S", 0.1)
    with SilentWire(queue.broker.url) as made:
        yield made


CALLS: list[Callable[[StreamReader, dict[str, Any]], Any]] = [
    lambda reader, end: reader.latestOffset(end, LIMIT),
    lambda reader, end: reader.commit(end),
    lambda reader, end: reader.partitions(end, {**end, "batches": dict.fromkeys(end["batches"], 2)}),
]


@pytest.mark.parametrize("call", CALLS)
def test_the_planner_says_that_the_network_is_silent(
    queue: Queue, wire: SilentWire, call: Callable[[StreamReader, dict[str, Any]], Any]
) -> None:
    queue.send(2)
    reader = queue.reader(url=wire.url)
    end = reader.latestOffset(INITIAL, LIMIT)
    wire.cut()
    with pytest.raises(errors.PeerError, match=SAYS):
        call(reader, end)


def test_a_task_that_reads_says_so(queue: Queue, wire: SilentWire, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for _ in range(20):
        queue.send(4, b"." * MIB)
    reader = queue.reader(url=wire.url)
    end = reader.latestOffset(INITIAL, LIMIT)
    (part,) = reader.partitions(INITIAL, end)
    assert isinstance(part, LeasePartition)
    elsewhere(monkeypatch, tmp_path)  # as an executor on another host
    batches = reader.read(part)
    assert next(batches).num_rows
    wire.cut()
    with pytest.raises(errors.PeerError, match=SAYS):
        list(batches)


def test_a_task_that_writes_says_so_and_leaves_no_more_than_a_stage(queue: Queue, wire: SilentWire) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        batch = pa.record_batch({"body": pa.array([b"." * MIB] * 16, pa.binary())})
        yield batch
        wire.cut()
        while True:
            yield batch

    writer = BatchWriter(Options({"url": wire.url, "queue": queue.name}), BODY, False)
    with pytest.raises(errors.PeerError, match=SAYS):
        writer.write(rows())
    assert queue.stat()["nextSequence"] == 0


def test_all_of_this_ends_within_a_minute() -> None:
    """A task that finds silence has waited once for the broker, and then for its stage to be discarded."""
    assert timeouts.SILENCE_S > read.RECONNECT_S, "a caller that has waited so long does not ask again"
    assert timeouts.SILENCE_S + sink.FORGET_S < 60
    assert timeouts.SILENCE_S >= 4 * timeouts.ALIVE_S
