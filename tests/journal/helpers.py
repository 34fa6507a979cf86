"""Shared helpers of the journal's tests: journals on a `LyingDisk`, and their content."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from penstock.broker_core.errors import StorageError
from penstock.broker_core.journal import Disk, Journal, JournalOptions, SegmentInfo

Content = tuple[bytes, bytes]  # meta, payload


def open_journal(disk: Disk, **options: Any) -> Journal:
    on_failure = options.pop("on_failure", None)
    return Journal.open(disk, JournalOptions(**options), on_failure=on_failure, new_id=lambda: "broker-1")


@contextlib.contextmanager
def running(disk: Disk, **options: Any) -> Iterator[Journal]:
    """Yield a started journal. Close it afterwards, if its disk allows that."""
    journal = open_journal(disk, **options)
    journal.start()
    try:
        yield journal
    finally:
        with contextlib.suppress(StorageError):
            journal.close()


def content(journal: Journal, position: int = 0) -> list[Content]:
    """Return all records: metas by replay, payloads one by one."""
    return [(record.meta, bytes(journal.payload(record.position))) for record in journal.replay(position)]


def read_all(disk: Disk) -> list[Content]:
    """Open a journal, read all records, and leave it without a write."""
    return content(open_journal(disk))


def until_idle(journal: Journal) -> None:
    """Wait until the writer's thread is idle: an appending thread may then write in its place."""
    end = time.monotonic() + 60
    while not journal._idle and journal.failure is None:
        assert time.monotonic() < end, "the writer does not become idle"
        time.sleep(0.0001)


def append(journal: Journal, *contents: Content) -> int:
    """Append records and wait for them; return the LSN after the last one."""
    end = 0
    for meta, payload in contents:
        end = journal.append(meta, [payload] if payload else []).end
    journal.wait(end, 10)
    return end


def drop_below(journal: Journal, position: int) -> list[SegmentInfo]:
    """Drop the oldest segments that may go and end below this LSN."""
    return journal.drop(segment for segment in journal.segments() if segment.end <= position)
