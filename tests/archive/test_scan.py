"""S8: a reader opens the files and row groups that may have wanted rows, and returns exactly those rows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.archive.read import files, scan
from penstock.broker_core.archive.read.bounds import Bounds
from penstock.broker_core.archive.read.files import Table
from penstock.broker_core.archive.table import layout as table
from penstock.broker_core.errors import ArchiveUnreachable
from penstock.broker_core.messages import assembly
from penstock.broker_core.selectors import parse

from .tables import DAY_US, LINEAGE, archived, write

BEGIN = 18_000 * DAY_US
PER_PASS = 1000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Three passes of 1000 messages, a day each, in row groups of 100; in between a pass of another queue of that name."""
    folder = tmp_path_factory.mktemp("archive") / "orders"
    for number in (1, 2, 3):
        sequences = list(range((number - 1) * PER_PASS, number * PER_PASS))
        payload = {
            "body": [b"%d" % sequence for sequence in sequences],
            "subject": ["even" if sequence % 2 == 0 else None for sequence in sequences],
        }
        outcomes = ["rejected" if sequence % 10 == 0 else "accepted" for sequence in sequences]
        times = [BEGIN + sequence * DAY_US // PER_PASS for sequence in sequences]
        file = write(folder, number, archived(payload, sequences, times, outcomes), row_group_rows=100)
        encoded = {"message": [b"\0Sw\xa1\1y"] * 5}
        write(folder, number, archived(encoded, list(range(5)), [BEGIN] * 5), queue_id=8)
    return file


def of(**bounds: Any) -> Bounds:
    return Bounds(**{"queue_id": 7, "lineages": ((LINEAGE, 3),), **bounds})


def read(table: Table, bounds: Bounds, selector: str | None = None, parts: int = 1) -> list[int]:
    bodies: list[int] = []
    for file in files.version(table, bounds).files:
        for number in range(parts):
            opened = scan.opened(table.url, file.path)
            for batch in scan.batches(opened, scan.FileShare(file.path, number, parts), ["body"], bounds, selector):
                assert batch.schema.names in (["sequenceNumber", "body"], ["sequenceNumber", "body", "message"])
                bodies += [int(body) for body in batch.column("body").to_pylist()]
    return bodies


WANTED: list[tuple[dict[str, Any], range | list[int]]] = [
    ({}, range(3000)),
    ({"lineages": ((LINEAGE, 2),)}, range(2000)),
    ({"after": 1}, range(1000, 3000)),
    ({"after": 1, "lineages": ((LINEAGE, 2),)}, range(1000, 2000)),
    ({"first": 150, "last": 149}, []),
    ({"first": 950, "last": 2001}, range(950, 2002)),
    ({"since": BEGIN + DAY_US, "until": BEGIN + 2 * DAY_US}, range(1000, 2000)),
    ({"since": BEGIN + DAY_US + 1, "until": BEGIN + 2 * DAY_US + 1}, range(1001, 2001)),
    ({"settled_since": BEGIN + DAY_US + 6, "settled_until": BEGIN + 2 * DAY_US + 6}, range(1001, 2001)),
    ({"outcome": "rejected"}, range(0, 3000, 10)),
    ({"outcome": "expired"}, []),
    ({"lineages": (("another", 3),)}, []),
    ({"lineages": ((LINEAGE, 2), ("another", 3))}, range(2000)),
    ({"lineages": (("another", 1), (LINEAGE, 2)), "first": 1500}, range(1500, 2000)),
    ({"lineages": ((LINEAGE, 1), ("another", 2), (LINEAGE, 3)), "after": 2}, range(2000, 3000)),
    ({"since": 2**60}, []),
    ({"until": 2**60}, range(3000)),
]


@pytest.mark.parametrize("parts", [1, 3, 20])
@pytest.mark.parametrize(("bounds", "wanted"), WANTED)
def test_exactly_the_rows_within_the_bounds(recorded: Table, bounds: dict[str, Any], wanted: Any, parts: int) -> None:
    assert read(recorded, of(**bounds), parts=parts) == list(wanted)


def test_a_version_is_whole_if_all_of_its_rows_are_wanted(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / "orders"
        whole = write(folder, number, archived({"body": [b"x"] * 5}, list(range(5)), [BEGIN] * 5))
    assert files.version(whole, of()).is_whole
    for part in ({"after": 1}, {"lineages": ((LINEAGE, 1),)}, {"first": 1}, {"until": BEGIN}, {"outcome": "rejected"}):
        assert not files.version(whole, of(**part)).is_whole, part
    write(folder, 2, archived({"body": [b"y"]}, [0], [BEGIN]), queue_id=8)
    assert not files.version(whole, of()).is_whole


def test_a_selector_is_evaluated_on_rows_of_either_form(recorded: Table) -> None:
    assert read(recorded, of(first=10, last=20), "JMSType = 'even'") == list(range(10, 21, 2))
    another_queue = of(queue_id=8)
    (file, *_) = files.version(recorded, another_queue).files
    batches = list(
        scan.batches(scan.opened(recorded.url, file.path), scan.FileShare(file.path), ["body"], another_queue, "JMSType IS NULL")
    )
    assert sum(batch.num_rows for batch in batches) == 5
    assert set(parse("JMSType IS NULL AND colour = 'red'").columns()) == {"subject", "properties", "message"}


def opened_files(table: Table, **bounds: Any) -> int:
    return len(files.version(table, of(**bounds)).files)


def test_files_are_left_out_by_what_the_log_says_of_them(recorded: Table) -> None:
    assert opened_files(recorded) == 3
    assert opened_files(recorded, lineages=((LINEAGE, 1),)) == 1
    assert opened_files(recorded, first=1000, last=1999) == 1
    assert opened_files(recorded, since=BEGIN + 2 * DAY_US) == 1
    assert opened_files(recorded, settled_until=BEGIN + DAY_US) == 1
    assert opened_files(recorded, queue_id=9) == 0


def test_row_groups_are_left_out_by_their_statistics(recorded: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    read_groups: list[tuple[int, list[str]]] = []
    real = scan._read
    monkeypatch.setattr(scan, "_read", lambda file, group, names: read_groups.append((group, names)) or real(file, group, names))
    assert read(recorded, of(first=1250, last=1449)) == list(range(1250, 1450))
    assert [group for group, _ in read_groups] == [2, 3, 4]
    columns = [names for _, names in read_groups]
    assert columns[1] == ["sequenceNumber", "body"], "nothing is read only to be compared where all rows are wanted"


def test_columns_without_a_value_are_not_read_and_come_as_nulls(recorded: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    read_names: set[str] = set()
    real = scan._read
    monkeypatch.setattr(scan, "_read", lambda file, group, names: read_names.update(names) or real(file, group, names))
    wanted = ["body", "subject", "correlationId", "error", "outcome"]
    (file, *_) = files.version(recorded, of(last=99)).files
    batches = scan.batches(scan.opened(recorded.url, file.path), scan.FileShare(file.path), wanted, of(last=99))
    rows = pa.Table.from_batches(table.rows_of_read(wanted, batch, "orders") for batch in batches)
    assert read_names == {"sequenceNumber", "body", "subject", "outcome"}
    assert rows.column("subject").to_pylist() == ["even", None] * 50
    assert rows.column("correlationId").to_pylist() == rows.column("error").to_pylist() == [None] * 100


def test_exact_bytes_are_read_without_the_decoded_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of a row that Spark sent is encoded from its columns."""
    read_names: list[set[str]] = []
    real = scan._read
    monkeypatch.setattr(scan, "_read", lambda file, group, names: read_names.append(set(names)) or real(file, group, names))
    sent = Message(properties=Properties(message_id="m", subject="s"), application_properties={"n": 1}, data=[b"x"]).encode()
    for number, payload in enumerate(({"message": [sent]}, {"body": [b"x"], "messageId": ["m"], "subject": ["s"]}), 1):
        written = write(tmp_path / "orders", number, archived(payload, [number], [BEGIN]))
    messages = []
    for file in files.version(written, of()).files:
        for batch in scan.batches(scan.opened(written.url, file.path), file.share(), ["message"], of()):
            rows = assembly.converted(["message"], table.rows_of_read(["message"], batch, "orders"), "orders", {})
            messages += rows.column("message").to_pylist()
    assert messages[0] == sent
    assert b"Su\xa0\x01x" in messages[1]
    columnar = {"sequenceNumber", "body", "messageId", "subject", "properties"}  # a map has no statistics
    assert read_names == [{"sequenceNumber", "body", "envelope"}, columnar]


def test_a_batch_has_so_many_bytes_at_most(recorded: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def lengths() -> set[int]:
        (file, *_) = files.version(recorded, of(last=999)).files
        opened = scan.opened(recorded.url, file.path)
        return {batch.num_rows for batch in scan.batches(opened, scan.FileShare(file.path), ["body"], of())}

    assert lengths() == {100}, "a row group is a batch"
    monkeypatch.setattr(scan, "BATCH_BYTES", 200)  # of bodies of three characters, and numbers
    assert max(lengths()) < 50


def test_a_compacted_table_gives_the_same_rows(recorded: Table, tmp_path: Path) -> None:
    """Delta-rs writes other Arrow types, and rows of several passes and queues into one file."""
    copy = recorded._replace(url=str(shutil.copytree(recorded.url, tmp_path / "copy")))
    table = deltalake.DeltaTable(copy.url)
    table.optimize.compact()
    table = deltalake.DeltaTable(copy.url)
    table.optimize.compact(target_size=1 << 30)
    for bounds, wanted in WANTED:
        assert sorted(read(copy, of(**bounds))) == list(wanted)


def test_another_table_at_that_place_is_refused(recorded: Table, tmp_path: Path) -> None:
    with pytest.raises(ArchiveUnreachable, match="not to the broker another"):
        files.version(recorded._replace(broker="another"), of())
    with pytest.raises(ArchiveUnreachable, match="older copy"):
        files.version(recorded._replace(version=recorded.version + 9), of())
    with pytest.raises(ArchiveUnreachable, match="cannot be read here"):
        files.version(recorded._replace(url=str(tmp_path / "nowhere")), of())
    (file, *_) = files.version(recorded, of()).files
    with pytest.raises(ArchiveUnreachable, match=file.path):
        scan.opened(str(tmp_path), file.path)


@pytest.mark.parametrize("path", ["a.parquet", "day=2020-01-01/part-1.parquet"])
def test_a_path_below_the_table(path: str) -> None:
    assert scan.is_below(path)


@pytest.mark.parametrize("path", ["/etc/a.parquet", "../a.parquet", "a/../../b.parquet", "a//b.parquet", "a.json", "./a.parquet"])
def test_a_path_that_leads_elsewhere(path: str) -> None:
    assert not scan.is_below(path)


def test_tasks_have_about_as_many_rows() -> None:
    listed = [files.File("large", 1000, 0, 999), *(files.File(f"small-{n}", 30, 0, 1) for n in range(10))]
    tasks = files.tasks(listed, 100)
    assert [[share.path for share in task] for task in tasks][:10] == [["large"]] * 10
    assert [len(task) for task in tasks[10:]] == [3, 3, 3, 1]
    assert {share.parts for task in tasks[:10] for share in task} == {10}
    assert len(files.tasks(listed, 10**6, 4)) == 5
    assert files.tasks([], 10) == []
    groups = [number for part in range(7) for number in scan.FileShare("f", part, 7).of(5)]
    assert groups == list(range(5))


def test_a_deletion_vector_may_be_shorter_than_its_file() -> None:
    """Delta's vectors end with the last deleted row; and those of delta-rs are parts of one list."""
    selection = pa.array([True] * 3 + [True, False, True, False]).slice(3)
    apply = scan.Deletions.of(7, selection).applied()
    rows = pa.record_batch({"n": pa.array(range(4))})
    assert apply(0, rows).column(0).to_pylist() == [0, 2]
    assert apply(3, rows).column(0).to_pylist() == [1, 2, 3]
    assert apply(9, rows).column(0).to_pylist() == [0, 1, 2, 3]
