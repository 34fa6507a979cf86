"""Helpers for tests of the service: a stopped clock, brokers on a lying disk, and the description of a state."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.model.state import BrokerState
from penstock.broker_core.errors import StorageError
from penstock.broker_core.journal import Disk
from penstock.broker_core.messages import batch_checks
from penstock.broker_core.messages.columns import arrow_schema
from penstock.broker_core.messages.payloads import store, stored_sizes
from penstock.broker_core.reading.batches import BatchRequest, record_batches
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

from ..journal.lying_disk import LyingDisk

START = 1_700_000_000_000_000  # the wall clock of a new `Clock`, as LyingDisk has it
MIB = 1 << 20


class Clock:
    """A clock that stands still until `pass_time`."""

    def __init__(self, wall: int = START) -> None:
        self.wall, self.up = wall, 1_000_000

    def __call__(self) -> c.Now:
        return c.Now(self.wall, self.up)

    def advance(self, seconds: float) -> None:
        self.wall += int(seconds * 1e6)
        self.up += int(seconds * 1e6)

    def restarted(self, down_s: float = 0.0) -> Clock:
        """The clock of the broker's next life, `down_s` later."""
        return Clock(self.wall + int(down_s * 1e6))


def open_service(disk: Disk, clock: Callable[[], c.Now] | None = None, **options: Any) -> BrokerService:
    on_failure = options.pop("on_failure", None)
    settings = Settings(data=Path("/disk"), **options)
    return BrokerService(settings, disk=disk, clock=clock or Clock(), on_failure=on_failure)


def abandon(service: BrokerService) -> None:
    """End the threads of a service, also with a broken disk."""
    with contextlib.suppress(StorageError):
        service.close()


@contextlib.contextmanager
def running(disk: Disk, clock: Callable[[], c.Now] | None = None, **options: Any) -> Iterator[BrokerService]:
    service = open_service(disk, clock, **options)
    try:
        yield service
    finally:
        abandon(service)


def killed(service: BrokerService, disk: LyingDisk) -> LyingDisk:
    """Return the files after kill -9."""
    disk.stopped = True
    abandon(service)
    return disk.kill()


# ---- commands


def retain(service: BrokerService) -> int:
    """Drop the segments that are not needed, without copies out of others. Returns the bytes freed."""
    cleaner = service.cleaner
    with cleaner._turn:
        segments = service.journal.segments()
        keeping = cleaner.keeping(segments)
        if cleaner._nothing_to_do(segments, keeping):
            return 0
        return cleaner._drop_unused(cleaner._measure(segments, keeping), keeping)


def enqueue(queue: str, *bodies: bytes) -> c.Enqueue:
    batch = batch_checks.validate(pa.record_batch({"body": pa.array(bodies, pa.binary())}))
    return c.Enqueue(queue, batch.num_rows, stored_sizes(batch), store(batch))


def stage(name: str, queue: str, *bodies: bytes) -> c.StageMessages:
    made = enqueue(queue, *bodies)
    return c.StageMessages(name, queue, made.count, made.sizes, made.payload)


def numbered(count: int, size: int = 8, start: int = 0) -> list[bytes]:
    return [b"%08d" % number + b"." * (size - 8) for number in range(start, start + count)]


def advance(
    queue: str, lease: str, finished: int, *, epoch: int | None = None, messages: int | None = None, **options: Any
) -> list[c.Command[Any]]:
    """The three parts of `lease.advance`; options are those of `EnterLease` and `AcquireBatch`."""
    timeout = options.pop("timeout", None)
    return [
        c.EnterLease(queue, lease, "run", epoch, finished == 0, timeout),
        c.FinishBatches(lease, finished),
        c.AcquireBatch(queue, lease, "run", finished, messages, timeout=timeout, **options),
    ]


def read(lease: str, epoch: int, batch: int) -> c.ReadBatch:
    return c.ReadBatch(lease, "run", epoch, batch, 0, 1 << 62)


def bodies_of(service: BrokerService, queue: str, rows: Any) -> list[bytes]:
    return _bodies(service, queue, service.slices(queue, rows))


def everything(service: BrokerService, queue: str) -> dict[int, bytes]:
    """Sequence number → body of all that can still be read."""
    slices = service.browse(queue, lambda block: slice(0, block.filled), 0, None)
    messages: dict[int, bytes] = {}
    for batch in record_batches(service.journal, slices, BatchRequest(["sequenceNumber", "body"], queue)):
        messages.update(zip(batch["sequenceNumber"].to_pylist(), batch["body"].to_pylist(), strict=True))
    return messages


def table(service: BrokerService, queue: str, *columns: str) -> list[dict[str, Any]]:
    slices = service.browse(queue, lambda block: slice(0, block.filled), 0, None)
    batches = list(record_batches(service.journal, slices, BatchRequest(columns, queue)))
    return pa.Table.from_batches(batches, arrow_schema(columns)).to_pylist()


def _bodies(service: BrokerService, queue: str, slices: Any) -> list[bytes]:
    bodies: list[bytes] = []
    for batch in record_batches(service.journal, slices, BatchRequest(["body"], queue)):
        bodies += batch["body"].to_pylist()
    return bodies


def stat(service: BrokerService, queue: str) -> dict[str, Any]:
    return service.submit(c.Stat(queue))[0]


# ---- states


def described(state: BrokerState, *, archive: bool = True) -> Any:
    """Return the content of a state without log positions, which depend on threads, and without the signs of batches, which
    depend on the start of the broker.

    Without `archive` packed blocks are left out.
    """
    meta, blocks = state.snapshot()
    del meta["dropped"]
    for lease in meta["leases"]:
        lease["batches"] = [{name: value for name, value in batch.items() if name != "sign"} for batch in lease["batches"]]
    for queue in meta["queues"]:
        queue["packed"] = [entry["number"] for entry in queue["packed"]] if archive else None
    meta["stages"] = {name: [[part[0], *part[2:]] for part in parts] for name, parts in meta["stages"].items()}
    columns = [{name: _plain(value) for name, value in block.items() if not name.startswith("position_")} for block in blocks]
    return meta, columns


def _plain(value: Any) -> Any:
    return (value.tolist(),) if isinstance(value, np.ndarray) else value


def copy(state: BrokerState) -> BrokerState:
    from json import dumps

    from penstock.broker_core.engine.model.state import packed_columns

    meta, blocks = state.snapshot()
    return BrokerState.restore(dumps(meta).encode(), packed_columns(blocks))
