"""Calls of Flight as the octets that they are, by gRPC's client and by one on the library h2."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import grpc
import h2.config
import h2.connection
import h2.events
import pyarrow as pa

from penstock.broker_core.flight_plane import protobuf
from penstock.broker_core.flight_plane.server import SERVICE


def action(name: str, body: bytes) -> bytes:
    return protobuf.octets(1, name.encode()) + protobuf.octets(2, body)


def as_it_is(data: bytes) -> bytes:
    return data


def call(channel: grpc.Channel, method: str, *messages: bytes, **options: Any) -> list[bytes]:
    """The answers of a call whose messages are these octets."""
    return list(channel.stream_stream(SERVICE + method, as_it_is, as_it_is)(iter(messages), **options))


def put(queue: str, *batches: pa.RecordBatch, **options: Any) -> list[bytes]:
    """FlightData of record batches, as a client sends them with these IPC options."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    messages = []
    for ipc_message in pa.ipc.MessageReader.open_stream(pa.BufferReader(sink.getvalue())):
        messages.append(protobuf.octets(protobuf.DATA_HEADER, ipc_message.metadata.to_pybytes()))
        if ipc_message.body is not None and ipc_message.body.size:
            messages[-1] += protobuf.octets(protobuf.DATA_BODY, ipc_message.body.to_pybytes())
    command = json.dumps({"op": "enqueue", "queue": queue}).encode()
    messages[0] = protobuf.octets(protobuf.FLIGHT_DESCRIPTOR, b"\x08\x02" + protobuf.octets(2, command)) + messages[0]
    return messages


class Raw:
    """A client on the library h2, for requests that no gRPC client sends."""

    def __init__(self, where: tuple[str, int]) -> None:
        self.socket = socket.create_connection(where)
        self.socket.settimeout(30)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.events: list[Any] = []
        self.flush()

    def flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def begin(self, method: str, authorization: str | None = None, *, end: bool = False) -> int:
        number = int(self.h2.get_next_available_stream_id())
        headers = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", SERVICE + method), ("te", "trailers")]
        headers += [("content-type", "application/grpc")]
        self.h2.send_headers(number, headers + ([("authorization", authorization)] if authorization else []), end_stream=end)
        self.flush()
        return number

    def receive_until(self, is_complete: Callable[[Any], bool]) -> list[Any]:
        while True:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError
            new = self.h2.receive_data(data)
            self.events += new
            self.flush()
            if any(is_complete(event) for event in new):
                return self.events

    def answer(self, number: int) -> tuple[bytes, dict[str, str]]:
        def ended(event: Any) -> bool:
            return isinstance(event, h2.events.StreamEnded) and event.stream_id == number

        if not any(ended(event) for event in self.events):
            self.receive_until(ended)
        mine = [event for event in self.events if getattr(event, "stream_id", None) == number]
        data = b"".join(event.data for event in mine if isinstance(event, h2.events.DataReceived))
        trailers = {}
        for event in mine:
            if isinstance(event, h2.events.TrailersReceived | h2.events.ResponseReceived):
                trailers.update(event.headers)
        return data, trailers

    def close(self) -> None:
        self.socket.close()


def grpc_message(data: bytes) -> bytes:
    return b"\0" + len(data).to_bytes(4, "big") + data
