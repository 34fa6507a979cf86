"""Helpers that the tests of the journal share: journals on a `LyingDisk`, and all that can be read of one."""

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
    """A started journal; closed afterwards, as well as its disk still lets it."""
    journal = open_journal(disk, **options)
    journal.start()
    try:
        yield journal
    finally:
        with contextlib.suppress(StorageError):
            journal.close()


def content(journal: Journal, position: int = 0) -> list[Content]:
    """Everything that is in it: metas by replay, payloads one by one."""
    return [(record.meta, bytes(journal.payload(record.position))) for record in journal.replay(position)]


def read_all(disk: Disk) -> list[Content]:
    """Open a journal, read everything, and leave it without a write of its own."""
    return content(open_journal(disk))


def until_idle(journal: Journal) -> None:
    """Wait until the writer's thread is idle: an appending thread may then write in its place."""
    end = time.monotonic() + 60
    while not journal._idle and journal.failure is None:
        assert time.monotonic() < end, "the writer does not come to rest"
        time.sleep(0.0001)


def append(journal: Journal, *contents: Content) -> int:
    """Append these, wait for them; the LSN after the last."""
    end = 0
    for meta, payload in contents:
        end = journal.append(meta, [payload] if payload else []).end
    journal.wait(end, 10)
    return end


def drop_below(journal: Journal, position: int) -> list[SegmentInfo]:
    """Drop the oldest segments, as far as they may go and hold nothing from this LSN on."""
    return journal.drop(segment for segment in journal.segments() if segment.end <= position)
