"""S11: files of keys stay few, however many batches there were, and no crash loses a key or has one twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.connector.foreign import batches, checksums, key_files
from penstock.connector.foreign.key_files import KeyFile, Span, outermost, spans_of, to_merge
from penstock.connector.foreign.spool import Spool
from penstock.connector.foreign.spool_files import SpoolFiles
from penstock.connector.foreign.window import Window
from penstock.connector.offset import SpoolOffset

from ..s3 import BUCKET, S3Server, environment

BEGIN = SpoolOffset("", 0)
ROWS = batches.Rows(
    pa.array([b"x"], pa.binary()), pa.array([0], pa.int8()), pa.array([0], pa.int64()).view(batches.TIMESTAMP), ["q"]
)


def key(batch: int) -> tuple[Any, Any]:
    """The key of a batch's only message."""
    return np.array([batch * 0x9E3779B97F4A7C15 % 2**64], np.uint64), np.array([batch], np.uint64)


def planner(url: Path | str, window: int = 1_000_000) -> Spool:
    return Spool(str(url), Window(window), fail_on_data_loss=True)


def entered(url: Path | str, committed: int, window: int = 1_000_000) -> Spool:
    """Start a planner whose checkpoint has so many committed batches."""
    made = planner(url, window)
    made.enter(SpoolOffset(made.identity(), committed) if committed else BEGIN)
    return made


def put(made: Spool, batch: int) -> None:
    made.put(batch, ROWS, key(batch), 100)


def grown(made: Spool, first: int, last: int) -> None:
    """Write and commit batches of one message each, the last one included."""
    for batch in range(first, last + 1):
        put(made, batch)
        made.settle(batch)


def known(made: Spool, first: int, last: int) -> None:
    """Assert that the keys of these batches are known, each once, and no others."""
    assert made.window is not None
    for batch in range(first, last + 1):
        assert made.window.find(*key(batch)).tolist() == [batch]
    assert len(made.window) == last - first + 1


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("keys"))


def test_many_batches_of_one_message_leave_few_files(tmp_path: Path) -> None:
    """Within a bound that docs/foreign.md names; and a starting planner recognises all of the messages."""
    made = entered(tmp_path, 0)
    for last in range(50, 501, 50):
        grown(made, last - 49, last)
        assert len(files(tmp_path)) <= key_files.MOST_FILES
    put(made, 501)
    again = entered(tmp_path, 500)
    known(again, 1, 501)
    assert len(files(tmp_path)) <= key_files.MOST_FILES + 1
    known(entered(tmp_path, 500), 1, 501)


def test_merged_keys_leave_with_the_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_files, "MOST_FILES", 5)
    made = entered(tmp_path, 0, window=20)
    grown(made, 1, 500)
    spans = spans_of(files(tmp_path))
    assert len(spans) <= 5
    assert min(span.last for span in spans) > 500 - 3 * 20  # of older ones there is no file, though many were merged
    again = entered(tmp_path, 500, window=20)
    assert again.window is not None
    assert [again.window.find(*key(batch)).tolist() for batch in range(481, 501)] == [[batch] for batch in range(481, 501)]


def test_a_key_is_written_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As often as the count of all doubles; were all files made one each time, it would be hundreds of times."""
    monkeypatch.setattr(key_files, "MOST_FILES", 15)
    written: list[int] = []
    write = batches.write_merged_keys
    monkeypatch.setattr(batches, "write_merged_keys", lambda file, *keys: (written.append(len(keys[0])), write(file, *keys)))
    grown(entered(tmp_path, 0), 1, 1000)
    assert sum(written) <= 10 * 1000


def doomed(monkeypatch: pytest.MonkeyPatch, left: int, act: Callable[[Spool], None], made: Spool) -> bool:
    """Act until so many writes and deletions are done, then die. Say whether it died."""
    calls = 0
    real_put, real_delete = SpoolFiles.put, SpoolFiles.delete

    def counted(real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any, **options: Any) -> None:
            nonlocal calls
            if calls == left:
                raise KeyboardInterrupt
            calls += 1
            real(*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(SpoolFiles, "put", counted(real_put))
        patched.setattr(SpoolFiles, "delete", counted(real_delete))
        try:
            act(made)
        except KeyboardInterrupt:
            return True
    return False


@pytest.mark.parametrize("merged_before", [False, True])
def test_a_crash_at_any_step_of_a_merge_loses_no_key_and_doubles_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merged_before: bool
) -> None:
    """A commit merges files, after all writes and deletions that come before in it; batch `last` + 1 is not committed."""
    monkeypatch.setattr(key_files, "MOST_FILES", 6)
    last = 13 if merged_before else 7
    died = []
    for left in range(100):
        folder = tmp_path / str(left)
        made = entered(folder, 0)
        grown(made, 1, last - 1)
        assert any(span.first < span.last for span in spans_of(files(folder))) == merged_before
        put(made, last)
        put(made, last + 1)
        if not doomed(monkeypatch, left, lambda spool: spool.settle(last) and None, made):
            break
        died.append(frozenset(files(folder)))
        again = entered(folder, last)
        known(again, 1, last + 1)
        again.settle(last + 1)
        known(entered(folder, last + 1), 1, last + 1)
        assert len(files(folder)) <= 6
    else:
        raise AssertionError("it never came to its end")
    assert len({names for names in died if Span(1, last).name in names}) >= 5  # next to many, and fewer, of its sources


def test_a_replaced_planner_deletes_nothing_that_the_new_one_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old planner stands still before its merged file is there: the new one has not seen it, and has the others."""
    monkeypatch.setattr(key_files, "MOST_FILES", 6)
    old, new = entered(tmp_path, 0), planner(tmp_path)
    grown(old, 1, 6)
    put(old, 7)
    real = SpoolFiles.put

    def standing_still(self: SpoolFiles, name: str, write: Any, **how: Any) -> None:
        if name.count("-") == 2:
            monkeypatch.setattr(SpoolFiles, "put", real)
            new.enter(SpoolOffset(old.id, 7))
        real(self, name, write, **how)

    monkeypatch.setattr(SpoolFiles, "put", standing_still)
    with pytest.raises(errors.Fenced):
        old.settle(7)
    assert spans_of(files(tmp_path)) == {*(Span(batch, batch) for batch in range(1, 8)), Span(1, 7)}
    known(new, 1, 7)
    grown(new, 8, 10)
    known(entered(tmp_path, 10), 1, 10)


def test_two_merged_files_that_share_batches_give_each_key_once(tmp_path: Path) -> None:
    """Two planners at the same time, each of which has made one."""
    made = entered(tmp_path, 0)
    grown(made, 1, 9)
    assert made.window is not None
    for span in (Span(1, 6), Span(4, 8), Span(2, 3)):
        keys = made.window.of(*span)
        made._put_new(span.name, lambda file, keys=keys: batches.write_merged_keys(file, *keys))  # type: ignore[misc]
    known(entered(tmp_path, 9), 1, 9)
    assert spans_of(files(tmp_path)) == {Span(1, 6), Span(4, 8), Span(9, 9)}


def test_a_merged_file_proves_what_was_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch gets the number of a batch with keys, for any content of the owner's file."""
    monkeypatch.setattr(key_files, "MOST_FILES", 6)
    made = entered(tmp_path, 0)
    grown(made, 1, 7)
    (tmp_path / "owner.json").unlink()
    again = Spool(str(tmp_path), Window(100), fail_on_data_loss=False)
    again.enter(SpoolOffset(made.id, 3))
    known(again, 1, 7)
    assert again.next_number(3) == 8


def test_a_merge_that_has_no_room_does_not_fail_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_files, "MOST_FILES", 6)
    made = entered(tmp_path, 0)
    real = SpoolFiles.put

    def full(self: SpoolFiles, name: str, write: Any, **how: Any) -> None:
        if name.count("-") == 2:
            raise errors.DiskFull("the spool is full")
        real(self, name, write, **how)

    with monkeypatch.context() as patched:
        patched.setattr(SpoolFiles, "put", full)
        grown(made, 1, 9)
    assert len(files(tmp_path)) == 9
    grown(made, 10, 10)
    assert files(tmp_path) == [Span(1, 10).name]
    known(entered(tmp_path, 10), 1, 10)


def test_a_query_that_recognises_nothing_any_more_has_no_merged_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_files, "MOST_FILES", 6)
    made = entered(tmp_path, 0)
    grown(made, 1, 8)
    Spool(str(tmp_path), None, fail_on_data_loss=True).enter(SpoolOffset(made.id, 8))
    assert files(tmp_path) == []


def test_a_merged_file_that_is_damaged_or_newer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = entered(tmp_path, 0)
    grown(made, 1, 2)
    for content in (b"", b"damage"):
        (tmp_path / "keys-1-2.arrow").write_bytes(content)
        with pytest.raises(
            errors.DataLoss, match=r"keys-1-2\.arrow of the spool .* is damaged: it has . octets, and its end is missing"
        ):
            entered(tmp_path, 2)
    with monkeypatch.context() as patch, open(tmp_path / "keys-1-2.arrow", "wb") as file:
        patch.setattr(batches, "KEYS_VERSION", b"4")
        none = np.empty(0, np.uint64)
        checksums.written(
            file, made.id, "keys-1-2.arrow", lambda into: batches.write_merged_keys(into, none, none, none.view(np.int64))
        )
    with pytest.raises(errors.StorageError, match=r"keys-1-2\.arrow of the spool has version b'4'"):
        entered(tmp_path, 2)


def test_keys_are_merged_in_an_object_store(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(key_files, "MOST_FILES", 6)
    spool = f"s3a://{BUCKET}/spool/merged-keys"
    grown(entered(spool, 0), 1, 15)
    assert len(spans_of(SpoolFiles(spool).names())) <= 6
    known(entered(spool, 15), 1, 15)


def test_files_that_become_one() -> None:
    """At least two; each that stays has twice as many keys as all after it, so that they are few."""
    singles = [KeyFile(Span(batch, batch), 1) for batch in range(100, 165)]
    assert to_merge(singles[1:]) == ()
    assert to_merge(singles) == singles
    large, small = KeyFile(Span(1, 80), 132), KeyFile(Span(81, 99), 127)
    assert to_merge([large, *singles[1:]]) == singles[1:]
    assert to_merge([large, small, *singles[1:]]) == [large, small, *singles[1:]]
    several = [KeyFile(Span(10 * n, 10 * n + 9), 4 ** (64 - n)) for n in range(65)]
    assert to_merge(several) == several[-2:]


def test_spans_within_others_are_left_out() -> None:
    spans = [Span(5, 9), Span(1, 4), Span(2, 2), Span(5, 5), Span(9, 9), Span(7, 12), Span(13, 13), Span(8, 11)]
    chosen, within = outermost(spans)
    assert chosen == [Span(1, 4), Span(5, 9), Span(7, 12), Span(13, 13)]
    assert set(within) == {Span(2, 2), Span(5, 5), Span(9, 9), Span(8, 11)}
    assert spans_of(["keys-3.arrow", "keys-1-2.arrow", "keys-4.arrow.part", "batch-5.arrow"]) == {Span(3, 3), Span(1, 2)}
