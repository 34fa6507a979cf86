"""U7: `penstock check` reads everything, and finds one flipped byte in each kind of file, by name and offset."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from penstock import Broker
from penstock.broker_core import amqp
from penstock.broker_core.client.flight import Client
from penstock.broker_core.copy import checking
from penstock.broker_core.copy.checking import CheckResult
from penstock.broker_core.copy.readonly import ReadOnlyDirectory
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome
from penstock.broker_core.journal.disk import PREALLOCATE_BYTES
from penstock.broker_core.journal.segments import HEADER_BYTES
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

from ..flight.helpers import numbered, send

MIB = 1 << 20


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with several segments, two snapshots, users, a copy; killed, then stopped."""
    folder = tmp_path_factory.mktemp("good")
    options = {"segment_bytes": MIB, "snapshot_every_bytes": MIB, "copy_url": str(folder / "store")}
    with Broker(folder / "data", **options) as broker:
        broker.declare("q")
        with Client(broker.url) as client:
            for start in range(0, 8000, 500):
                send(client, "q", numbered(500, 501, start))
        broker.kill()
        broker.start()
        with Client(broker.url) as client:
            send(client, "q", numbered(500, 501))
        broker.stop()
        broker.start()
    (folder / "data" / "users.json").write_text('{"version": 1, "users": {}, "permissions": []}')
    return folder / "data"


def check(directory: Path) -> CheckResult:
    disk = ReadOnlyDirectory(directory)
    try:
        return checking.check(disk, live=disk.live)
    finally:
        disk.close()


def test_messages_are_counted_by_state(tmp_path: Path) -> None:
    """U7: also messages that have left memory, delayed and deferred messages."""
    service = BrokerService(Settings(data=tmp_path))
    service.submit(c.DeclareQueue("q"))
    service.submit(c.Enqueue("q", BLOCK_ROWS, 1), c.Enqueue("q", 10, 1))
    link = service.submit(c.Subscribe("q"))
    service.submit(c.Settle("q", link, service.submit(c.Acquire("q", link, BLOCK_ROWS)).rows, Outcome.ACCEPTED))
    assert service.pack_blocks() == 1
    service.submit(c.Acquire("q", link, 5), c.Release("q", link, RowSet.range(BLOCK_ROWS, BLOCK_ROWS + 2), Cause.DEFERRED))
    later = amqp.Message(message_annotations={"x-opt-delivery-delay": 3_600_000}).encode()
    attributes = service.attributes("q", pa.record_batch({"encodedAnnotations": [later]}))
    service.submit(c.Enqueue("q", 1, 1, attributes=attributes))
    service.close()
    assert check(tmp_path).messages == {
        "delayed": 1,
        "available": 5,
        "acquired": 3,
        "deferred": 2,
        "archived": BLOCK_ROWS,
    }


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x40
    path.write_bytes(data)


def test_a_good_directory_is_good(good: Path) -> None:
    before = {path.name: path.read_bytes() for path in good.iterdir() if path.is_file()}
    result = check(good)
    assert (result.damage, result.remarks) == ([], [])
    assert result.segments >= 4
    assert result.snapshots == 2
    assert result.messages["available"] == 8500
    assert {path.name: path.read_bytes() for path in good.iterdir() if path.is_file()} == before


def test_a_directory_of_a_running_broker_is_good(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", segment_bytes=MIB) as broker:
        broker.declare("q")
        with Client(broker.url) as client:
            send(client, "q", numbered(3000, 500))
            assert ReadOnlyDirectory(tmp_path / "data").live
            result = check(tmp_path / "data")
            assert result.damage == []
            assert result.messages["available"] == 3000
        broker.kill()
        assert check(tmp_path / "data").damage == []


KINDS: dict[str, Callable[[Path], Path]] = {
    "a segment": lambda folder: sorted(folder.glob("*.seg"))[1],
    "the last segment": lambda folder: sorted(folder.glob("*.seg"))[-1],
    "the latest snapshot": lambda folder: sorted(folder.glob("*.snap"))[-1],
    "the snapshot before": lambda folder: sorted(folder.glob("*.snap"))[0],
    "the manifest": lambda folder: folder / "manifest",
    "the id": lambda folder: folder / "id",
    "the users": lambda folder: folder / "users.json",
    "the marker of copies": lambda folder: folder / "copy.json",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_is_found(kind: str, good: Path, tmp_path: Path) -> None:
    path = KINDS[kind](good)
    size, random = len(path.read_bytes().rstrip(b"\0")), Random(kind)
    offsets = {0, size - 1, *(random.randrange(size) for _ in range(3 if size > MIB else 12))}
    if kind in ("the users", "the marker of copies"):
        offsets = {0}  # JSON without a checksum: bytes that break its form
    for offset in sorted(offsets):
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        shutil.copytree(good, tmp_path / "data")
        flip(tmp_path / "data" / path.name, offset)
        result = check(tmp_path / "data")
        assert result.damage, offset
        assert any(path.name in text and ", offset " in text for text in result.damage) or kind == "the id", (
            offset,
            result.damage,
        )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "the last segment"])
def test_a_truncated_file_is_found(kind: str, good: Path, tmp_path: Path) -> None:
    """In its header, in its middle, and one byte short of its content. The copy has hard links to the other files."""
    shutil.copytree(good, tmp_path / "data", copy_function=os.link)
    path = tmp_path / "data" / KINDS[kind](good).name
    content = path.read_bytes()
    path.unlink()
    for length in sorted({0, 1, 20, 48, 103, 104, 108, 120, 200, len(content) // 2, len(content.rstrip(b"\0\n")) - 1}):
        if length < len(content.rstrip(b"\0\n")):
            path.write_bytes(content[:length])
            assert check(tmp_path / "data").damage, length


def test_the_offset_is_that_of_the_damaged_record(good: Path, tmp_path: Path) -> None:
    shutil.copytree(good, tmp_path / "data")
    path = sorted((tmp_path / "data").glob("*.seg"))[1]
    flip(path, 500_000)
    (text,) = check(tmp_path / "data").damage
    assert text.startswith(f"{path}, offset ")
    offset = int(text.partition("offset ")[2].partition(":")[0])
    assert HEADER_BYTES < offset <= 500_000 < offset + 500 * 600


def test_a_missing_segment_and_a_torn_note(good: Path, tmp_path: Path) -> None:
    shutil.copytree(good, tmp_path / "data")
    flip(tmp_path / "data" / "synced", 10)
    result = check(tmp_path / "data")
    assert (len(result.damage), len(result.remarks)) == (0, 1)
    missing = sorted((tmp_path / "data").glob("*.seg"))[2]
    missing.unlink()
    assert any(missing.name in text for text in check(tmp_path / "data").damage)


def test_a_torn_tail_is_a_remark(good: Path, tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        broker.declare("q")
        with Client(broker.url) as client:
            send(client, "q", numbered(100, 500))
        broker.kill()
    path = sorted((tmp_path / "data").glob("*.seg"))[-1]
    data = path.read_bytes().rstrip(b"\0")
    (tmp_path / "data" / "synced").unlink()
    path.write_bytes(data[:-100] + bytes(PREALLOCATE_BYTES))
    result = check(tmp_path / "data")
    assert result.damage == []
    assert "torn write" in result.remarks[0]
