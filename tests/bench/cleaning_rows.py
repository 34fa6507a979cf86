"""Rows about the cleaner: how large the journal is when one message stays for ever, and what the cleaner takes of the disk."""

from __future__ import annotations

from collections.abc import Iterator

from feeding import batch_of, enqueue_command, nbytes
from harness import Bench, Line, Stopwatch

from penstock.broker_core.engine import commands as c
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

GIB = 1 << 30
TRAFFIC = 20 * GIB
ROWS = 10_000  # of 1 KiB, in one command
KEPT = 256 << 20  # of settled messages: `retention_bytes`


def journal(bench: Bench) -> Iterator[Line]:
    """One message that nobody takes; then much comes, is taken and settled, as fast as it goes, while the cleaner works."""
    batch = batch_of(ROWS, 1024)
    one, many = enqueue_command(batch.slice(0, 1)), enqueue_command(batch)
    traffic = bench.count(TRAFFIC, 2 * GIB)
    data = bench.folder()
    largest, copied = 0, 0
    service = BrokerService(Settings(data=data, retention_bytes=KEPT))
    try:
        for name in ("stuck", many.queue):
            service.submit(c.DeclareQueue(name))
        service.submit(c.Enqueue("stuck", one.count, one.sizes, one.payload))
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
