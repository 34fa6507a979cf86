"""U11: the audit log keeps changes and their users, within its limits."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker_core.security.audit import (
    FAILED,
    FILES,
    FOLDER,
    REFUSED,
    UNLIMITED,
    AuditEntry,
    AuditFilter,
    AuditLimits,
    AuditLog,
    Origin,
    refused_login,
)
from penstock.broker_core.security.log_limit import LINES, PEERS

from ..filesystems import SmallDisk, mounted

NOW_MS = 1_790_000_000_000
EVERYTHING = AuditFilter()


class Rig:
    def __init__(self, data: Path, limits: AuditLimits) -> None:
        self.data, self.limits, self.now_ms = data, limits, NOW_MS
        self.reports: list[str | None] = []
        self.open()

    def open(self) -> None:
        self.audit = AuditLog(self.data, lambda: self.limits, lambda: self.now_ms, self.reports.append)

    def add(self, name: str, **fields: object) -> None:
        origin = Origin(str(fields.pop("user", "ann")), str(fields.pop("peer", "127.0.0.1:1")), "page")
        values = {"origin": origin, "action": "queue.purge", "object": name, **fields}
        self.audit.add(AuditEntry(**values))  # type: ignore[arg-type]
        self.now_ms += 1

    def objects(self, wanted: AuditFilter = EVERYTHING, count: int = 1000) -> list[str]:
        return [entry["object"] for entry in self.audit.entries(wanted, count)]

    @property
    def folder(self) -> Path:
        return self.data / FOLDER


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, AuditLimits(1 << 20, None))


def test_an_entry_has_everything(rig: Rig) -> None:
    rig.add("line\nfeed", count=3, error="full", outcome=FAILED, details={"target": "other"})
    (entry,) = rig.audit.entries(EVERYTHING, 10)
    assert entry == {
        "time": "2026-09-21T14:13:20.000Z",
        "user": "ann",
        "peer": "127.0.0.1:1",
        "door": "page",
        "action": "queue.purge",
        "object": "line\nfeed",
        "outcome": "failed",
        "count": 3,
        "error": "full",
        "details": {"target": "other"},
    }
    (file,) = rig.folder.iterdir()
    assert file.read_bytes().count(b"\n") == 1
    assert (file.stat().st_mode & 0o777, rig.folder.stat().st_mode & 0o777) == (0o600, 0o700)


def test_filters(rig: Rig) -> None:
    rig.add("a", user="ann")
    rig.add("b", user="bob", action="queue.move", details={"target": "a"})
    rig.add("c", outcome=REFUSED)
    assert rig.objects() == ["c", "b", "a"]
    assert rig.objects(count=2) == ["c", "b"]
    assert rig.objects(AuditFilter(user="bob")) == ["b"]
    assert rig.objects(AuditFilter(object="a")) == ["b", "a"]  # messages were moved to it
    assert rig.objects(AuditFilter(action="move")) == rig.objects(AuditFilter(action="queue.move")) == ["b"]
    assert rig.objects(AuditFilter(action="mov")) == []
    assert rig.objects(AuditFilter(outcome=REFUSED)) == ["c"]
    rig.add("a", action="user.remove")
    rig.add("dan", action="user.permit", details={"queue": "a"})
    assert rig.objects(AuditFilter(object="a")) == ["dan", "b", "a"], "a user with the name of the queue is another object"
    assert rig.objects(AuditFilter(since="2026-09-21T14:13:20.001Z", until="2026-09-21T14:13:20.002Z")) == ["b"]


def test_its_files_stay_below_the_limit(rig: Rig) -> None:
    """The newest entries stay, also after a restart and a smaller limit."""
    number = 0
    for most in (64 << 10, 16 << 10):
        rig.limits = AuditLimits(most, None)
        for _ in range(1000):
            rig.add(str(number))
            number += 1
            if number % 300 == 0:
                rig.audit.close()
                rig.open()
        files = list(rig.folder.iterdir())
        assert len(files) <= FILES
        assert sum(file.stat().st_size for file in files) <= 64 << 10
        kept = rig.objects()
        assert kept == [str(number - 1 - index) for index in range(len(kept))]
        assert len(kept) > 20


def test_another_process_adds_entries_and_deletes_none(rig: Rig) -> None:
    rig.limits = AuditLimits(16 << 10, None)
    for number in range(303):  # the last file has room for another entry
        rig.add(str(number))
    files = sorted(rig.folder.iterdir())
    other = Rig(rig.data, UNLIMITED)
    other.add("user")
    rig.add("last")
    assert rig.objects()[:2] == ["last", "user"]
    assert sorted(rig.folder.iterdir()) == files


def test_old_entries_are_not_read_and_their_files_are_deleted(rig: Rig) -> None:
    """Also if the broker runs on, and its files are never full."""
    rig.limits = AuditLimits(1 << 20, 3600.0)
    for number in range(200):
        rig.add(str(number))
        rig.now_ms += 60_000
        assert rig.objects() == [str(kept) for kept in range(number, max(-1, number - 59), -1)]
    files = sorted(rig.folder.iterdir())
    assert len(files) <= FILES
    assert min(int(json.loads(line)["object"]) for file in files for line in file.read_text().splitlines()) >= 200 - 2 * 60


def test_a_line_that_a_crash_has_cut_is_left_out(rig: Rig) -> None:
    rig.add("a")
    rig.audit.close()
    (file,) = rig.folder.iterdir()
    with file.open("ab") as out:
        out.write(b'{"time": "20')
    rig.open()
    rig.add("b")
    assert rig.objects() == ["b", "a"]


def test_a_file_that_cannot_be_written_is_reported_once_it_fails_and_once_it_works(rig: Rig) -> None:
    """The caller does not see the failure: its action is carried out."""
    rig.folder.write_text("not a folder")
    rig.add("a")
    assert rig.reports
    assert str(rig.folder) in str(rig.reports[-1])
    rig.folder.unlink()
    rig.add("b")
    rig.add("c")
    assert rig.reports[1:] == [None]
    assert rig.objects() == ["c", "b"]


@pytest.mark.parametrize("kind", ["folder", "symbolic link", "hard link", "fifo"])
def test_links_are_not_followed(rig: Rig, tmp_path: Path, kind: str) -> None:
    """The account of the broker may have put them there, and root runs `penstock user`."""
    target = tmp_path / "target"
    if kind == "folder":
        target.mkdir()
        rig.folder.symlink_to(target)
    else:
        rig.folder.mkdir()
        file = rig.folder / "00000000000001.jsonl"
        if kind == "fifo":
            os.mkfifo(file)
        else:
            target.write_text("")
            (file.symlink_to if kind == "symbolic link" else file.hardlink_to)(target)
    rig.add("a")
    assert len(rig.reports) == 1
    assert target.stat().st_size == 0 if target.is_file() else not target.exists() or not list(target.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_when_root_writes_an_entry_the_broker_still_owns_the_log(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    rig = Rig(tmp_path, UNLIMITED)
    rig.add("a")
    (file,) = rig.folder.iterdir()
    assert {(path.stat().st_uid, path.stat().st_gid) for path in (rig.folder, file)} == {(12345, 12345)}


def test_refusals_do_not_fill_the_log_and_other_outcomes_are_not_limited(rig: Rig) -> None:
    for number in range(LINES + 50):
        rig.add(f"refused {number}", outcome=REFUSED)
        rig.add(f"done {number}")
    assert sum(name.startswith("refused") for name in rig.objects()) == LINES // PEERS
    assert sum(name.startswith("done") for name in rig.objects()) == LINES + 50


def test_refusals_of_one_address_that_fill_the_log_do_not_hide_those_of_others(rig: Rig) -> None:
    """The next refusal contains the number of the omitted ones."""
    for number in range(LINES):
        rig.add(f"attack {number}", outcome=REFUSED, peer=f"10.0.0.9:{number}")
    rig.add("other", outcome=REFUSED, peer="10.0.0.8:1", details={"target": "q"})
    entries = rig.audit.entries(EVERYTHING, LINES)
    assert len(entries) == LINES // PEERS + 1
    omitted = LINES - LINES // PEERS
    assert (entries[0]["object"], entries[0]["details"]) == ("other", {"target": "q", "refusalsOmittedBefore": omitted})
    assert all(not entry["details"] for entry in entries[1:])


def test_changes_by_the_use_of_queues_displace_no_changes_by_operators(rig: Rig) -> None:
    rig.limits = AuditLimits(64 << 10, None)
    rig.add("change")
    for number in range(1000):
        rig.add(f"use {number}", by_use=True)
    rig.add("last")
    names = rig.objects()
    assert (names[0], names[1], names[-1]) == ("last", "use 999", "change")
    assert len(names) > 20
    assert sum(file.stat().st_size for file in rig.folder.iterdir()) <= 64 << 10


def test_a_large_request_is_not_copied_into_the_log(rig: Rig) -> None:
    rig.add("q" * 10_000, details={"ranges": list(range(10_000))})
    (entry,) = rig.audit.entries(EVERYTHING, 1)
    assert len(json.dumps(entry)) < 1000


def test_refusals_displace_no_changes(rig: Rig) -> None:
    rig.limits = AuditLimits(64 << 10, None)
    rig.add("change")
    for number in range(1000):
        rig.add(f"refused {number}", outcome=REFUSED)
    rig.add("last")
    names = rig.objects()
    assert (names[0], names[1], names[-1]) == ("last", "refused 999", "change")
    assert len(names) > 20
    assert sum(file.stat().st_size for file in rig.folder.iterdir()) <= 64 << 10
    rig.audit.close()
    rig.open()
    assert rig.objects() == names


def test_logins_of_strangers_that_fill_the_log_do_not_suppress_refusals_of_users(rig: Rig) -> None:
    for _ in range(LINES + 50):
        rig.audit.add(refused_login(Origin("root", "10.0.0.9:1", "amqp"), "wrong name or password"))
    rig.add("q", outcome=REFUSED)
    assert rig.objects(count=1) == ["q"]
    assert len(rig.objects()) == LINES // PEERS + 1


def test_a_reader_sees_each_entry_once_while_files_are_replaced(rig: Rig) -> None:
    """The newest entries, without a hole, although the writer deletes files meanwhile."""
    rig.limits = AuditLimits(16 << 10, None)
    done = threading.Event()

    def write() -> None:
        for number in range(3000):
            rig.add(str(number))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    longest = 0
    while not done.is_set():
        numbers = [int(name) for name in rig.objects()]
        assert numbers == list(range(numbers[0], numbers[0] - len(numbers), -1)) if numbers else True
        longest = max(longest, len(numbers))
    writer.join()
    assert longest > 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    yield from mounted(tmp_path / "disk", "1m")


def test_a_full_disk_is_reported_and_later_entries_are_complete(disk: SmallDisk) -> None:
    rig = Rig(disk.path, AuditLimits(16 << 20, None))
    rig.add("before")
    disk.fill()
    for number in range(100):  # until the last block of the file is full
        rig.add(f"lost {number}" + "x" * 200)
    assert "cannot be written" in str(rig.reports[0])
    disk.give_back()
    rig.add("after")
    assert rig.reports[-1] is None
    names = rig.objects()
    assert (names[0], names[-1]) == ("after", "before")
    assert all(name.startswith("lost") for name in names[1:-1])
