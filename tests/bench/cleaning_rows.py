"""Rows about the cleaner: the journal's size if one message is never consumed, its disk traffic, and starts after a cleaning."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from feeding import QUEUE, batch_of, copied, enqueue, enqueue_command, nbytes, started
from harness import MIB, Bench, Line, Stopwatch
from yardsticks import write_and_sync

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.service.cleaning import DISK_SHARE
from penstock.broker_core.settings.keys import Settings

GIB = 1 << 30
TRAFFIC = 20 * GIB
ROWS = 10_000  # of 1 KiB, in one command
KEPT = 256 << 20  # settled messages that stay: `retention_bytes`


def journal(bench: Bench) -> Iterator[Line]:
    """One message stays; then many are enqueued, acquired and settled without pauses while the cleaner works."""
    batch = batch_of(ROWS, 1024)
    single, many = enqueue_command(batch.slice(0, 1)), enqueue_command(batch)
    traffic = bench.count(TRAFFIC, 2 * GIB)
    data = bench.folder()
    largest, copied = 0, 0
    service = BrokerService(Settings(data=data, retention_bytes=KEPT))
    try:
        for name in ("stuck", many.queue):
            service.submit(c.DeclareQueue(name))
        service.submit(c.Enqueue("stuck", single.count, single.sizes, single.payload))
        link = service.submit(c.Subscribe(many.queue))
        with Stopwatch() as watch:
            done = 0
            while done < traffic:
                service.submit(many)
                rows = service.submit(c.Acquire(many.queue, link, ROWS)).rows
                service.submit(c.Settle(many.queue, link, rows))
                done += nbytes(many)
                largest = max(largest, sum(segment.bytes for segment in service.journal.segments()))
        before = service.journal.end
        while service.cleaner.clean():
            pass
        copied = service.journal.end - before
        size = sum(segment.bytes for segment in service.journal.segments())
    finally:
        service.close()
    bench.remove(data)
    yield Line(
        "journal",
        f"journal after {traffic / GIB:g} GiB through a queue, with one message that stays, retention of {KEPT >> 20} MiB",
        "",
        1.0,
        None,
        False,
        "GiB",
        [size / GIB],
        more={
            "largest meanwhile, GiB": [largest / GIB],
            "traffic, MB/s": [traffic / 1e6 / watch.seconds],
            "log written by the last turns, bytes": [copied],
        },
    )


BESIDE = 9  # settled messages for each one that stays
COPIED = 256 * MIB
SET = 32 * MIB  # bytes a second: `clean_bandwidth`


def _to_be_copied(data: Path, total: int) -> None:
    """Create a journal in whose segments one tenth of the bytes is needed, `total` bytes."""
    service = BrokerService(Settings(data=data, fsync="never", segment_bytes=16 * MIB))
    try:
        service.submit(c.DeclareQueue("stays"), c.DeclareQueue(QUEUE))
        stays, goes = enqueue_command(batch_of(100, 1024), "stays"), enqueue_command(batch_of(100 * BESIDE, 1024))
        for _ in range(total // nbytes(stays)):
            service.submit_nowait(stays)
            service.submit_nowait(goes)
        service.submit(c.DeleteQueue(QUEUE))
    finally:
        service.close()


def cleaning(bench: Bench) -> Iterator[Line]:
    total = bench.count(COPIED, 16 * MIB)
    origin = bench.folder()
    with bench.doing(f"a journal with {total // MIB} MiB to be copied"):
        _to_be_copied(origin, total)

    def rate(bandwidth: int | None) -> float:
        """Return the cleaner's bytes a second in one turn, including its scans and its snapshot."""
        data = copied(origin, bench.folder())
        service = BrokerService(Settings(data=data, segment_bytes=16 * MIB, clean_bandwidth=bandwidth))
        try:
            before = service.journal.end
            with Stopwatch() as watch:
                service.cleaner.clean()
            assert service.journal.end - before > total // 4, "nothing had to be copied"
            return (service.journal.end - before) / watch.seconds
        finally:
            service.close()
            bench.remove(data)

    def disk(_: int) -> float:
        path = bench.folder()
        seconds = write_and_sync(path, total)
        path.unlink()
        return total / seconds

    for name, bandwidth in (("its default, a quarter of the time", None), (f"clean_bandwidth = {SET // MIB} MiB", SET)):
        ours, theirs = bench.pairs(
            "B/s", lambda _, bandwidth=bandwidth: rate(bandwidth), disk if bandwidth is None else lambda _: float(SET), repeats=3
        )
        yield Line(
            "cleaning" if bandwidth is None else "cleaning-set",
            f"bytes of the cleaner, for {total // MIB} needed MiB: {name}",
            "writing as much to a file and fsync" if bandwidth is None else "that setting",
            1 / DISK_SHARE if bandwidth is None else 1.0,
            None,
            False,
            "B/s",
            ours,
            theirs,
        )
    bench.remove(origin)


LIVE, ARCHIVED = 1_000_000, 100_000_000
SMALL = 8  # bytes of an archived message's body
PASS_ROWS = 64 * BLOCK_ROWS


def _with_archived(data: Path, archived: int) -> None:
    """Fill a directory with messages that are settled and recorded, then with messages that stay."""
    service = BrokerService(Settings(data=data, fsync="never"))
    try:
        service.state.records = True
        service.submit(c.DeclareQueue(QUEUE))
        link, number = service.submit(c.Subscribe(QUEUE)), service.state.queues[QUEUE].id
        small = enqueue_command(batch_of(BLOCK_ROWS, SMALL))
        for done in range(0, archived, BLOCK_ROWS):
            service.reserve_space(nbytes(small))
            service.submit_nowait(small)
            rows = service.submit_nowait(c.Acquire(QUEUE, link, BLOCK_ROWS))[0].rows
            service.submit_nowait(c.Settle(QUEUE, link, rows))
            if (done // BLOCK_ROWS) % 16 == 15:
                while service.pack_blocks():
                    pass
                begun = service.submit(c.BeginRecording(number, PASS_ROWS, 1 << 40))
                service.submit(c.EndRecording(number, begun.number, begun.number))
        enqueue(service, LIVE, 100, 10_000)
        while service.cleaner.clean():
            pass
    finally:
        service.close()


def restart_archived(bench: Bench) -> Iterator[Line]:
    archived = bench.count(ARCHIVED, 4 * BLOCK_ROWS)
    folders = bench.folder(), bench.folder()
    for folder, count in zip(folders, (archived, 0), strict=True):
        with bench.doing(f"{LIVE:,} messages, after {count:,} that are settled and recorded"):
            _with_archived(folder, count)
    sizes = [sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) >> 20 for folder in folders]

    started(bench, folders[0], LIVE)
    ours, theirs = bench.pairs("s", lambda _: started(bench, folders[0], LIVE), lambda _: started(bench, folders[1], LIVE))
    for folder in folders:
        shutil.rmtree(folder)
    yield Line(
        "restart-archived",
        f"restart with {LIVE:,} messages that wait, after {archived:,} that were settled and recorded, until it is ready",
        "the same without the latter",
        1.1,
        None,
        False,
        "s",
        ours,
        theirs,
        note=f"directories of {sizes[0]} and {sizes[1]} MiB; the start of Python is counted",
    )
