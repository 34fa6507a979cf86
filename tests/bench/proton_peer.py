"""A bare python-qpid-proton peer, without a queue or a disk, against which our transfers are measured.

It accepts each transfer of a sender; to a receiver it sends transfers while there is credit. It uses proton's engine with a
plain socket, because proton's own `Container` is slower. It decodes no message.

    python proton_peer.py [SIZE]     transfers with a body of SIZE bytes (1,024); prints its url, ends with its stdin
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from itertools import count

from proton import Collector, Connection, Delivery, Event, Link, Message, Transport

#: Credit of a sender: the window of the row.
CREDIT = 1000
#: Renewed when half of it is used, as in other receivers.
LOW = CREDIT // 2
READ = 1 << 18


class Peer:
    """One connection's end."""

    def __init__(self, wire: socket.socket, message: bytes) -> None:
        self._wire = wire
        self._message = message
        self._tags = count()
        self._connection, self._collector = Connection(), Collector()
        self._connection.collect(self._collector)
        self._transport = Transport(Transport.SERVER)
        self._transport.sasl().allowed_mechs("ANONYMOUS")
        self._transport.require_auth(False)
        self._transport.bind(self._connection)

    def serve(self) -> None:
        transport = self._transport
        while transport.capacity() > 0:
            data = self._wire.recv(READ)
            if not data:
                return
            while data:
                taken = min(transport.capacity(), len(data))
                transport.push(data[:taken])
                data = data[taken:]
                self._handle()
            self._write()

    def _handle(self) -> None:
        collector = self._collector
        while (event := collector.peek()) is not None:
            kind = event.type
            if kind == Event.DELIVERY:
                self._delivered(event.delivery)
            elif kind == Event.LINK_FLOW:
                self._send(event.link)
            elif kind == Event.LINK_REMOTE_OPEN:
                self._attached(event.link)
            elif kind == Event.SESSION_REMOTE_OPEN:
                event.session.open()
            elif kind == Event.CONNECTION_REMOTE_OPEN:
                event.connection.open()
            elif kind == Event.LINK_REMOTE_CLOSE:
                event.link.close()
            elif kind == Event.CONNECTION_REMOTE_CLOSE:
                event.connection.close()
            collector.pop()

    def _attached(self, link: Link) -> None:
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.open()
        if link.is_receiver:
            link.flow(CREDIT)

    def _delivered(self, delivery: Delivery) -> None:
        link = delivery.link
        if link.is_sender:
            delivery.settle()  # it was accepted
        elif delivery.readable and not delivery.partial:
            link.recv(delivery.pending)
            link.advance()
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
            if link.credit <= LOW:
                link.flow(CREDIT - link.credit)

    def _send(self, link: Link) -> None:
        if not link.is_sender:
            return
        while link.credit > 0:
            link.delivery(next(self._tags).to_bytes(8, "big"))
            link.send(self._message)
            link.advance()

    def _write(self) -> None:
        while (pending := self._transport.pending()) > 0:
            data = self._transport.peek(pending)
            self._wire.sendall(data)
            self._transport.pop(len(data))


def _serve(wire: socket.socket, message: bytes) -> None:
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with wire, contextlib.suppress(OSError):  # a client that goes away
        Peer(wire, message).serve()


def _accept(server: socket.socket, message: bytes) -> None:
    while True:
        wire, _ = server.accept()
        threading.Thread(target=_serve, args=(wire, message), daemon=True).start()


def main(size: int = 1024) -> None:
    message = Message(body=os.urandom(size), durable=True, inferred=True).encode()
    server = socket.create_server(("127.0.0.1", 0))
    print(f"amqp://127.0.0.1:{server.getsockname()[1]}", flush=True)
    threading.Thread(target=_accept, args=(server, message), daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
