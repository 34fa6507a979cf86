"""A recording wire: a proxy between client and broker that keeps the passing messages, byte for byte.

It parses them afterwards, so that it adds no delay. It needs plain connections, because TLS would be opaque.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

from penstock.broker_core.amqp.frames import AMQP_FRAME, parse_frame
from penstock.broker_core.amqp.performatives import Transfer

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, FOOTER = 0x70, 0x71, 0x72, 0x78


class Tap:
    """`with Tap(broker.amqp_url) as tap: …connect to tap.url…`; then `tap.sent()` and `tap.received()`: bare messages."""

    def __init__(self, url: str) -> None:
        host, _, port = url.rpartition("/")[2].rpartition(":")
        self._broker = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"amqp://127.0.0.1:{self._server.getsockname()[1]}"
        #: For each connection the octets to the broker and the octets from it.
        self._wires: list[tuple[bytearray, bytearray]] = []
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def sent(self) -> list[bytes]:
        """The bare messages that clients sent, connection by connection."""
        return [bare(payload) for wire in self._wires for payload in payloads(bytes(wire[0]))]

    def received(self) -> list[bytes]:
        return [bare(payload) for wire in self._wires for payload in payloads(bytes(wire[1]))]

    def __enter__(self) -> Tap:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        for connection in self._sockets:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            broker = socket.create_connection(self._broker)
            self._sockets += [client, broker]
            wire = bytearray(), bytearray()
            self._wires.append(wire)
            for source, target, record in ((client, broker, wire[0]), (broker, client, wire[1])):
                threading.Thread(target=_pump, args=(source, target, record), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket, record: bytearray) -> None:
    try:
        while piece := source.recv(1 << 16):
            record += piece
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one side has ended, and the other will notice


def payloads(octets: bytes) -> Iterator[bytes]:
    """The payload of each complete delivery in one direction of a connection."""
    parts: dict[tuple[int, int], bytes] = {}
    position = 0
    while position + 8 <= len(octets):
        if octets[position : position + 4] == b"AMQP":
            position += 8
            continue
        size = int.from_bytes(octets[position : position + 4], "big")
        if position + size > len(octets):
            return
        if octets[position + 5] == AMQP_FRAME:
            frame = parse_frame(octets, position, size)
            if isinstance(frame.performative, Transfer):
                link = frame.channel, int(frame.performative.handle)
                parts[link] = parts.get(link, b"") + frame.payload
                if frame.performative.aborted:
                    del parts[link]
                elif not frame.performative.more:
                    yield parts.pop(link)
        position += size


def bare(payload: bytes) -> bytes:
    """Without header, annotations and footer."""
    sections, position = b"", 0
    while position < len(payload):
        start = position
        code, position = _section(payload, position)
        if code not in (HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, FOOTER):
            sections += payload[start:position]
    return sections


def _section(payload: bytes, position: int) -> tuple[int, int]:
    """Return the section's code and its end. All clients here write descriptors as ulong."""
    assert payload[position] == 0, payload[position : position + 12].hex()
    width = {0x53: 1, 0x80: 8}[payload[position + 1]]
    code = int.from_bytes(payload[position + 2 : position + 2 + width], "big")
    position += 2 + width
    form, position = payload[position], position + 1
    if form >> 4 in (0xA, 0xC, 0xE):
        return code, position + 1 + payload[position]
    if form >> 4 in (0xB, 0xD, 0xF):
        return code, position + 4 + int.from_bytes(payload[position : position + 4], "big")
    return code, position + {4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}[form >> 4]
