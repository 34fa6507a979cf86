"""S11: spools of other versions: an older one opens, a newer one is refused and left as it is."""

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
from penstock.connector.foreign import batches, spool
from penstock.connector.foreign.offset import SpoolOffset
from penstock.connector.foreign.reading import read_spooled
from penstock.connector.foreign.recognition import keys_of
from penstock.connector.foreign.spool import Spool
from penstock.connector.foreign.window import Window

SPOOL = "0123456789abcdef0123456789abcdef"
FIRST = SpoolOffset(SPOOL, 1)
FORMER = np.array([[1, 2, 3], [4, 5, 6]], np.uint64)  # keys of three messages, as the first version had them, whatever they say


def written(tmp_path: Path, version: str = "1") -> tuple[Any, Any]:
    """Write a spool in its first form, which had no pairs and other keys, with batch 1; return its keys as they are now."""
    (tmp_path / "owner.json").write_text(json.dumps({"v": 1, "spool": SPOOL, "committed": 0}))
    (tmp_path / "planner.json").write_text(json.dumps({"spool": SPOOL, "planner": "0123456789abcdef"}))
    message = pa.array(
        [Message(properties=Properties(message_id=f"id-{n}"), data=[b"%d" % n]).encode() for n in range(3)], pa.binary()
    )
    queues = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0], pa.int8()), pa.array(["q"]))
    times = pa.array([0, 0, 0], pa.int64()).view(batches.TIMESTAMP)
    schema = pa.schema(batches.FIELDS, metadata={"penstock.version": version, "penstock.rows": "[2, 1]"})
    with pa.ipc.new_file(str(tmp_path / "batch-1.arrow"), schema) as writer:
        for first, count in ((0, 2), (2, 1)):
            columns = [column.slice(first, count) for column in (message, queues, times)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    found = keys_of(message, queues.indices.to_numpy(), ["q"])
    former_keys(tmp_path / "keys-1.arrow")
    return found.one, found.other


def former_keys(path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a file of keys as the first version did."""
    schema = batches.KEYS.with_metadata(metadata)
    with pa.ipc.new_file(str(path), schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays([pa.array(column, pa.uint64()) for column in FORMER], schema=schema))


def test_a_spool_of_the_first_form_goes_on(tmp_path: Path) -> None:
    keys = written(tmp_path)
    planner = Spool(str(tmp_path), Window(100), fail_on_data_loss=True)
    planner.enter(SpoolOffset("", 0))
    assert planner.after(0) == 1
    assert planner.window is not None
    assert planner.window.find(*keys).tolist() == [1, 1, 1]
    parts = planner.plan(0, 1, 2, 1)
    assert [row for part in parts for batch in read_spooled(part, ["body"], True) for row in batch.column(0).to_pylist()] == [
        b"0",
        b"1",
        b"2",
    ]


@pytest.mark.parametrize("paired", [True, False])
def test_keys_of_the_first_version_are_made_anew_once_where_their_batch_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paired: bool
) -> None:
    """Also where batch and keys had a pair already."""
    keys = written(tmp_path)
    if paired:
        metadata = {"penstock.version": "1", "penstock.rows": "[3]", "penstock.pair": "0123456789abcdef"}
        with pa.ipc.open_file(str(tmp_path / "batch-1.arrow")) as reader:
            table = reader.read_all().replace_schema_metadata(metadata).combine_chunks()
        with pa.ipc.new_file(str(tmp_path / "batch-1.arrow"), table.schema) as writer:
            writer.write_table(table)
        former_keys(tmp_path / "keys-1.arrow", {"penstock.pair": "0123456789abcdef"})
    for _ in range(2):
        planner = Spool(str(tmp_path), Window(100), fail_on_data_loss=True)
        planner.enter(SpoolOffset("", 0))
        assert planner.window is not None
        assert planner.window.find(*keys).tolist() == [1, 1, 1]
        assert not planner.window.find(*FORMER).any()
        monkeypatch.delattr(spool, "keys_in", raising=False)  # the second one needs it no more


def test_keys_of_the_first_version_are_forgotten_once_where_their_batch_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Keys that took one message for another: what the broker sends again of such batches comes twice, and the log says so."""
    written(tmp_path)
    (tmp_path / "batch-1.arrow").unlink()
    (tmp_path / "owner.json").write_text(json.dumps({"v": 1, "spool": SPOOL, "committed": 1}))
    for _ in range(2):
        planner = Spool(str(tmp_path), Window(100), fail_on_data_loss=True)
        planner.enter(FIRST)
        assert planner.window is not None
        assert not len(planner.window)
        assert not (tmp_path / "keys-1.arrow").exists()
    (said,) = (record.getMessage() for record in caplog.records if "former version" in record.getMessage())
    assert "1 of its committed batches" in said


def test_keys_of_a_newer_version_are_refused_and_stay(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "batch-1.arrow").unlink()
    (tmp_path / "owner.json").write_text(json.dumps({"v": 1, "spool": SPOOL, "committed": 1}))
    former_keys(tmp_path / "keys-1.arrow", {"penstock.version": "4"})
    held = (tmp_path / "keys-1.arrow").read_bytes()
    with pytest.raises(
        errors.StorageError, match=r"keys-1\.arrow of the spool has version b'4'; this connector reads 3: use a newer"
    ):
        Spool(str(tmp_path), Window(100), fail_on_data_loss=True).enter(FIRST)
    assert (tmp_path / "keys-1.arrow").read_bytes() == held


def test_keys_of_a_batch_without_a_pair_are_made_where_they_are_gone(tmp_path: Path) -> None:
    keys = written(tmp_path)
    (tmp_path / "keys-1.arrow").unlink()
    planner = Spool(str(tmp_path), Window(100), fail_on_data_loss=True)
    planner.enter(SpoolOffset("", 0))
    assert planner.window is not None
    assert planner.window.find(*keys).tolist() == [1, 1, 1]


@pytest.mark.parametrize("window", [None, Window(100)])
def test_a_batch_of_a_newer_version_is_refused_and_stays(tmp_path: Path, window: Window | None) -> None:
    """Whatever the form of its keys is."""
    written(tmp_path, "3")
    path = tmp_path / "batch-1.arrow"
    held = path.read_bytes()
    (tmp_path / "keys-1.arrow").write_bytes(b"in a form to come")
    planner = Spool(str(tmp_path), window, fail_on_data_loss=False)
    if window is None:
        planner.enter(FIRST)
    with pytest.raises(
        errors.StorageError, match=r"batch-1\.arrow of the spool has version b'3'; this connector reads 2: use a newer"
    ):
        planner.plan(0, 1, 10, 1) if window is None else planner.enter(FIRST)
    assert path.read_bytes() == held


def test_keys_of_another_planner_beside_a_batch_of_the_first_form_are_made_anew(tmp_path: Path) -> None:
    mine = written(tmp_path)
    strange = np.array([7], np.uint64)
    with pa.OSFile(str(tmp_path / "keys-1.arrow"), "wb") as file:
        batches.write_keys(file, strange, strange, "a pair")
    for _ in range(2):
        planner = Spool(str(tmp_path), Window(100), fail_on_data_loss=True)
        planner.enter(SpoolOffset("", 0))
        assert planner.window is not None
        assert planner.window.find(*mine).tolist() == [1, 1, 1]
        assert planner.window.find(strange, strange).tolist() == [0]


@pytest.mark.parametrize("owner", ['{"v": 2, "spool": "x", "committed": 0}', '{"v": 1}', "not JSON", ""])
def test_a_spool_whose_owner_cannot_be_read_is_refused(tmp_path: Path, owner: str) -> None:
    written(tmp_path)
    (tmp_path / "owner.json").write_text(owner)
    with pytest.raises(errors.StorageError, match="is damaged, or not from Penstock: put back an intact copy"):
        Spool(str(tmp_path), None, fail_on_data_loss=False).enter(FIRST)
    assert (tmp_path / "batch-1.arrow").exists()
