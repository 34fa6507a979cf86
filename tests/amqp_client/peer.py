"""A server made of `broker_core.amqp.Connection(Role.SERVER)` on a socket, controlled by a few switches.

A test reads the events that it has seen. Run as a program, it is the other end of a measurement.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from penstock.broker_core import amqp
from penstock.broker_core.amqp import Accepted, SaslServer, events
from penstock.broker_core.amqp.deliveries import Delivery
from penstock.broker_core.amqp.states import LinkState

SECRET = b"tests"


def accept_all(session: amqp.Session, deliveries: list[Delivery]) -> None:
    open_ = [delivery for delivery in deliveries if not delivery.settled]
    if open_:
        session.dispose(open_, Accepted())


class Peer:
    """Listens on loopback until `close`. Each connection has a thread.

    `on_deliveries` settles incoming deliveries. `queues` holds the payloads for receivers, `seen` every event. `credit` is
    renewed at half. `hook(peer, machine, event)` may take over an event by returning True.
    """

    def __init__(
        self,
        *,
        credit: int = 1000,
        sasl: Callable[[], SaslServer] | None = None,
        tls: ssl.SSLContext | None = None,
        on_deliveries: Callable[[amqp.Session, list[Delivery]], None] = accept_all,
        hook: Callable[[Peer, amqp.Connection, events.Event], bool] | None = None,
        keep: bool = True,
        **settings: Any,
    ) -> None:
        self.credit = credit
        self.sasl = sasl or (lambda: SaslServer(["ANONYMOUS"]))
        self.on_deliveries = on_deliveries
        self.hook = hook
        self.keep = keep
        self.drains = True  # answers a drain
        self.settings = amqp.ConnectionSettings(
            container_id="peer", **{"sasl_frame_size": 8192, "first_frame_size": 8192, **settings}
        )
        self.queues: dict[str, list[bytes]] = defaultdict(list)
        self.received: list[bytes] = []
        self.seen: list[events.Event] = []
        self.outcomes: list[tuple[bytes, Any]] = []
        self._by_tag: dict[bytes, bytes] = {}
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=16)
        self.port = self._listener.getsockname()[1]
        self.url = f"amqp{'s' if tls else ''}://127.0.0.1:{self.port}"
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            machine = amqp.Connection(amqp.Role.SERVER, self.settings, self.sasl())
            while not machine.finished:
                data = sock.recv(256 * 1024)
                received = machine.receive_data(data, time.monotonic()) if data else machine.receive_eof()
                for event in received:
                    self._on(machine, event)
                sock.sendall(machine.data_to_send())
        except OSError:
            pass
        finally:
            sock.close()

    def _on(self, machine: amqp.Connection, event: events.Event) -> None:
        if self.keep:
            self.seen.append(event)
        if self.hook is not None and self.hook(self, machine, event):
            return
        if isinstance(event, events.Opened):
            machine.open()
        elif isinstance(event, events.Begun):
            event.session.begin()
        elif isinstance(event, events.Attached):
            event.link.attach(source=event.attach.source, target=event.attach.target)
            if isinstance(event.link, amqp.Receiver):
                event.link.grant(self.credit)
        elif isinstance(event, events.Delivered):
            self._on_delivered(event)
        elif isinstance(event, events.Flowed) and isinstance(event.link, amqp.Sender):
            self._send(event.link)
        elif isinstance(event, events.Disposed) and self.keep:
            self.outcomes += [(delivery.tag, event.state) for delivery in event.deliveries]
        elif isinstance(event, events.Detached) and event.link.state is LinkState.DETACH_RCVD:
            event.link.detach(closed=True)
        elif isinstance(event, events.Closed) and not machine.finished:
            machine.close()

    def _on_delivered(self, event: events.Delivered) -> None:
        link = event.link
        assert isinstance(link, amqp.Receiver)
        if self.keep:
            self.received += [delivery.payload for delivery in event.deliveries]
        self.on_deliveries(link.session, event.deliveries)
        if link.link_credit <= self.credit // 2 and link.state is LinkState.ATTACHED:
            link.grant(self.credit)

    def _send(self, link: amqp.Sender) -> None:
        queue = self.queues[getattr(link.source, "address", "")]
        while queue and link.can_send:
            count = min(len(queue), link.link_credit)
            tags = [os.urandom(8) for _ in range(count)]
            sent = len(link.send_many(tags, queue[:count]))
            if not sent:
                link.send(tags[0], queue[0])
                sent = 1
            if self.keep:
                self._by_tag.update(zip(tags[:sent], queue[:sent], strict=True))
            del queue[:sent]
        if not queue and link.state is LinkState.ATTACHED and self.drains:
            link.drained()

    def payload(self, tag: bytes) -> bytes:
        """Octets that were sent under that tag."""
        return self._by_tag[tag]

    def cut(self) -> None:
        """Break every connection, without a close."""
        for sock in list(self._sockets):  # not later ones
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


if __name__ == "__main__":
    peer = Peer(credit=int(sys.argv[1]), keep=False)
    payload = amqp.Message(data=[b"x" * 1024]).encode()
    peer.queues["out"] = [payload] * int(sys.argv[2])
    print(peer.url, flush=True)
    sys.stdin.read()
