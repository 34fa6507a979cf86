"""D4, S8, S9: after a restore of an older state the archive's table also has later rows of the original.

A read shows the recordings of the restored directory's own history: each row once, without rows of the abandoned lineage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from penstock.broker_core.archive.table.layout import table_url
from penstock.broker_core.cli import main
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.states import Outcome
from penstock.broker_core.errors import WrongOffset
from penstock.broker_core.flight_plane import FlightPlane
from penstock.connector.batch.reader import BatchReader
from penstock.connector.options import Options
from penstock.connector.schema import source_schema
from penstock.connector.stream.replay import ReplayReader
from penstock.connector.task import archive

from ..archive.rig import Died, Rig, sequences, table
from ..flight.helpers import numbered

COLUMNS = ("sequenceNumber", "outcome")
Rows = list[tuple[int, str]]


class Site:
    """Brokers that share one archive, each on a data directory of its own; `by_broker`: readers do not reach the archive."""

    def __init__(self, folder: Path, *, by_broker: bool) -> None:
        self.folder, self.archive = folder, str(folder / "tables")
        self._running: list[tuple[Rig, FlightPlane]] = []
        if by_broker:
            archive._unreachable |= {table_url(self.archive, queue) for queue in ("q", "new")}

    def open(self, name: str, *, restored: str | None = None) -> Rig:
        """Start a broker; `restored`: on that backup."""
        self.close()
        if restored is not None:
            assert main(["restore", "--from", str(self.folder / restored), "--data", str(self.folder / name)]) == 0
        rig = Rig(self.folder / name, archive=self.archive)
        rig.service.archive = self.archive
        self._running.append((rig, FlightPlane(rig.service, "127.0.0.1", 0)))
        return rig

    def backup(self, data: str, name: str) -> None:
        """Stop the running brokers, and back a directory up."""
        self.close()
        assert main(["backup", "--data", str(self.folder / data), "--to", str(self.folder / name)]) == 0

    def close(self) -> None:
        while self._running:
            rig, plane = self._running.pop()
            plane.close()
            rig.close()

    def _options(self, queue: str, **more: str) -> Options:
        ((_, plane),) = self._running
        return Options({"url": plane.url, "queue": queue, **more})

    def read(self, queue: str = "q") -> Rows:
        reader = BatchReader(self._options(queue, states="archived"), source_schema(COLUMNS))
        return rows_of(reader, reader.partitions())

    def replay(self, offset: dict[str, Any] | None = None, queue: str = "q") -> tuple[Rows, dict[str, Any]]:
        """Replay from an offset on until nothing more comes; return the rows, and the offset then."""
        reader = self.replayer(queue)
        offset, replayed = offset or reader.initialOffset(), []
        while (end := reader.latestOffset(offset, ReadMaxRows(2**62))) != offset:
            replayed += rows_of(reader, reader.partitions(offset, end))
            offset = end
        return sorted(replayed), offset

    def replayer(self, queue: str = "q") -> ReplayReader:
        return ReplayReader(self._options(queue, mode="replay", maxMessagesPerTrigger="7"), source_schema(COLUMNS))


def rows_of(reader: Any, parts: Any) -> Rows:
    return sorted(tuple(row.values()) for part in parts for batch in reader.read(part) for row in batch.to_pylist())


def rows(numbers: range, outcome: str = "accepted") -> Rows:
    return [(number, outcome) for number in numbers]


@pytest.fixture(params=[False, True], ids=["by the task", "by the broker"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    archive._unreachable.clear()
    running = Site(tmp_path, by_broker=request.param)
    yield running
    running.close()
    archive._unreachable.clear()


@pytest.fixture
def left(site: Site) -> Callable[[], Rig]:
    """A broker that records messages 0 to 9, is backed up, and continues with 10 to 29 in two recordings."""

    def make() -> Rig:
        rig = site.open("one")
        rig.service.submit(c.DeclareQueue("q"))
        rig.send("q", numbered(30))
        rig.settle("q", 10)
        rig.record()
        site.backup("one", "backup")
        rig = site.open("one")
        for _ in range(2):
            rig.settle("q", 10)
            rig.record()
        assert site.read() == rows(range(30))
        return rig

    return make


def settle_anew(rig: Rig) -> None:
    """Two recordings with the numbers of the original's later messages, with other outcomes and sizes."""
    for count in (5, 12):
        rig.settle("q", count, Outcome.REJECTED)
        rig.record()


def test_a_read_shows_what_the_restored_history_recorded(site: Site, left: Callable[[], Rig]) -> None:
    left()
    two = site.open("two", restored="backup")
    assert site.read() == site.replay()[0] == rows(range(10)), "no row that the original recorded later"
    settle_anew(two)
    anew = rows(range(10)) + rows(range(10, 27), "rejected")
    assert site.read() == site.replay()[0] == anew
    site.backup("two", "of two")
    two = site.open("two")
    two.settle("q", 3)
    two.record()
    assert site.read() == anew + rows(range(27, 30))

    three = site.open("three", restored="of two")
    assert site.read() == anew
    three.settle("q", 2, Outcome.REJECTED)
    three.record()
    three = site.open("three")
    assert site.read() == site.replay()[0] == anew + rows(range(27, 29), "rejected")
    deltalake.DeltaTable(table_url(site.archive, "q")).optimize.compact()
    assert site.read() == site.replay()[0] == anew + rows(range(27, 29), "rejected"), "rows of all lineages in one row group"
    all_rows = sequences(table(Path(site.archive)))
    assert len(all_rows) == 30 + 17 + 3 + 2, "the table has the rows of each lineage"


@pytest.mark.parametrize("step", ["write", "commit", "answer"])
def test_a_pass_that_had_begun_is_of_both(site: Site, step: str) -> None:
    """Rows of it are the same in both lineages, and in the table once."""

    def die(name: str) -> None:
        if name == step:
            raise Died

    rig = site.open("one")
    rig.service.submit(c.DeclareQueue("q"))
    rig.send("q", numbered(15))
    rig.settle("q", 5)
    rig.record()
    rig.step = die
    rig.settle("q", 5)
    rig.record(2)
    site.backup("one", "backup")
    rig = site.open("one")
    rig.record()
    rig.settle("q", 5)
    rig.record()
    two = site.open("two", restored="backup")
    assert site.read() == rows(range(10)), "the last five from the journal"
    two.record()
    assert site.read() == site.replay()[0] == rows(range(10))
    two.settle("q", 5, Outcome.REJECTED)
    two.record()
    assert site.read() == site.replay()[0] == rows(range(10)) + rows(range(10, 15), "rejected")
    assert sequences(table(Path(site.archive))) == [*range(10), *(number for number in range(10, 15) for _ in range(2))]


@pytest.fixture
def begun(site: Site) -> Rig:
    """A broker with a backup where a pass of five dead letters has begun, after one of five others, and has no commit yet."""

    def die(name: str) -> None:
        if name == "write":
            raise Died

    rig = site.open("one")
    rig.service.submit(c.DeclareQueue("q", options={"deadLetterQueue": "nowhere"}))
    rig.send("q", numbered(10))
    rig.settle("q", 5)
    rig.record()
    rig.step = die
    rig.settle("q", 5, Outcome.REJECTED)
    rig.record(2)
    site.backup("one", "backup")
    return site.open("one")


RECORDED = rows(range(5)) + rows(range(5, 10), "dead-lettered")


@pytest.mark.parametrize(("first", "last"), [(6, 7), (5, 9)], ids=["some", "all"])
def test_a_pass_that_the_original_has_changed_since_is_written_anew(site: Site, begun: Rig, first: int, last: int) -> None:
    """Rows that the original has redriven are missing from its commit of that number, if it exists."""
    begun.service.submit(c.Redrive("q", first=first, last=last))
    begun.record()
    begun.settle("q", last - first + 1)
    begun.record()
    two = site.open("two", restored="backup")
    assert site.read() == RECORDED
    two.record()
    assert site.read() == site.replay()[0] == RECORDED
    assert two.unrecorded() == 0
    two.send("q", numbered(2))
    two.settle("q", 2)
    two.record()
    site.backup("two", "of two")
    three = site.open("three", restored="of two")
    assert site.read() == site.replay()[0] == RECORDED + rows(range(10, 12))
    assert three.unrecorded() == 0


@pytest.mark.parametrize("last", [6, 9], ids=["some", "all"])
def test_a_pass_that_the_restored_one_has_changed_since_is_its_own(site: Site, begun: Rig, last: int) -> None:
    """Neither counts messages as recorded that only the other has committed, in any order."""
    two = site.open("two", restored="backup")
    two.service.submit(c.Redrive("q", first=5, last=last))
    two.record()
    mine = rows(range(5)) + rows(range(last + 1, 10), "dead-lettered")
    assert site.read() == mine
    site.open("one").record()
    assert site.read() == RECORDED
    two = site.open("two")
    two.settle("q", last - 4)
    two.record()
    assert site.read() == site.replay()[0] == sorted(mine + rows(range(5, last + 1)))


def test_the_original_shows_nothing_of_the_restored_one(site: Site, left: Callable[[], Rig]) -> None:
    left()
    settle_anew(site.open("two", restored="backup"))
    site.open("one")
    assert site.read() == site.replay()[0] == rows(range(30))


def test_a_directory_that_was_restored_and_never_started_is_no_lineage_of_its_own(site: Site, left: Callable[[], Rig]) -> None:
    left()
    assert main(["restore", "--from", str(site.folder / "backup"), "--data", str(site.folder / "two")]) == 0
    site.backup("two", "of two")
    settle_anew(site.open("three", restored="of two"))
    assert site.read() == rows(range(10)) + rows(range(10, 27), "rejected")


def test_without_an_archive_for_a_while(site: Site, left: Callable[[], Rig]) -> None:
    """The first start notes the valid part of the former lineage, with an archive or without."""
    left()
    first = site.open("two", restored="backup")
    noted = first.service.journal.lineage
    settle_anew(site.open("two"))
    assert site.read() == rows(range(10)) + rows(range(10, 27), "rejected")
    assert noted.parent is None


def test_a_queue_that_only_the_left_lineage_had(site: Site, left: Callable[[], Rig]) -> None:
    """Both declare a queue of one name after the backup: with one id, as different queues."""
    rig = left()
    rig.service.submit(c.DeclareQueue("new"))
    rig.send("new", numbered(4))
    rig.settle("new", 4)
    rig.record()
    replayed, offset = site.replay(queue="new")
    assert replayed == rows(range(4))
    two = site.open("two", restored="backup")
    two.service.submit(c.DeclareQueue("new"))
    two.send("new", numbered(3))
    assert site.read("new") == []
    two.settle("new", 2, Outcome.REJECTED)
    two.record()
    assert site.read("new") == site.replay(queue="new")[0] == rows(range(2), "rejected")
    with pytest.raises(WrongOffset, match="the queue was deleted"):
        site.replay(offset, "new")


def test_a_replay_goes_on_over_a_restore(site: Site, left: Callable[[], Rig]) -> None:
    """Batches stay the same; messages that the restored directory recorded since the backup come after them."""
    left()
    reader = site.replayer()
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2**62))
    second = reader.latestOffset(first, ReadMaxRows(2**62))
    assert rows_of(reader, reader.partitions(first, second)) == rows(range(7, 14))
    settle_anew(site.open("two", restored="backup"))
    again = site.replayer()
    assert rows_of(again, again.partitions(first, second)) == rows(range(7, 14))
    assert site.replay(second)[0] == sorted(rows(range(14, 30)) + rows(range(10, 27), "rejected"))
