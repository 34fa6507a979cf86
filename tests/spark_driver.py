"""Spark's driver as `MicroBatchExecution` runs a stream: its logs, its calls to a reader in their order, and its death at a step.

The calls are those of Spark 4.0 and 4.1, or of 4.2 and newer. Both restart from the same log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

#: Steps of a batch, in order: a driver can die after each of them. Only a batch that has a predecessor is `cleaned`.
STEPS = ("offered", "logged", "cleaned", "planned", "reading", "read", "written", "committed")
SPARKS = ("4.0", "4.2")

Reader = Any  # a StreamReader, or for Spark 4.0 its StartTracker


class Died(Exception):
    """The death of a driver."""


@dataclass
class Checkpoint:
    """The durable part of a query: Spark's logs, and the table of a sink that writes each batch once."""

    offsets: list[str] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)
    table: dict[int, list[Any]] = field(default_factory=dict)

    @property
    def rows(self) -> list[Any]:
        return list(chain.from_iterable(self.table.values()))


def nothing(step: str, batch: int) -> None:
    """A step after which the driver lives on."""


def dying(at: str, in_batch: int) -> Callable[[str, int], None]:
    def step(name: str, batch: int) -> None:
        if (name, batch) == (at, in_batch):
            raise Died(name)

    return step


def run(
    spark: str,
    checkpoint: Checkpoint,
    reader: Reader,
    rows_of: Callable[[Any], list[Any]],
    *,
    once: bool = False,
    idle: int = 1,
    step: Callable[[str, int], None] = nothing,
) -> None:
    """Run a query until the reader has had no messages `idle` times, or with `once` for one batch, as `availableNow` is on 4.0.

    `rows_of` returns the rows of a record batch.
    """
    log, start = checkpoint, None
    number = max(0, len(log.offsets) - 1)
    is_constructed = bool(log.offsets)
    if log.offsets:
        latest = json.loads(log.offsets[-1])
        if spark == "4.0":
            assert reader.partitions(latest, latest) == []  # setLatestSeenOffset
        start = log.offsets[-2] if len(log.offsets) > 1 else None
        if number in log.committed:
            number, is_constructed, start = number + 1, False, log.offsets[-1]
    while True:
        if not is_constructed:
            end = json.dumps(_latest(spark, reader, start, once))
            step("offered", number)
            if end == start:
                idle -= 1
                if once or idle <= 0:
                    return
                continue
            assert len(log.offsets) == number
            log.offsets.append(end)
            step("logged", number)
            if number:
                reader.commit(json.loads(log.offsets[number - 1]))
                step("cleaned", number)
        is_constructed = False
        end = log.offsets[number]
        rows = list(_read(reader, reader.initialOffset() if start is None else json.loads(start), json.loads(end), rows_of,
                          lambda name, number=number: step(name, number)))  # fmt: skip
        step("read", number)
        if number not in log.table:
            log.table[number] = rows
        step("written", number)
        log.committed.add(number)
        step("committed", number)
        number, start = number + 1, end
        if once:
            return


def _latest(spark: str, reader: Reader, start: str | None, once: bool) -> Any:
    if spark == "4.0":
        return reader.latestOffset()
    limit = ReadAllAvailable() if once else reader.getDefaultReadLimit()
    return reader.latestOffset(reader.initialOffset() if start is None else json.loads(start), limit)


def _read(
    reader: Reader, start: Any, end: Any, rows_of: Callable[[Any], list[Any]], step: Callable[[str], None]
) -> Iterator[Any]:
    parts = reader.partitions(start, end)
    step("planned")
    for part in parts:
        for batch in reader.read(part):
            yield from rows_of(batch)
        step("reading")
