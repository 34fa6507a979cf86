"""S9: `mode=replay`: recorded messages as a stream, the same rows in the same batches whoever restarts, at a pace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.broker_core.archive.files import File
from penstock.broker_core.errors import InvalidRequest, WrongOffset
from penstock.connector import recorded
from penstock.connector.options import READ, REPLAY, STREAM, Options
from penstock.connector.replay import ReplayReader, cut
from penstock.connector.schema import source_schema

from .recording import Site

LIMIT = ReadMaxRows(2**62)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    recorded._unreachable.clear()
    running = Site(tmp_path)
    running.client.call("queue.declare", queue="q")
    yield running
    running.close()


def add(site: Site, count: int, *, recorded_rows: int = 1 << 30) -> None:
    """More messages, settled and recorded."""
    site.send("q", body=[b"%d" % number for number in range(count)])
    site.settle("q", count)
    site.record("q", recorded_rows)


def reader(
    site: Site, *, available_now: bool = False, columns: tuple[str, ...] = ("sequenceNumber", "outcome"), **options: str
) -> Any:
    given = Options({"url": site.plane.url, "queue": "q", "mode": "replay", **options})
    made = ReplayReader(given, source_schema(columns))
    if available_now:
        made.prepareForTriggerAvailableNow()
    return made


def batch_of(made: Any, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    parts = made.partitions(start, end)
    return sorted(n for part in parts for batch in made.read(part) for n in batch.column("sequenceNumber").to_pylist())


def drained(made: Any, offset: dict[str, Any] | None = None) -> tuple[list[list[int]], dict[str, Any]]:
    """The batches that there are until nothing more comes, and the offset then."""
    offset = made.initialOffset() if offset is None else offset
    batches = []
    while (end := made.latestOffset(offset, LIMIT)) != offset:
        batches.append(batch_of(made, offset, end))
        offset = end
    return batches, offset


def test_a_replay_gives_what_is_recorded_and_ends(site: Site) -> None:
    made = reader(site, available_now=True, maxMessagesPerTrigger="4")
    assert drained(made) == ([], {"v": 4}), "nothing is recorded yet"
    add(site, 10)
    before = site.client.call("queue.stat", queue="q")
    batches, _ = drained(reader(site, available_now=True, maxMessagesPerTrigger="4"))
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert drained(reader(site, available_now=True))[0] == [list(range(10))]
    assert site.client.call("queue.stat", queue="q") == before, "nothing is taken or settled"
    assert len(site.client.call("lease.list")["leases"]) == 1


def test_whoever_restarts_gets_the_same_rows(site: Site) -> None:
    """The first offset fixes them: what is recorded later, or put together in other files, changes no batch."""
    add(site, 10)
    made = reader(site, maxMessagesPerTrigger="4")
    first = made.latestOffset(made.initialOffset(), LIMIT)
    second = made.latestOffset(first, LIMIT)
    site.send("q", body=[b"x"] * 5)
    site.settle("q", 5)
    site.record("q", 2)
    deltalake.DeltaTable(site.url("q")).optimize.compact()
    again = reader(site, maxMessagesPerTrigger="4")
    assert batch_of(again, first, second) == [4, 5, 6, 7]
    assert again.latestOffset(first, LIMIT) == second
    assert drained(reader(site, available_now=True, maxMessagesPerTrigger="4"), second)[0] == [[8, 9]]


def test_without_an_end_it_goes_on_with_what_is_recorded_since(site: Site) -> None:
    add(site, 3)
    made = reader(site)
    batches, offset = drained(made)
    add(site, 2)
    more, offset = drained(made, offset)
    site.send("q", body=[b"x"] * 4)
    site.settle("q", 4)
    assert (batches, more) == ([[0, 1, 2]], [[3, 4]])
    assert drained(made, offset)[0] == [], "what is settled and not recorded comes later"
    site.record("q", 2)
    site.record("q", 2)
    assert drained(reader(site), offset)[0] == [[5, 6, 7, 8]]


def test_bounds(site: Site) -> None:
    add(site, 10)
    assert drained(reader(site, startingSequence="3", endingSequence="6"))[0] == [[3, 4, 5, 6]]
    assert drained(reader(site, startingTimestamp="2100-01-01T00:00:00Z"))[0] == []
    _, offset = drained(reader(site, endingSequence="6"))
    add(site, 2)
    assert drained(reader(site, endingSequence="6"), offset)[0] == [], "it has an end"
    assert drained(reader(site, outcome="accepted", selector="JMSPriority = 4", endingSequence="1"))[0] == [[0, 1]]
    assert drained(reader(site, outcome="rejected", available_now=True))[0] in ([], [[]])


def test_the_pace_is_that_of_the_arrivals(site: Site) -> None:
    """At pace 10 a second between two messages is a tenth; in between, a query that is to end says that it has not."""
    for _ in range(3):
        site.send("q", body=[b"x", b"y"])
        time.sleep(1.0)
    site.settle("q", 6)
    site.record("q")
    begun = time.monotonic()
    batches, _ = drained(reader(site, available_now=True, pace="4"))
    took = time.monotonic() - begun
    assert [batch for batch in batches if batch] == [[0, 1], [2, 3], [4, 5]]
    assert 0.5 <= took < 5
    slow = reader(site, pace="0.01")
    first = slow.latestOffset(slow.initialOffset(), LIMIT)
    assert batch_of(slow, slow.initialOffset(), first) == [0, 1]
    assert slow.latestOffset(first, ReadAllAvailable()) == first, "the next one comes in a hundred seconds"
    slow.prepareForTriggerAvailableNow()
    waiting = slow.latestOffset(first, ReadAllAvailable())
    assert waiting != first
    assert slow.partitions(first, waiting) == []
    assert batch_of(reader(site, available_now=True), waiting, drained(reader(site, available_now=True), waiting)[1]) == [
        2,
        3,
        4,
        5,
    ]


def test_a_checkpoint_of_another_kind_or_queue_is_refused(site: Site) -> None:
    add(site, 2)
    with pytest.raises(WrongOffset, match="not that of a query with mode=replay"):
        reader(site).latestOffset({"v": 1, "batch": 0}, LIMIT)
    _, offset = drained(reader(site))
    site.client.call("queue.delete", queue="q", force=True)
    site.client.call("queue.declare", queue="q")
    with pytest.raises(WrongOffset, match="the queue was deleted"):
        reader(site).latestOffset(offset, LIMIT)


@pytest.mark.parametrize(
    ("place", "options", "says"),
    [
        (REPLAY, {"lease": "me"}, "has no meaning for spark.readStream with mode=replay"),
        (REPLAY, {"leaseTimeout": "1h"}, "has no meaning"),
        (REPLAY, {"maxBytesPerTrigger": "1m"}, "has no meaning"),
        (REPLAY, {"states": "archived"}, "it is for spark.read"),
        (REPLAY, {"queue": "a,b"}, "a replay is of one"),
        (READ, {}, "set states=archived"),
        (STREAM, {"mode": "acquire", "pace": "1"}, "it is for spark.readStream with mode=replay"),
        (STREAM, {"mode": "acquire", "startingSequence": "1"}, "with mode=replay"),
        (REPLAY, {"pace": "-1"}, "option pace cannot be"),
        (REPLAY, {"pace": "nan"}, "option pace cannot be"),
    ],
)
def test_options_that_make_no_sense_are_refused(place: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        Options({"url": "grpc://127.0.0.1:1", "queue": "q", "mode": "replay", **options}).check_for(place)


def test_a_replay_has_no_deliveries(site: Site) -> None:
    with pytest.raises(InvalidRequest, match="nothing of a replay can be settled"):
        reader(site, columns=("delivery",))


def test_a_batch_has_at_most_so_many_rows_of_all_files() -> None:
    files = [File("a", 100, 0, 99), File("b", 10, 50, 59), File("c", 50, 1000, 1999)]
    assert cut(files, 0, 1999, 1000) == 2000
    assert cut(files, 0, 1999, 60) == 55
    assert cut(files, 0, 1999, 110) == 1000
    assert cut(files, 0, 1999, 1) == 1
    assert cut(files, 52, 1999, 1) == 53, "one number at least"
    assert cut(files, 1000, 1999, 20) == 1020
