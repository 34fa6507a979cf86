"""The broker's memory while octets that expand are thrown at its doors."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
from feeding import anonymous_bytes
from harness import MIB, Bench, Line

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.broker_core.flight_plane import protobuf
from penstock.broker_core.flight_plane.server import SERVICE

THROWERS = 8
GIB = 1024 * MIB


def bombs(bench: Bench) -> Iterator[Line]:
    """Peak of the broker's anonymous memory above its value at rest, for each plane."""
    _puts()
    for door, throw in (("Flight", _flight), ("AMQP", _amqp)):
        figures = []
        for _ in range(3):
            data = bench.folder()
            with Broker(data) as broker:
                with Client(broker.url) as client:
                    client.call("queue.declare", queue="q")
                figures.append(_peak(broker, throw) / MIB)
            bench.remove(data)
            bench.say(f"{door}: {figures[-1]:.0f} MiB")
        title = f"anonymous memory of the broker while bombs of 1 GiB each are thrown at its {door} door, at most, beyond rest"
        yield Line("bombs", title, "", 256, None, False, "MiB", figures)


def _peak(broker: Broker, throw: Callable[[Broker], None]) -> int:
    rest = most = anonymous_bytes(broker.pid)
    over = threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.002):
            most = max(most, anonymous_bytes(broker.pid))

    watching = threading.Thread(target=watch)
    watching.start()
    with ThreadPoolExecutor(THROWERS) as pool:
        for done in [pool.submit(throw, broker) for _ in range(THROWERS)]:
            done.result()
    over.set()
    watching.join()
    return most - rest


def _flight(broker: Broker) -> None:
    """A dictionary with 40 claims of 30 MiB, zeros compressed with zstd and gzip, and 15 million empty messages."""
    where = broker.url.partition("//")[2]
    with grpc.insecure_channel(where, options=[("grpc.max_send_message_length", -1)]) as channel:
        for messages in _puts():
            _refused(channel, "DoPut", messages)
    with grpc.insecure_channel(where, compression=grpc.Compression.Gzip) as channel:
        _refused(channel, "DoAction", [protobuf.octets(1, b"hello") + protobuf.octets(2, bytes(GIB // THROWERS))])


@cache
def _puts() -> list[list[bytes]]:
    bodies = pa.DictionaryArray.from_arrays(pa.array(np.zeros(40, np.int8)), pa.array([bytes(30 * MIB)], pa.large_binary()))
    none = pa.DictionaryArray.from_arrays(pa.array(np.zeros(15_000_000, np.int8)), pa.array([b""]))
    zeros = pa.array([bytes(30 * MIB)] * 34, pa.large_binary())
    return [
        _messages(pa.record_batch({"body": bodies})),
        _messages(pa.record_batch({"body": none})),
        _messages(pa.record_batch({"body": zeros}), compression="zstd"),
    ]


def _refused(channel: grpc.Channel, method: str, messages: list[bytes]) -> None:
    def same(data: bytes) -> bytes:
        return data

    try:
        list(channel.stream_stream(SERVICE + method, same, same)(iter(messages)))
    except grpc.RpcError:
        return
    raise AssertionError("a bomb was taken")


def _messages(batch: pa.RecordBatch, **options: Any) -> list[bytes]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    command = json.dumps({"op": "enqueue", "queue": "q"}).encode()
    messages = []
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(sink.getvalue())):
        data = protobuf.octets(protobuf.DATA_HEADER, message.metadata.to_pybytes())
        if message.body is not None and message.body.size:
            data += protobuf.octets(protobuf.DATA_BODY, message.body.to_pybytes())
        messages.append(data)
    return [protobuf.octets(protobuf.FLIGHT_DESCRIPTOR, b"\x08\x02" + protobuf.octets(2, command)) + messages[0], *messages[1:]]


def _amqp(broker: Broker) -> None:
    """An open that claims a billion values in a few bytes, and a frame that claims 2 GiB; 40 of each."""
    assert broker.amqp_url is not None
    host, port = broker.amqp_url.rpartition("/")[2].split(":")
    values = b"\xf0" + struct.pack(">II", 5, 1 << 30) + b"\x41"  # an array of `true`, which has no octets
    nested = b"\xd0" + struct.pack(">II", 1 << 30, 1 << 28) + b"\x45" * 1000  # a list of empty lists
    opens = [b"\x00\x53\x10\xd0" + struct.pack(">II", len(body) + 7, 10) + b"\xa1\x01x" + body for body in (values, nested)]
    framed = [struct.pack(">IBBH", len(body) + 8, 2, 0, 0) + body for body in opens]
    framed.append(struct.pack(">IBBH", (1 << 31) - 1, 2, 0, 0) + bytes(MIB))
    for data in framed * 40:
        with socket.create_connection((host, int(port))) as connection:
            connection.settimeout(30)
            try:
                connection.sendall(b"AMQP\x00\x01\x00\x00" + data)
                while len(connection.recv(65536)) == 8:
                    pass  # its protocol header; then its refusal
            except OSError:
                pass  # it is cut off while we send
