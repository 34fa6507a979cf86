"""Octets around those that count, as protobuf and Arrow let anybody send them: nothing stays of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from queue import SimpleQueue

import grpc
import pyarrow as pa

from penstock.broker_core.flight_plane import protobuf
from penstock.broker_core.flight_plane.server import SERVICE

from ..waiting import until
from .octets import as_it_is, put
from .peers import Site

MIB = 1 << 20
ROOM = 4 * MIB  # of Arrow's memory, for what is small
UNKNOWN = 9  # a field that FlightData does not have
TEXTS = ("subject", "contentType", "messageId", "correlationId", "to", "replyTo", "groupId", "userId")


def padded(message: bytes, number: int = UNKNOWN) -> bytes:
    """A message of Flight with a field before it that is large, and then said anew, or is nobody's."""
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
        self._said = self._channel.stream_stream(SERVICE + "DoPut", as_it_is, as_it_is)(self._given())

    def _given(self) -> Iterator[bytes]:
        while (message := self._messages.get()) is not None:
            yield message

    def send(self, *messages: bytes) -> None:
        for each in messages:
            self._messages.put(each)

    def stored(self) -> int:
        """Return how many batches the next acknowledgement speaks of."""
        return int(json.loads(protobuf.parse("", next(self._said))[protobuf.PUT_RESULT].tobytes())["batches"])

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self._messages.put(None)
        list(self._said)
        self._channel.close()


def test_a_dictionary_takes_what_it_costs(site: Site) -> None:
    """It stays as long as its stream, and nothing that came around it does."""
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
