"""W16: one name for a write of any number of tasks; one stream for rows of any number of queues."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client, putting
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.model.stages import attempt_name
from penstock.broker_core.flight_plane import FlightPlane
from penstock.broker_core.messages.payloads import store
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

from .helpers import BODY, batch_of, browse, descriptor, raw, send, sequences


def put_many(client: Client, queue: str, write: str, attempts: range) -> None:
    """One small stage for each attempt, as so many tasks would; their streams are open side by side, as tasks' are."""
    peer, row = raw(client), batch_of([b"x"])
    for first in range(attempts.start, attempts.stop, 50):
        streams = []
        for attempt in range(first, min(first + 50, attempts.stop)):
            named = descriptor(op="stage", queue=queue, write=write, attempt=attempt)
            writer, reader = peer.do_put(named, BODY)
            writer.write_batch(row)
            writer.done_writing()
            streams.append((writer, reader))
        for writer, reader in streams:
            assert json.loads(reader.read().to_pybytes())["messages"] == 1
            writer.close()


def test_a_write_of_more_tasks_than_a_request_has_bytes_for_is_one_publish(client: Client, queue: str) -> None:
    """30,000 ids of 32 characters do not fit into a request. Numbers that are near each other do, however large they are."""
    base = 9_000_000_000
    put_many(client, queue, "w", range(base, base + 500))
    attempts = [0, 499, *range(1, 499)]
    stat = client.call("queue.stat", queue=queue)
    assert (stat["staged"], stat["stagedBytes"] > 0) == (500, True)
    assert client.call("stage.publish", write="w", base=base, attempts=attempts) == {"published": 500, "repeated": False}
    assert client.call("stage.publish", write="w", base=base, attempts=attempts) == {"published": 500, "repeated": True}
    assert len(sequences(client, queue)) == 500
    assert len(json.dumps(list(range(100_000)))) < 1 << 20, "MAX_STAGES of them fit"


def test_stages_are_listed_by_write_and_discarded_with_their_write(client: Client, queue: str) -> None:
    put_many(client, queue, "w " + queue, range(3))
    send(client, queue, [b"one", b"two"], op="stage", stage="s " + queue)
    listed = {row["stage"]: row for row in client.call("stage.list")["stages"]}
    mine = listed["w " + queue]
    assert (mine["attempts"], mine["messages"], mine["queues"]) == (3, 3, [queue])
    assert listed["s " + queue]["messages"] == 2
    assert mine["age"] >= 0
    assert client.call("stage.discard", write="w " + queue, attempts=[0]) == {"discarded": 1}
    assert client.call("queue.stat", queue=queue)["staged"] == 4
    assert client.call("stage.discard", write="w " + queue) == {"discarded": 2}
    assert client.call("stage.discard", stages=["s " + queue]) == {"discarded": 1}
    assert client.call("queue.stat", queue=queue)["staged"] == 0
    with pytest.raises(errors.Fenced, match="comes too late"):
        send(client, queue, [b"of a zombie"], op="stage", write="w " + queue, attempt=9)
    assert browse(client, queue) == []


def routed(*batches: tuple[str, list[bytes]]) -> list[tuple[pa.RecordBatch, bytes]]:
    return [(batch_of(bodies), json.dumps({"queue": name}).encode()) for name, bodies in batches]


def test_C2_batches_of_one_stream_go_to_the_queues_that_each_names(client: Client, queue: str) -> None:
    second = queue + " other"
    client.call("queue.declare", queue=second)
    parts = routed((queue, [b"1"]), (second, [b"2", b"3"]), (queue, [b"4"]))
    reply = client.put({"op": "stage", "write": "r " + queue, "attempt": 1, "routed": True}, BODY, parts)
    assert reply["messages"] == 4
    client.call("stage.publish", write="r " + queue, attempts=[1])
    assert [row["body"] for row in browse(client, queue)] == [b"1", b"4"]
    assert [row["body"] for row in browse(client, second)] == [b"2", b"3"]


@pytest.mark.parametrize(
    ("request_", "metadata", "error", "says"),
    [
        ({"routed": True}, b"", errors.InvalidRequest, "not JSON"),
        ({"routed": True}, b"{}", errors.InvalidRequest, "'queue' is missing"),
        ({"routed": True}, b'{"queue": "nowhere"}', errors.NotFound, "nowhere"),
        ({"routed": True, "queue": "nowhere"}, b'{"queue": "nowhere"}', errors.InvalidRequest, "must be left out"),
        ({"stage": "s", "routed": False, "queue": "q", "attempt": 3}, b"", errors.InvalidRequest, "and not both"),
    ],
)
def test_a_routed_put_that_is_wrong_is_refused(
    client: Client, queue: str, request_: dict[str, object], metadata: bytes, error: type[Exception], says: str
) -> None:
    named = {"op": "stage", "write": "w", "attempt": 1, **request_} if "stage" not in request_ else {"op": "stage", **request_}
    with pytest.raises(error, match=says):
        client.put(named, BODY, [(batch_of([b"x"]), metadata)])


def test_a_put_by_a_name_with_a_zero_octet_is_refused(client: Client, queue: str) -> None:
    for stage in ("\0transaction 1", "w\0x", "\0"):
        with pytest.raises(errors.InvalidRequest):
            send(client, queue, [b"x"], op="stage", stage=stage)


def test_a_write_of_30_500_tasks_is_published_and_another_discarded(tmp_path: Path) -> None:
    """The stages are made without their streams, which would take half a minute. The requests about them go over Flight."""
    tasks, base = 30_500, 9_000_000_000
    service = BrokerService(Settings(data=tmp_path, fsync="never"))
    plane = FlightPlane(service, "127.0.0.1", 0)
    try:
        service.submit(c.DeclareQueue("q"))
        payload = store(batch_of([b"x"]))
        for write in ("published", "aborted"):
            for attempt in range(tasks):
                name = attempt_name(write, base + attempt)
                _, end = service.submit_nowait(c.StageMessages(name, "q", 1, 1, payload))
        service.journal.wait(end)
        begun = time.process_time()
        with Client(plane.url) as client:
            wanted = [*range(1, tasks, 2), *range(0, tasks, 2)]
            for repeated in (False, True):
                answer = client.call("stage.publish", write="published", base=base, attempts=wanted)
                assert answer == {"published": tasks, "repeated": repeated}
            assert client.call("stage.discard", write="aborted") == {"discarded": tasks}
            stat = client.call("queue.stat", queue="q")
        assert (stat["available"], stat["staged"]) == (tasks, 0)
        print(f"publish twice, discard, stat: {time.process_time() - begun:.2f} s of CPU")
    finally:
        plane.close()
        service.close()


class Late(flight.FlightServerBase):  # type: ignore[misc]
    """A server that acknowledges a put after its last batch."""

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.ahead: list[int] = []  # batches that each acknowledgement covers

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        came: SimpleQueue[bool] = SimpleQueue()

        def read() -> None:
            for _ in reader:
                came.put(True)
            came.put(False)

        threading.Thread(target=read, daemon=True).start()
        more, batches = True, 0
        while more:
            try:
                more = came.get(timeout=0.5)
                batches += more
            except Empty:
                pass
            else:
                continue
            self.ahead.append(batches - sum(self.ahead))
            writer.write(json.dumps({"batches": batches, "messages": batches}).encode())
        writer.write(json.dumps({"batches": batches, "messages": batches}).encode())


def test_a_put_is_so_many_bytes_ahead_of_its_acknowledgements_however_many_batches_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task of Spark whose rows name their queues may have 256 batches under way, of which it would keep 4 GiB."""
    monkeypatch.setattr(putting, "MOST_AHEAD_BYTES", 4 << 20)
    batch = batch_of([bytes(1 << 20)])
    with Late() as server, Client(f"grpc://127.0.0.1:{server.port}") as client:
        assert client.put({"op": "enqueue", "queue": "q"}, BODY, [batch] * 12, window=256)["batches"] == 12
    assert server.ahead
    assert max(server.ahead) <= 5
