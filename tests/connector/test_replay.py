"""S9: `mode=replay`: archived messages as a stream, the same rows in the same batches after a restart, at a pace."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.broker_core.archive.read import scan
from penstock.broker_core.archive.read.files import File
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.commands import Now
from penstock.broker_core.errors import DataLoss, InvalidRequest, WrongOffset
from penstock.broker_core.service.clock import system_clock
from penstock.connector.options import READ, REPLAY, STREAM, Options
from penstock.connector.schema import source_schema
from penstock.connector.stream import replay
from penstock.connector.stream.replay import ReplayReader, cut
from penstock.connector.task import archive

from .recording import Site, recording, retain

LIMIT = ReadMaxRows(2**62)


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of queries that find nothing, which take no time here."""
    made: list[float] = []
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: made.append(seconds) if seconds == replay.LOOK_S else sleep(seconds))
    return made


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with recording(tmp_path) as running:
        yield running


def add(site: Site, count: int, *, recorded_rows: int = 1 << 30) -> None:
    """More messages, settled and recorded."""
    site.send("q", body=[b"%d" % number for number in range(count)])
    site.settle("q", count)
    site.record("q", recorded_rows)


def reader(
    site: Site,
    *,
    available_now: bool = False,
    columns: tuple[str, ...] = ("sequenceNumber", "outcome"),
    now: datetime | None = None,
    **options: str,
) -> Any:
    settings = Options({"url": site.plane.url, "queue": "q", "mode": "replay", **options}, now)
    made = ReplayReader(settings, source_schema(columns))
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


def planned(site: Site, messages: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Offsets of a query: its begin, and the ends of its first two batches of so many messages."""
    made = reader(site, maxMessagesPerTrigger=messages)
    begin = made.initialOffset()
    first = made.latestOffset(begin, LIMIT)
    return begin, first, made.latestOffset(first, LIMIT)


def test_a_replay_gives_what_is_recorded_and_ends(site: Site) -> None:
    made = reader(site, available_now=True, maxMessagesPerTrigger="4")
    assert drained(made) == ([], {"v": 1, "kind": "initial"}), "nothing is recorded yet"
    add(site, 10)
    before = site.client.call("queue.stat", queue="q")
    batches, _ = drained(reader(site, available_now=True, maxMessagesPerTrigger="4"))
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert drained(reader(site, available_now=True))[0] == [list(range(10))]
    assert site.client.call("queue.stat", queue="q") == before, "nothing is taken or settled"
    assert len(site.client.call("lease.list")["leases"]) == 1


def test_whoever_restarts_gets_the_same_rows(site: Site) -> None:
    """The first offset fixes them: later recordings, or compaction into other files, change no batch."""
    add(site, 10)
    _, first, second = planned(site, "4")
    site.send("q", body=[b"x"] * 5)
    site.settle("q", 5)
    site.record("q", 2)
    deltalake.DeltaTable(site.url("q")).optimize.compact()
    again = reader(site, maxMessagesPerTrigger="4")
    assert batch_of(again, first, second) == [4, 5, 6, 7]
    assert again.latestOffset(first, LIMIT) == second
    batches, _ = drained(reader(site, available_now=True, maxMessagesPerTrigger="4"), second)
    assert [batch for batch in batches if batch] == [[8, 9], [10, 11]], "later recordings are separate batches"


def test_without_an_end_it_goes_on_with_what_is_recorded_since(site: Site, looks: list[float]) -> None:
    """A query without messages waits before the next look."""
    add(site, 3)
    made = reader(site)
    batches, offset = drained(made)
    add(site, 2)
    more, offset = drained(made, offset)
    site.send("q", body=[b"x"] * 4)
    site.settle("q", 4)
    assert (batches, more) == ([[0, 1, 2]], [[3, 4]])
    assert len(looks) == 2, "two ends of the set"
    assert drained(made, offset)[0] == [], "settled messages that are not recorded come later"
    site.record("q", 2)
    site.record("q", 2)
    assert drained(reader(site), offset)[0] == [[5, 6, 7, 8]]


def test_what_is_settled_and_not_recorded_yet_comes_with_the_next_run(site: Site) -> None:
    """A query that is to end has exactly the messages that are recorded at its start; a batch read has all settled ones."""
    site.send("q", body=[b"x"] * 20)
    site.settle("q", 10)
    site.record("q", 6)
    made = reader(site, available_now=True, maxMessagesPerTrigger="4")
    first = made.latestOffset(made.initialOffset(), LIMIT)
    site.record("q")
    batches, offset = drained(made, first)
    assert [batch_of(made, made.initialOffset(), first), *batches] == [[0, 1, 2, 3], [4, 5]]
    assert site.numbers("q") == list(range(10))
    site.settle("q", 5)
    batches, offset = drained(reader(site, available_now=True), offset)
    assert batches == [[6, 7, 8, 9]]
    assert site.numbers("q") == list(range(15))
    assert drained(reader(site, available_now=True), offset) == ([], offset), "nothing was recorded since"
    site.record("q")
    assert drained(reader(site), offset)[0] == [[10, 11, 12, 13, 14]]


class Clock:
    """Stands still until a thread sleeps; for the arrivals of a broker's messages, and for the reader that replays them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def date(self) -> datetime:
        return datetime.fromtimestamp(self.now, timezone.utc)

    def __call__(self) -> Now:
        return system_clock()._replace(wall=round(self.now * 1e6))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_retention_while_a_replay_reads(tmp_path: Path, clock: Clock) -> None:
    """The version of its first offset keeps its rows as long as the files exist, also after a restart. After that
    the missing messages are named, and a query may continue without them."""
    archive._unreachable.clear()
    with contextlib.closing(Site(tmp_path, clock)) as site:
        site.client.call("queue.declare", queue="q")
        add(site, 6)
        clock.now += 86400
        add(site, 6)
        _, first, second = planned(site, "4")
        table = deltalake.DeltaTable(site.url("q"))
        retain(table, "1970-01-02")
        add(site, 1)
        again = reader(site, maxMessagesPerTrigger="4")
        assert batch_of(again, first, second) == [4, 5, 6, 7]
        assert drained(reader(site, maxMessagesPerTrigger="8"), second)[0] == [[8, 9, 10, 11], [12]]
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        with pytest.raises(DataLoss, match=r"messages 4 to 5 of queue 'q' cannot be read: .* is gone: retention"):
            batch_of(reader(site, maxMessagesPerTrigger="4"), first, second)
        careless = reader(site, maxMessagesPerTrigger="4", failOnDataLoss="false")
        assert batch_of(careless, first, second) == [6, 7]
        paced = reader(site, pace="100000000", failOnDataLoss="false", available_now=True)
        assert [number for batch in drained(paced, first)[0] for number in batch] == list(range(6, 13))
        assert not archive._unreachable, "the table is reached, the file is gone"


def test_bounds(site: Site) -> None:
    add(site, 10)
    assert drained(reader(site, startingSequence="3", endingSequence="6"))[0] == [[3, 4, 5, 6]]
    assert drained(reader(site, startingTimestamp="2100-01-01T00:00:00Z"))[0] == []
    _, offset = drained(reader(site, endingSequence="6"))
    add(site, 2)
    assert drained(reader(site, endingSequence="6"), offset)[0] == [], "it has an end"
    assert drained(reader(site, outcome="accepted", selector="JMSPriority = 4", endingSequence="1"))[0] == [[0, 1]]
    assert drained(reader(site, outcome="rejected", available_now=True))[0] in ([], [[]])


ARRIVALS = [0.0, 0.25, 2.0, 2.0, 10.0]  # seconds


@pytest.fixture
def arrived(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Recorded messages that came at `ARRIVALS`."""
    archive._unreachable.clear()
    running = Site(tmp_path, clock)
    running.client.call("queue.declare", queue="q")
    began = clock.now
    for at in ARRIVALS:
        clock.now = began + at
        running.send("q", body=[b"x"])
    running.settle("q", len(ARRIVALS))
    running.record("q")
    monkeypatch.setattr(replay, "time", clock)
    yield running
    running.close()


FIRST_BATCH_S = 7.0  # as a busy Spark takes for the first batch of a query


@pytest.mark.parametrize("pace", [0.5, 1, 4, 60])
def test_the_pace_is_that_of_the_arrivals(arrived: Site, clock: Clock, pace: float) -> None:
    """S9: message by message, counted from the first one. While no message is due, a query that is to end continues
    with batches of nothing, a second apart at most."""
    made = reader(arrived, available_now=True, pace=str(pace))
    offset = made.initialOffset()
    came: list[tuple[int, float]] = []
    before = clock.now
    while (end := made.latestOffset(offset, LIMIT)) != offset:
        arrivals, planned = batch_of(made, offset, end), clock.now
        assert arrivals or planned - before <= replay.WAIT_S
        if offset == made.initialOffset():
            assert arrivals == [0]
            clock.now += FIRST_BATCH_S
            planned = clock.now
        came += [(number, planned) for number in arrivals]
        offset, before = end, clock.now
    numbers, times = zip(*came, strict=True)
    assert numbers == (0, 1, 2, 3, 4)
    assert [time - times[0] for time in times] == pytest.approx([at / pace for at in ARRIVALS], abs=1e-5)


def test_what_is_late_comes_at_once_and_the_pace_goes_on(arrived: Site, clock: Clock) -> None:
    """A slow batch delays only messages that are due meanwhile; a restart begins with the next message."""
    made = reader(arrived, pace="1")
    first = made.latestOffset(made.initialOffset(), LIMIT)
    assert made.latestOffset(made.initialOffset(), LIMIT) == first, "planned again, before it was read"
    second = made.latestOffset(first, LIMIT)
    clock.now += 6.0
    third = made.latestOffset(second, LIMIT)
    at = clock.now
    assert [batch_of(made, *ends) for ends in ((first, second), (second, third))] == [[1], [2, 3]]
    while (last := made.latestOffset(third, LIMIT)) == third:
        pass
    assert clock.now - at == pytest.approx(10 - 6.25, abs=1e-5)
    again = reader(arrived, pace="0.01")
    assert batch_of(again, second, again.latestOffset(second, LIMIT)) == [2, 3]
    assert batch_of(made, third, last) == [4]
    narrow = reader(arrived, pace="1000", maxMessagesPerTrigger="1", available_now=True)
    clock.now += 1000
    assert [batch for batch in drained(narrow, second)[0] if batch] == [[2], [3], [4]]


def test_the_pace_is_kept_where_files_overlap(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next message may be in another file than the one after it: here the second file has messages that came between."""
    with contextlib.closing(Site(tmp_path, clock)) as site:
        for name in ("q", "other"):
            site.client.call("queue.declare", queue=name)
        began = clock.now
        for number in range(8):
            clock.now = began + number
            site.send("q", body=[b"x"])
        link = site.service.submit(c.Subscribe("q"))
        rows = site.service.submit(c.Acquire("q", link, 8)).rows.sequences()
        for part in ([0, 1, 6, 7], [2, 4], [3, 5]):
            site.service.submit(c.Settle("q", link, RowSet.of_sequences(rows[part])))
            site.record("q")
        monkeypatch.setattr(replay, "time", clock)
        made = reader(site, available_now=True, pace="1")
        offset, came = made.initialOffset(), []
        while (end := made.latestOffset(offset, LIMIT)) != offset:
            came += [(number, clock.now) for number in batch_of(made, offset, end)]
            offset = end
        assert [number for number, _ in came] == list(range(8))
        assert [at - came[0][1] for _, at in came] == pytest.approx(list(range(8)), abs=1e-5)


def test_a_large_file_is_opened_once_for_a_look(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    add(site, 5000)
    opened: list[str] = []
    sound = scan.opened
    monkeypatch.setattr(scan, "opened", lambda url, path: opened.append(path) or sound(url, path))  # type: ignore[func-returns-value]
    made = reader(site, pace="1", available_now=True)
    made.latestOffset(made.initialOffset(), LIMIT)
    assert 0 < len(opened) <= 3


def test_a_query_that_is_done_goes_on_when_the_table_s_log_was_cleaned_up(site: Site) -> None:
    """Delta keeps the log of old versions for 30 days; a query that has read its version needs it no more."""
    add(site, 3)
    _, offset = drained(reader(site))
    add(site, 2)
    table = deltalake.DeltaTable(site.url("q"))
    table.create_checkpoint()
    for commit in Path(site.url("q"), "_delta_log").glob("*.json"):
        if int(commit.stem) < table.version():
            commit.unlink()
    assert drained(reader(site), offset)[0] == [[3, 4]]


def cleaned_up(site: Site, removed: str | None = None, *, log: bool = True) -> None:
    """Age the table: compact it, and remove its old files, with `log` also commits, and perhaps some of its days."""
    table = deltalake.DeltaTable(site.url("q"))
    if removed is not None:
        retain(table, removed)
    table.optimize.compact()
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    table.create_checkpoint()
    for commit in Path(site.url("q"), "_delta_log").glob("*.json") if log else ():
        if int(commit.stem) < table.version():
            commit.unlink()


def three_days(site: Site, clock: Clock) -> None:
    """Nine messages, three a day, in two files each."""
    site.client.call("queue.declare", queue="q")
    for _ in range(3):
        add(site, 2)
        add(site, 1)
        clock.now += 86400


@pytest.mark.parametrize("way", ["planner", "broker"])
@pytest.mark.parametrize("how", ["day", "rows"])
def test_rows_that_others_delete_do_not_come_back_when_retention_takes_their_day(
    tmp_path: Path, clock: Clock, how: str, way: str
) -> None:
    """The version that the replay began with has them; it may not be read any more. Compaction by others does not matter."""
    with contextlib.closing(Site(tmp_path, clock)) as site:
        site.client.call("queue.declare", queue="q")
        add(site, 6)
        clock.now += 86400
        add(site, 6)
        _, first, second = planned(site, "4")
        table = deltalake.DeltaTable(site.url("q"))
        table.optimize.compact()
        if how == "rows":
            retain(table, "1970-01-02")
            assert batch_of(reader(site, maxMessagesPerTrigger="4"), first, second) == [4, 5, 6, 7]
            table.restore(table.version() - 1)
        table.delete("day < '1970-01-02'" if how == "day" else '"sequenceNumber" = 5')
        if how == "rows":
            retain(table, "1970-01-02")
        if way == "broker":
            archive._unreachable.add(site.url("q"))
        with pytest.raises(DataLoss, match="other programs have deleted rows since"):
            batch_of(reader(site, maxMessagesPerTrigger="4"), first, second)
        assert batch_of(reader(site, maxMessagesPerTrigger="4", failOnDataLoss="false"), first, second) == [6, 7]
        archive._unreachable.clear()


def test_days_that_retention_has_left_are_read_in_the_newest_version(tmp_path: Path, clock: Clock) -> None:
    """The version that the replay began with has files of the day that retention has taken; its files of other days are gone."""
    with contextlib.closing(Site(tmp_path, clock)) as site:
        three_days(site, clock)
        _, first, second = planned(site, "2")
        cleaned_up(site, "1970-01-02", log=False)
        with pytest.raises(DataLoss, match="messages 2 to 2 of queue 'q' cannot be read"):
            batch_of(reader(site), first, second)
        careless = drained(reader(site, failOnDataLoss="false", available_now=True), first)[0]
        assert [number for batch in careless for number in batch] == [3, 4, 5, 6, 7, 8]


def test_a_replay_goes_on_in_its_middle_when_the_version_that_it_began_with_is_gone(tmp_path: Path, clock: Clock) -> None:
    """The newest version has its rows, in other files, if retention has removed none. Removed rows are named."""
    with contextlib.closing(Site(tmp_path, clock)) as site:
        three_days(site, clock)
        begin, first, second = planned(site, "2")
        cleaned_up(site)
        again = reader(site, maxMessagesPerTrigger="2")
        assert [batch_of(again, begin, first), batch_of(again, first, second)] == [[0, 1], [2, 3]]
        assert drained(reader(site, maxMessagesPerTrigger="2"), second)[0] == [[4, 5], [6, 7], [8]]
        cleaned_up(site, "1970-01-02")
        assert [number for batch in drained(reader(site), second)[0] for number in batch] == [4, 5, 6, 7, 8]
        with pytest.raises(DataLoss, match="messages 2 to 2 of queue 'q' that came before 1970-01-02 may be gone"):
            batch_of(reader(site), first, second)
        assert batch_of(reader(site, failOnDataLoss="false"), first, second) == [3]
        cleaned_up(site, "1970-01-03")
        with pytest.raises(DataLoss, match="messages 4 to 5 of queue 'q' that came before 1970-01-03 may be gone"):
            drained(reader(site), second)
        careless = drained(reader(site, failOnDataLoss="false", available_now=True), second)[0]
        assert [number for batch in careless for number in batch] == [6, 7, 8]


def test_a_query_that_waits_for_its_pace_can_be_stopped(arrived: Site, clock: Clock) -> None:
    slow = reader(arrived, pace="0.01")
    first = slow.latestOffset(slow.initialOffset(), LIMIT)
    assert slow.latestOffset(first, ReadAllAvailable()) == first, "the next one comes in 25 seconds"
    slow.prepareForTriggerAvailableNow()
    waiting = slow.latestOffset(first, ReadAllAvailable())
    assert waiting != first
    assert slow.partitions(first, waiting) == []
    assert drained(reader(arrived, available_now=True), waiting)[0] == [[1, 2, 3, 4]]


def test_a_checkpoint_of_another_kind_or_queue_is_refused(site: Site) -> None:
    add(site, 2)
    taken = {"v": 1, "kind": "queues", "broker": "b", "lease": "l", "run": "r", "rotation": 1, "batches": {"q": 1}, "signs": {}}
    with pytest.raises(WrongOffset, match="belongs to a query on Penstock, and this is a query with mode=replay"):
        reader(site).latestOffset(taken, LIMIT)
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
    with pytest.raises(InvalidRequest, match="messages of a replay cannot be settled"):
        reader(site, columns=("delivery",))


def test_a_batch_has_at_most_so_many_rows_of_all_files() -> None:
    files = [File("a", 100, 0, 99), File("b", 10, 50, 59), File("c", 50, 1000, 1999)]
    assert cut(files, 0, 1999, 1000) == 2000
    assert cut(files, 0, 1999, 60) == 55
    assert cut(files, 0, 1999, 110) == 1000
    assert cut(files, 0, 1999, 1) == 1
    assert cut(files, 52, 1999, 1) == 53, "one number at least"
    assert cut(files, 1000, 1999, 20) == 1020


def test_the_log_names_the_field_that_a_selector_may_mean_once(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    add(site, 3)
    for text, count in (("priority > 4", 1), ("JMSPriority > 4", 0), ("", 0)):
        caplog.clear()
        assert (drained(reader(site, available_now=True, selector=text))[0] == [[0, 1, 2]]) == (text == "")
        lines = [record.getMessage() for record in caplog.records if "application property" in record.getMessage()]
        assert [line.endswith("for the message's priority write JMSPriority or amqp.priority") for line in lines] == [
            True
        ] * count
