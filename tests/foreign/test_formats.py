"""S11: spools of other versions: a readable one continues, another one is refused and left unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.connector.foreign import batches, checksums
from penstock.connector.foreign.reading import read_spooled
from penstock.connector.foreign.recognition import keys_of
from penstock.connector.foreign.spool import Spool
from penstock.connector.foreign.window import Window
from penstock.connector.offset import SpoolOffset

BEGIN = SpoolOffset("", 0)


def written(tmp_path: Path) -> tuple[Any, Any]:
    """Write a spool with batch 1; return the keys of its messages."""
    planner = Spool(str(tmp_path), Window(100), fail_on_data_loss=True)
    planner.enter(BEGIN)
    message = pa.array(
        [Message(properties=Properties(message_id=f"id-{n}"), data=[b"%d" % n]).encode() for n in range(3)], pa.binary()
    )
    queues = pa.array([0, 0, 0], pa.int8())
    keys = keys_of(message, queues.to_numpy(), ["q"])
    times = pa.array([0, 0, 0], pa.int64()).view(batches.TIMESTAMP)
    planner.put(1, batches.Rows(message, queues, times, ["q"]), (keys.high, keys.low), 2)
    return keys.high, keys.low


def test_a_second_version_reads_the_files_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe of the module `batches`."""
    keys = written(tmp_path)
    monkeypatch.setattr(batches, "VERSION", b"2")
    monkeypatch.setattr(batches, "KEYS_VERSION", b"2")
    monkeypatch.setattr(batches, "READABLE", (b"1", b"2"))
    monkeypatch.setattr(batches, "READABLE_KEYS", (b"1", b"2"))
    planner = Spool(str(tmp_path), Window(100), fail_on_data_loss=True)
    planner.enter(BEGIN)
    assert planner.window is not None
    assert planner.window.find(*keys).tolist() == [1, 1, 1]
    parts = planner.plan(0, 1, 2, 1)
    assert [row for part in parts for batch in read_spooled(part, ["body"], True) for row in batch.column(0).to_pylist()] == [
        b"0",
        b"1",
        b"2",
    ]


@pytest.mark.parametrize("window", [None, Window(100)])
def test_a_batch_of_another_version_is_refused_and_stays(
    tmp_path: Path, window: Window | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With keys in any form."""
    with monkeypatch.context() as patch:
        patch.setattr(batches, "VERSION", b"3")
        written(tmp_path)
    path = tmp_path / "batch-1.arrow"
    held = path.read_bytes()
    (tmp_path / "keys-1.arrow").write_bytes(b"in a form to come")
    planner = Spool(str(tmp_path), window, fail_on_data_loss=False)
    if window is None:
        planner.enter(BEGIN)
    with pytest.raises(
        errors.StorageError, match=r"batch-1\.arrow of the spool has version b'3', and this connector reads b'1': use a newer"
    ):
        planner.plan(0, 1, 10, 1) if window is None else planner.enter(BEGIN)
    assert path.read_bytes() == held


def test_checksums_of_another_version_are_refused_and_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checksums, "_VERSION", 2)
        written(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.arrow")}
    with pytest.raises(errors.StorageError, match=r"of the spool has checksums of version 2: use a newer connector"):
        Spool(str(tmp_path), Window(100), fail_on_data_loss=True).enter(BEGIN)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.arrow")} == before


def test_keys_of_another_version_are_refused_and_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(batches, "KEYS_VERSION", b"4")
        written(tmp_path)
    held = (tmp_path / "keys-1.arrow").read_bytes()
    with pytest.raises(errors.StorageError, match=r"keys-1\.arrow of the spool has version b'4'.*empty folder"):
        Spool(str(tmp_path), Window(100), fail_on_data_loss=True).enter(BEGIN)
    assert (tmp_path / "keys-1.arrow").read_bytes() == held


def test_keys_of_another_planner_beside_a_batch_are_made_anew(tmp_path: Path) -> None:
    mine = written(tmp_path)
    strange = np.array([7], np.uint64)
    with pa.OSFile(str(tmp_path / "keys-1.arrow"), "wb") as file:
        batches.write_keys(file, strange, strange, "a pair")
    for _ in range(2):
        planner = Spool(str(tmp_path), Window(100), fail_on_data_loss=True)
        planner.enter(BEGIN)
        assert planner.window is not None
        assert planner.window.find(*mine).tolist() == [1, 1, 1]
        assert planner.window.find(strange, strange).tolist() == [0]


@pytest.mark.parametrize("owner", ['{"v": 2}', '{"v": 1, "spool": "x", "committed": 0}', "not JSON", ""])
def test_a_spool_whose_owner_cannot_be_read_is_refused(tmp_path: Path, owner: str) -> None:
    """Also one of a development version, which had no checksum."""
    written(tmp_path)
    spool = json.loads((tmp_path / "owner.json").read_text())["spool"]
    (tmp_path / "owner.json").write_text(owner)
    with pytest.raises(errors.StorageError, match="is damaged, or not from Penstock: put back an intact copy"):
        Spool(str(tmp_path), None, fail_on_data_loss=False).enter(SpoolOffset(spool, 1))
    assert (tmp_path / "batch-1.arrow").exists()
