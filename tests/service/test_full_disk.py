"""D6: on a full disk new messages are refused, actions that free space continue, and a start needs the reserve alone."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

import pyarrow as pa
import pytest

from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine import commands as c
from penstock.broker_core.errors import ResourceLimit
from penstock.broker_core.flight_plane import FlightPlane
from penstock.broker_core.service.broker import BrokerService

from ..journal.lying_disk import LyingDisk
from .helpers import MIB, Clock, everything, killed, numbered, open_service, retain, running

MARK = 2 * MIB
BATCH = pa.record_batch({"body": pa.array(numbered(100, 5000), pa.binary())})  # half a MiB


@contextlib.contextmanager
def client_of(service: BrokerService) -> Iterator[Client]:
    plane = FlightPlane(service, "127.0.0.1", 0)
    try:
        with Client(plane.url) as client:
            yield client
    finally:
        plane.close()


def test_below_the_mark_senders_are_refused_and_everything_else_goes_on() -> None:
    disk, clock = LyingDisk(), Clock()
    with (
        running(disk, clock, free_space_mark_bytes=MARK, segment_bytes=MIB, retention_age_s=5) as service,
        client_of(service) as client,
    ):
        client.call("queue.declare", queue="q")
        for _ in range(6):
            client.put({"op": "enqueue", "queue": "q"}, BATCH.schema, [BATCH])
        client.put({"op": "stage", "queue": "q", "stage": "ready"}, BATCH.schema, [BATCH.slice(0, 1)])
        disk.room = MARK + BATCH.nbytes // 2

        for command in ({"op": "enqueue", "queue": "q"}, {"op": "stage", "queue": "q", "stage": "more"}):
            with pytest.raises(ResourceLimit, match="nothing was stored"):
                client.put(command, BATCH.schema, [BATCH])
        assert client.call("queue.stat", queue="q")["enqueued"] == 600

        # Actions without payloads continue, and so do all actions that free space.
        assert client.call("stage.publish", stages=["ready"])["published"] == 1
        lease = {"queue": "q", "lease": "l", "run": "r"}
        taken = client.call("lease.advance", **lease, epoch=None, finished=0, fresh=True, messages=300)
        part = {"lease": "l", "run": "r", "epoch": taken["epoch"], "batch": 1, "first": 0, "last": 300}
        assert sum(batch.num_rows for batch in client.get(op="batch", **part, columns=["body"])) == 300
        assert client.call("lease.settle", **lease, epoch=taken["epoch"], finished=1)["settled"] == 300
        assert client.call("queue.purge", queue="q") == {"purged": 301}
        clock.advance(10)
        freed = retain(service)
        assert freed > 2 * MIB
        disk.room += freed

        # With the room that it gave, senders are served again.
        assert client.put({"op": "enqueue", "queue": "q"}, BATCH.schema, [BATCH])["next"] == 701


def test_what_was_acknowledged_of_a_stream_before_the_mark_stays() -> None:
    disk = LyingDisk()
    with running(disk, free_space_mark_bytes=MARK) as service, client_of(service) as client:
        client.call("queue.declare", queue="q")
        disk.room = MARK + 3 * BATCH.nbytes
        with pytest.raises(ResourceLimit):
            client.put({"op": "enqueue", "queue": "q"}, BATCH.schema, [BATCH] * 20, window=1)
        enqueued = client.call("queue.stat", queue="q")["enqueued"]
        assert 100 <= enqueued <= 300
        assert enqueued % 100 == 0
    with running(killed(service, disk)) as again:
        assert len(everything(again, "q")) == enqueued


def test_a_start_needs_only_the_reserve() -> None:
    disk = LyingDisk()
    reserve = 4 * MIB  # the last groups, which a start copies, were in the journal's buffer together
    service = open_service(disk, free_space_mark_bytes=reserve)
    with client_of(service) as client:
        client.call("queue.declare", queue="q")
        client.put({"op": "enqueue", "queue": "q"}, BATCH.schema, [BATCH] * 5)
    before = everything(service, "q")
    after = killed(service, disk)
    after.room = reserve
    with running(after, free_space_mark_bytes=reserve) as again:
        assert everything(again, "q") == before
        assert again.submit(c.Purge("q")) == 500
        assert after.room is not None
        assert after.room > 0


def test_a_snapshot_that_does_not_fit_is_given_up_and_the_broker_goes_on() -> None:
    disk = LyingDisk()
    service = open_service(disk, free_space_mark_bytes=MARK)
    service.submit(c.DeclareQueue("q"))
    _no_snapshots(disk)
    with pytest.raises(ResourceLimit, match="snapshot"):
        service.take_snapshot()
    assert service.submit(c.DeclareQueue("q2")) is True
    service.close()  # cleanly: the log has everything
    disk.fail = lambda call, name: None
    with running(disk) as again:
        assert sorted(again.state.queues) == ["q", "q2"]


def test_retention_makes_room_even_where_no_snapshot_fits() -> None:
    """Segments that the last snapshot does without can go without another one."""
    disk, clock = LyingDisk(), Clock()
    options = {"segment_bytes": MIB, "retention_age_s": 5, "free_space_mark_bytes": MARK}
    with running(disk, clock, **options) as service, client_of(service) as client:
        client.call("queue.declare", queue="q")
        for _ in range(8):
            client.put({"op": "enqueue", "queue": "q"}, BATCH.schema, [BATCH])
        service.submit(c.Purge("q"))
        service.take_snapshot()
        client.put({"op": "enqueue", "queue": "q"}, BATCH.schema, [BATCH.slice(0, 10)])
        clock.advance(10)
        _no_snapshots(disk)
        assert retain(service) > 2 * MIB
    disk.fail = lambda call, name: None
    with running(disk.kill(), clock.restarted(), **options) as again:
        assert list(everything(again, "q").values())[-10:] == numbered(10, 5000)
        assert again.submit(c.Stat("q"))[0]["available"] == 10


def _no_snapshots(disk: LyingDisk) -> None:
    full = OSError(errno.ENOSPC, "no space left on the disk")
    disk.fail = lambda call, name: full if call == "append" and ".snap" in name else None
