"""python-qpid-proton as the other end: another opinion on the protocol, in each scenario that a broker may play."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from typing import Any

import proton

#: Faults of the broker: once, after ten messages of a queue; and permanent ones.
ONCE = ("detach", "end", "close", "cut")
NEVER = ("drains",)
SENT_BEFORE = 10


class ProtonPeer:
    """A broker of one queue. `plays` is one of the scenarios; `accepted` are the payloads that were; `words` go with an error."""

    words = "says proton"

    def __init__(self, payloads: list[bytes], plays: str = "") -> None:
        self.waiting, self.accepted, self.received = deque(payloads), list[bytes](), list[bytes]()
        self._plays, self._sent = plays, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"amqp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                _Served(self, sock).run()  # one connection after the other: there is one client

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)

    def __enter__(self) -> ProtonPeer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Served:
    """One connection, up to its end. Then messages that were not accepted return to the queue."""

    def __init__(self, peer: ProtonPeer, sock: socket.socket) -> None:
        self._peer, self._sock, self._open = peer, sock, dict[str, bytes]()
        self._connection, self._collector = proton.Connection(), proton.Collector()
        self._connection.container = "proton"
        self._connection.collect(self._collector)
        self._transport = proton.Transport(proton.Transport.SERVER)
        self._transport.sasl().allowed_mechs("ANONYMOUS")
        self._transport.bind(self._connection)

    def run(self) -> None:
        try:
            while self._transport.pending() >= 0:
                self._write()
                data = self._sock.recv(min(1 << 16, max(1, self._transport.capacity())))
                if not data:
                    break
                self._transport.push(data)
                while (event := self._collector.peek()) is not None:
                    self._on(event.type.name, event.context)
                    self._collector.pop()
        except (OSError, proton.TransportException):
            pass
        finally:
            self._sock.close()
            self._peer.waiting.extendleft(reversed(self._open.values()))

    def _write(self) -> None:
        while (pending := self._transport.pending()) > 0:
            self._sock.sendall(bytes(self._transport.peek(pending)))
            self._transport.pop(pending)

    def _on(self, name: str, of: Any) -> None:
        if name in ("PN_CONNECTION_REMOTE_OPEN", "PN_SESSION_REMOTE_OPEN"):
            of.open()
        elif name == "PN_LINK_REMOTE_OPEN":
            of.source.copy(of.remote_source)
            of.target.copy(of.remote_target)
            of.open()
            if of.is_receiver and self._peer._plays != "credit":
                of.flow(100)
        elif name == "PN_LINK_FLOW" and of.is_sender:
            self._send(of)
        elif name == "PN_DELIVERY":
            self._delivered(of)
        elif name in ("PN_LINK_REMOTE_CLOSE", "PN_SESSION_REMOTE_CLOSE", "PN_CONNECTION_REMOTE_CLOSE"):
            of.close()

    def _send(self, link: Any) -> None:
        peer = self._peer
        while link.credit > 0 and peer.waiting:
            tag = f"{peer._sent}"
            payload = self._open[tag] = peer.waiting.popleft()
            link.delivery(tag)
            link.send(payload)
            link.advance()
            peer._sent += 1
            if peer._sent == SENT_BEFORE and peer._plays in ONCE:
                self._play(link)
                return
        if link.drain_mode and peer._plays != "drains":
            link.drained()

    def _play(self, link: Any) -> None:
        if self._peer._plays == "cut":
            self._write()
            self._sock.shutdown(socket.SHUT_RDWR)
            return
        ends = {"detach": link, "end": link.session, "close": self._connection}[self._peer._plays]
        ends.condition = proton.Condition("amqp:internal-error", self._peer.words)
        ends.close()

    def _delivered(self, delivery: Any) -> None:
        if delivery.link.is_sender:
            if delivery.updated and delivery.remote_state == proton.Delivery.ACCEPTED and delivery.tag in self._open:
                self._peer.accepted.append(self._open.pop(delivery.tag))
                delivery.settle()
        elif delivery.readable and not delivery.partial:
            self._peer.received.append(bytes(delivery.link.recv(delivery.pending)))
            refused = self._peer._plays == "reject"
            if refused:
                delivery.local.condition = proton.Condition("amqp:not-allowed", self._peer.words)
            states = proton.Delivery.REJECTED if refused else proton.Delivery.ACCEPTED
            delivery.update(proton.Delivery.RELEASED if self._peer._plays == "release" else states)
            delivery.settle()
            delivery.link.flow(1)
