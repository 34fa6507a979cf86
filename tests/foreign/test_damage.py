"""Files of a spool that something has changed: nothing of them is delivered, and the error names the file and what to do."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.connector.foreign import batches, checksums
from penstock.connector.foreign.checksums import BLOCK, Checked, DamagedFile, Summing
from penstock.connector.foreign.consumer import ForeignConsumer
from penstock.connector.foreign.partition import SpoolPartition
from penstock.connector.foreign.reading import read_spooled
from penstock.connector.foreign.recognition import keys_of
from penstock.connector.foreign.spool import Spool
from penstock.connector.foreign.window import Window
from penstock.connector.offset import SpoolOffset

from ..s3 import BUCKET, S3Server, environment
from .helpers import INITIAL, Queue, bodies, next_batch

BEGIN = SpoolOffset("", 0)


def rows_of(first: int, count: int, filler: bytes = b"") -> batches.Rows:
    """Messages that tell their number and the amount 100."""
    message = pa.array(
        [
            Message(data=[b"n=%d amount=100" % n + filler], properties=Properties(message_id=f"id-{n}")).encode()
            for n in range(first, first + count)
        ],
        pa.binary(),
    )
    times = pa.array([0] * count, pa.int64()).view(batches.TIMESTAMP)
    return batches.Rows(message, pa.array([0] * count, pa.int8()), times, ["q"])


def put(made: Spool, batch: int, rows: batches.Rows, most_rows: int = 1000) -> None:
    keys = keys_of(rows.message, np.zeros(len(rows.message), np.int8), ["q"])
    made.put(batch, rows, (keys.high, keys.low), most_rows)


def entered(url: Path | str, offset: SpoolOffset = BEGIN, *, fails: bool = True, window: bool = True) -> Spool:
    made = Spool(str(url), Window(1000) if window else None, fail_on_data_loss=fails)
    made.enter(offset)
    return made


def planned(made: Spool, start: int, end: int, least: int = 1) -> list[SpoolPartition]:
    """Partitions between two offsets, as Spark has them: through the checkpoint's text."""
    offset = json.loads(json.dumps(SpoolOffset(made.id, end, made.manifests(start, end)).to_json()))
    return made.plan(start, end, 1000, least, {int(batch): text for batch, text in offset["manifests"].items()})


def delivered(parts: list[SpoolPartition], *, fails: bool = True) -> list[bytes]:
    return [body for part in parts for rows in read_spooled(part, ["body"], fails) for body in rows.column(0).to_pylist()]


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_every_flipped_bit_of_a_batch_is_noticed(tmp_path: Path) -> None:
    """Bits of every part of the file: Arrow's mark, schema, dictionary, messages, padding, footer and checksums."""
    made = entered(tmp_path)
    put(made, 1, rows_of(0, 50), 20)
    parts = planned(made, 0, 1)
    path = tmp_path / "batch-1.arrow"
    whole, size = path.read_bytes(), path.stat().st_size
    expected = [b"n=%d amount=100" % n for n in range(50)]
    assert delivered(parts) == expected
    dice = random.Random(5)
    bits = {*range(64), *range(8 * size - 96, 8 * size), *(dice.randrange(8 * size) for _ in range(400))}
    for bit in sorted(bits):
        flip(path, bit)
        (part,) = parts
        with pytest.raises(errors.DataLoss, match=r"batch-1\.arrow of the spool .* is damaged: .*Nothing of it was delivered"):
            next(read_spooled(part, ["body"], True))  # before the first row
        path.write_bytes(whole)
    assert delivered(parts) == expected


def replaced(path: Path) -> None:
    content = path.read_bytes()
    assert b"n=3 amount=100" in content
    path.write_bytes(content.replace(b"n=3 amount=100", b"n=3 amount=900"))


def of_another_batch(path: Path) -> None:
    path.write_bytes(path.with_name("batch-2.arrow").read_bytes())


def of_another_query(path: Path) -> None:
    spool = entered(path.parent / "other")
    put(spool, 1, rows_of(0, 50))
    path.write_bytes((path.parent / "other" / "batch-1.arrow").read_bytes())


def of_another_attempt(path: Path) -> None:
    """Put the same batch of the same spool, written again, into the file's place."""
    made = Spool(str(path.parent), None, fail_on_data_loss=True)
    made.enter(BEGIN)
    made.put(1, rows_of(0, 50), None, 1000)


HARM: dict[str, Callable[[Path], Any]] = {
    "is damaged: octets 0 to": replaced,
    "its end, which has the checksums, is missing": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "it has 0 octets": lambda path: path.write_bytes(b""),
    "is missing or changed": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "checksums are changed": lambda path: path.write_bytes(path.read_bytes().replace(b'"crc32"', b'"crc31"')),
    "it is batch-2.arrow": of_another_batch,
    "it is batch-1.arrow of spool|another file": of_another_query,
    "another file than the one that the checkpoint names": of_another_attempt,
    "is not in the spool": lambda path: path.unlink(),
}


@pytest.mark.parametrize("says", HARM)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_changed_file_delivers_nothing(tmp_path: Path, says: str, restarted: bool) -> None:
    made = entered(tmp_path, window=False)
    put(made, 1, rows_of(0, 50))
    put(made, 2, rows_of(50, 50))
    offset = SpoolOffset(made.id, 2, made.manifests(0, 2))
    plan = planned(made, 0, 2)
    HARM[says](tmp_path / "batch-1.arrow")
    for fails in (True, False):
        again = entered(tmp_path, BEGIN, fails=fails, window=False)
        again_planned = lambda again=again: again.plan(0, 2, 1000, 1, dict(offset.manifests))  # noqa: E731
        if fails:
            with pytest.raises(errors.DataLoss, match=says) as refusal:
                delivered(again_planned() if restarted else plan)
            if says != "is not in the spool":
                assert "Nothing of it was delivered" in str(refusal.value)
                assert "Put back an intact copy of the file" in str(refusal.value)
        else:
            payloads = delivered(again_planned() if restarted else plan, fails=False)
            assert payloads == [b"n=%d amount=100" % n for n in range(50, 100)]


@pytest.mark.parametrize("says", [says for says, harm in HARM.items() if harm not in (replaced, of_another_attempt)])
def test_a_planner_names_no_file_that_was_changed_before_it_started(tmp_path: Path, says: str) -> None:
    made = entered(tmp_path)
    put(made, 1, rows_of(0, 50))
    put(made, 2, rows_of(50, 50))
    HARM[says](tmp_path / "batch-1.arrow")
    again = entered(tmp_path)
    if says == "is not in the spool":
        assert again.after(0) == 2  # no offset has named it
    else:
        with pytest.raises(errors.DataLoss, match=says):
            again.manifests(0, 2)


def test_a_file_that_was_changed_before_the_planner_started_is_noticed(tmp_path: Path) -> None:
    put(entered(tmp_path), 1, rows_of(0, 50))
    replaced(tmp_path / "batch-1.arrow")
    with pytest.raises(errors.DataLoss, match="octets 0 to"):
        delivered(planned(entered(tmp_path), 0, 1))


def test_a_task_reads_and_checks_its_part_of_a_large_file_alone(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also of one in an object store. Damage elsewhere is the other task's to notice."""
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)
    made = entered(f"s3a://{BUCKET}/large")
    put(made, 1, rows_of(0, 60, b"x" * 200_000), 10)
    parts = planned(made, 0, 1, least=6)
    read = 0

    def counted(self: Checked, first: int, count: int, real: Any = Checked._read) -> Any:
        nonlocal read
        read += count
        return real(self, first, count)

    monkeypatch.setattr(Checked, "_read", counted)
    for number, part in enumerate(parts):
        read = 0
        assert [body[:20] for body in delivered([part])] == [
            (b"n=%d amount=100" % n).ljust(20, b"x") for n in range(number * 10, number * 10 + 10)
        ]
        assert read < 2_000_000 + 5 * BLOCK  # of 12 MB


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7])
def test_a_file_of_any_size_is_read_as_it_was_written(tmp_path: Path, size: int) -> None:
    content = random.Random(size).randbytes(size)
    path = tmp_path / "file"

    def write(file: Summing) -> None:
        for first in range(0, size, 300_007):
            file.write(pa.py_buffer(content[first : first + 300_007]))
        assert file.tell() == size

    with pa.OSFile(str(path), "wb") as out:
        manifest = checksums.written(out, "s", "file", write)
    with pa.memory_map(str(path)) as file:
        checked = Checked(file, "file", spool="s", manifest=manifest)
        assert checked.read() == content
        for first in (0, size // 3, max(0, size - 5)):
            checked.seek(first)
            assert checked.read(BLOCK) == content[first : first + BLOCK]
        assert checked.seek(-min(3, size), 2) == size - min(3, size)
        assert checked.read(100) == content[max(0, size - 3) :]
    with pa.OSFile(str(path)) as file, pytest.raises(DamagedFile, match="file of spool s"):
        Checked(file, "file", spool="t")


# --- Keys ------------------------------------------------------------------------------------------------------------------


def known(made: Spool, first: int, count: int) -> bool:
    keys = keys_of(rows_of(first, count).message, np.zeros(count, np.int8), ["q"])
    assert made.window is not None
    return bool(made.window.find(keys.high, keys.low).all())


@pytest.mark.parametrize("harm", ["gone", "flipped", "cut off", "of another batch", "of another query"])
@pytest.mark.parametrize("committed", [False, True])
def test_keys_are_made_again_or_missed(tmp_path: Path, harm: str, committed: bool) -> None:
    """While the batch is there they are made again. After that the broker's repetitions could not be recognised."""
    made = entered(tmp_path)
    put(made, 1, rows_of(0, 50))
    put(made, 2, rows_of(50, 50))
    if committed:
        made.settle(2)
    path = tmp_path / "keys-1.arrow"
    if harm == "gone":
        path.unlink()
    elif harm == "flipped":
        flip(path, 8 * (path.stat().st_size // 2))
    elif harm == "cut off":
        path.write_bytes(path.read_bytes()[:-100])
    elif harm == "of another batch":
        path.write_bytes((tmp_path / "keys-2.arrow").read_bytes())
    else:
        put(entered(tmp_path / "other"), 1, rows_of(0, 50))
        path.write_bytes((tmp_path / "other" / "keys-1.arrow").read_bytes())
    offset = SpoolOffset(made.id, 2 if committed else 0)
    if not committed:
        assert known(entered(tmp_path), 0, 100)
        assert known(entered(tmp_path), 0, 100)
        return
    for _ in range(2):
        with pytest.raises(errors.DataLoss, match=r"keys-1\.arrow of the spool .*Nothing was delivered.*may come twice"):
            entered(tmp_path, offset)
    goes_on = entered(tmp_path, offset, fails=False)
    assert known(goes_on, 50, 50)
    put(goes_on, 3, rows_of(100, 10))
    goes_on.settle(3)
    assert known(entered(tmp_path, SpoolOffset(made.id, 3)), 50, 60)  # it misses the others no longer


def test_merged_keys_are_missed_too_and_files_beyond_the_window_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connector.foreign.key_files.MOST_FILES", 4)
    made = Spool(str(tmp_path), Window(40), fail_on_data_loss=True)
    made.enter(BEGIN)
    for batch in range(1, 31):
        put(made, batch, rows_of(10 * batch, 10))
        made.settle(batch)
        Spool(str(tmp_path), Window(40), fail_on_data_loss=True).enter(SpoolOffset(made.id, batch))
        made = Spool(str(tmp_path), Window(40), fail_on_data_loss=True)
        made.enter(SpoolOffset(made.identity(), batch))
    merged = next(path for path in sorted(tmp_path.glob("keys-*-*.arrow")))
    merged.unlink()
    with pytest.raises(errors.DataLoss, match=f"{merged.name} of the spool .* is missing"):
        entered(tmp_path, SpoolOffset(made.id, 30))


def test_a_query_that_recognised_nothing_for_a_while_misses_no_keys(tmp_path: Path) -> None:
    made = entered(tmp_path)
    put(made, 1, rows_of(0, 50))
    made.settle(1)
    entered(tmp_path, SpoolOffset(made.id, 1), window=False)
    assert not list(tmp_path.glob("keys-*"))
    entered(tmp_path, SpoolOffset(made.id, 1))


# --- Notes -----------------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_of_the_owner_s_note_is_noticed(tmp_path: Path) -> None:
    made = entered(tmp_path)
    put(made, 1, rows_of(0, 50))
    made.settle(1)
    offset = SpoolOffset(made.id, 1)
    path = tmp_path / "owner.json"
    whole = path.read_bytes()
    for bit in range(8 * len(whole)):
        flip(path, bit)
        with pytest.raises(errors.StorageError, match=r"owner\.json of the spool .* is damaged"):
            entered(tmp_path, offset)
        path.write_bytes(whole)
    entered(tmp_path, offset)


def test_a_damaged_note_of_the_planner_is_named(tmp_path: Path) -> None:
    made = entered(tmp_path)
    (tmp_path / "planner.json").write_bytes(b"\x00" * 10)
    with pytest.raises(errors.StorageError, match=r"planner\.json of the spool .* is damaged: start the query again"):
        put(made, 1, rows_of(0, 50))
    put(entered(tmp_path), 1, rows_of(0, 50))


# --- A stream --------------------------------------------------------------------------------------------------------------


def test_a_stream_stops_at_a_changed_file_and_goes_on_with_an_intact_copy(queue: Queue) -> None:
    queue.send(0, 100)
    reader = queue.reader(maxMessagesPerTrigger="100")
    end = next_batch(reader, INITIAL)
    assert isinstance(reader._kept, ForeignConsumer)
    assert list(end["manifests"]) == ["1"]
    path = queue.spool / "batch-1.arrow"
    whole = path.read_bytes()
    flip(path, 4000)
    for stream in (reader, queue.reader()):
        with pytest.raises(errors.DataLoss, match=r"batch-1\.arrow"):
            bodies(stream, INITIAL, end)
    path.write_bytes(whole)
    after = queue.reader()
    assert bodies(after, INITIAL, end) == list(range(len(bodies(after, INITIAL, end))))
