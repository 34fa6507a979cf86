"""Helpers of the tests of the copy: a journal with its copier on a disk that lies; all that can be read of a restored one."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.broker_core.copy import restoring
from penstock.broker_core.copy.copier import Copier
from penstock.broker_core.copy.restoring import Report
from penstock.broker_core.errors import StorageError
from penstock.broker_core.journal import Disk, Journal, JournalOptions, LocalDisk

from ..journal.helpers import Content, content
from ..waiting import until

_lives = itertools.count(1)


class Copied:
    """A journal and its copier."""

    def __init__(self, disk: Disk, store: Any, mode: str = "async", *, begin_s: float = 0.0, **options: Any) -> None:
        self.failures: list[Exception] = []
        self.journal = Journal.open(disk, JournalOptions(**options), on_failure=self.failures.append, new_id=lambda: "broker-1")
        self.store = store
        self.writer = f"life-{next(_lives)}"
        self.copier = Copier(store, self.journal, disk, writer=self.writer, mode=mode, interval_s=0.01)  # type: ignore[arg-type]
        self.copier.begin(begin_s)
        self.journal.start()
        self.copier.start()

    def append(self, *contents: Content, wait_s: float | None = 10) -> int:
        end = 0
        for meta, payload in contents:
            end = self.journal.append(meta, [payload] if payload else []).end
        if wait_s is not None:
            self.journal.wait(end, wait_s)
        return end

    def until_copied(self) -> None:
        until(lambda: self.copier.status()["state"] == "copying" and self.copier.lag()[1] == 0, "all is copied")

    def until_snapshot_copied(self, position: int) -> None:
        self.until_copied()  # a store without a complete first copy cannot be read
        until(lambda: restoring._load(self.store).contents.snapshot_position == position, "the snapshot is copied")

    def close(self, limit_s: float = 10.0) -> None:
        self.copier.close(limit_s)
        with contextlib.suppress(StorageError):
            self.journal.close()


@contextlib.contextmanager
def copied(disk: Disk, store: Any, mode: str = "async", **options: Any) -> Iterator[Copied]:
    running = Copied(disk, store, mode, **options)
    try:
        yield running
    finally:
        running.close(0.0)


def restored(store: Any, directory: Path, writer: str | None = None) -> tuple[list[Content], Report]:
    """Restore, and read all that is there."""
    report = restoring.restore(store, directory, writer=writer)
    disk = LocalDisk(directory)
    journal = Journal.open(disk)
    position = journal.snapshot.position if journal.snapshot else 0
    contents = content(journal, position)
    if journal.snapshot:
        contents = [*eval(journal.snapshot.meta), *contents]
    disk.close()
    return contents, report


def drop_before(journal: Journal, position: int) -> list[object]:
    """Drop every segment that ends there or before."""
    return list(journal.drop(segment for segment in journal.segments() if segment.end <= position))
