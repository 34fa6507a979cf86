"""Bytes around messages, which protobuf and Arrow allow: nothing of them stays in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from queue import SimpleQueue

import grpc
import pyarrow as pa
import pytest

from penstock.broker_core.flight_plane import arrow_ipc, protobuf
from penstock.broker_core.flight_plane.server import SERVICE

from ..waiting import until
from .helpers import batch_of
from .octets import as_it_is, put
from .peers import Site

MIB = 1 << 20
ROOM = 4 * MIB  # of Arrow's memory, for small allocations
UNKNOWN = 9  # a field that FlightData does not have
TEXTS = ("subject", "contentType", "messageId", "correlationId", "to", "replyTo", "groupId", "userId")


def padded(message: bytes, number: int = UNKNOWN) -> bytes:
    """Put a large field before a message of Flight, which is repeated later or unknown."""
    return protobuf.octets(number, bytes(4 * MIB)) + message


class Growth:
    """Arrow's memory in this process, which has the broker, since this was made."""

    def __init__(self) -> None:
        self.before = pa.total_allocated_bytes()

    @property
    def now(self) -> int:
        return pa.total_allocated_bytes() - self.before


class Sender:
    """A put whose messages are octets, sent one by one."""

    def __init__(self, site: Site) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{site.plane.port}", options=[("grpc.max_send_message_length", -1)])
        self._messages = SimpleQueue[bytes | None]()
        self._results = self._channel.stream_stream(SERVICE + "DoPut", as_it_is, as_it_is)(self._requests())

    def _requests(self) -> Iterator[bytes]:
        while (message := self._messages.get()) is not None:
            yield message

    def send(self, *messages: bytes) -> None:
        for message in messages:
            self._messages.put(message)

    def stored(self) -> int:
        """Return how many batches the next acknowledgement speaks of."""
        return int(json.loads(protobuf.parse("", next(self._results))[protobuf.PUT_RESULT].tobytes())["batches"])

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self._messages.put(None)
        list(self._results)
        self._channel.close()


@pytest.mark.parametrize("number", [UNKNOWN, protobuf.APP_METADATA, protobuf.DATA_BODY])
def test_nothing_stays_of_what_stands_around_a_batch(site: Site, number: int) -> None:
    """Recent messages stay in memory for readers, without the bytes around them."""
    site.peer().call("queue.declare", queue="q")
    with Sender(site) as sender:
        schema, batch = put("q", batch_of([b"x" * 100]))
        sender.send(schema, batch)
        assert sender.stored() == 1
        growth = Growth()
        for _ in range(10):
            sender.send(padded(batch, number))
            sender.stored()
    until(lambda: growth.now < ROOM, "the memory of the messages is free")


def test_nothing_stays_of_what_a_cast_leaves_out(site: Site) -> None:
    """A view of one octet with a large buffer that it does not need, in one body with a column that is taken as it is."""
    site.peer().call("queue.declare", queue="q")
    slot = b"\1\0\0\0x" + bytes(11)
    views = pa.Array.from_buffers(pa.string_view(), 1, [None, pa.py_buffer(slot), pa.py_buffer(bytes(4 * MIB))])
    growth = Growth()
    with Sender(site) as sender:
        schema, batch = put("q", pa.record_batch({"body": [b"x"], "subject": views}))
        sender.send(schema)
        for _ in range(10):
            sender.send(batch)
            sender.stored()
    del views
    until(lambda: growth.now < ROOM, "the memory of the messages is free")


def test_a_dictionary_takes_what_it_costs(site: Site) -> None:
    """Dictionaries stay as long as their stream, and nothing that came around them does."""
    site.peer().call("queue.declare", queue="q")
    texts = {name: pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["text"])) for name in TEXTS}
    schema, *dictionaries, batch = put("q", pa.record_batch({"body": [b"x"], **texts}))
    assert len(dictionaries) == len(TEXTS)
    growth = Growth()
    with Sender(site) as sender:
        sender.send(schema, *map(padded, dictionaries), batch)
        assert sender.stored() == 1
        until(lambda: growth.now < ROOM, "the memory of the messages is free")
        sender.send(batch)
        assert sender.stored() == 2, "the dictionaries are still there"


def test_a_large_body_is_not_copied(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give pyarrow the body of a batch where it lies."""
    taken: list[object] = []
    read = arrow_ipc.ArrowBatchReader.read

    def noted(reader: arrow_ipc.ArrowBatchReader, octets: int) -> memoryview | bytes:
        batches = read(reader, octets)
        if octets >= MIB:
            taken.append(batches)
        return batches

    monkeypatch.setattr(arrow_ipc.ArrowBatchReader, "read", noted)
    site.peer().call("queue.declare", queue="q")
    with Sender(site) as sender:
        sender.send(*put("q", batch_of([b"x" * MIB])))
        assert sender.stored() == 1
    assert [type(buffer) for buffer in taken] == [memoryview]
