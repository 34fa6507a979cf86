"""An AMQP client in a process of its own, for the rows about the AMQP plane: commands in, answers out, as JSON lines.

It is our own client, and busy with little but octets, so that it is not the limit. Ends with its stdin.
"""

from __future__ import annotations

import json
import os
import select
import socket
import ssl
import sys
import time
from typing import Any

from penstock.broker_core import amqp
from penstock.broker_core.client.amqp import Connection, Receiver, connect

QUEUE = "bench"
PREPARED = 100_000  # encoded messages in memory; the clock never includes the encoding


def send(url: str, count: int, size: int, ttl: int | None = None, scattered: bool = False) -> dict[str, Any]:
    """Durable messages, every one confirmed; each has its own body. With a `ttl` (ms, or 0 for none) they say durable, and expire
    one after another until then; or `scattered`, in any order, and in as many steps as there are milliseconds."""
    with connect(url) as connection:
        sender = connection.sender(QUEUE)
        seconds = 0.0
        for first in range(0, count, PREPARED):
            numbers = range(first, min(count, first + PREPARED))
            messages = [_message(number, size, ttl=ttl and _lives(ttl, number, count, scattered)) for number in numbers]
            began = time.perf_counter()
            sender.send(messages)
            sender.flush()
            seconds += time.perf_counter() - began
    return {"seconds": seconds}


def _lives(ttl: int, number: int, count: int, scattered: bool) -> int:
    """Milliseconds, at most `ttl`: in steps of 100, unless `scattered`."""
    if scattered:
        return 1 + number * 7919 % count * ttl // count
    return max(1, ttl * number // count // 100 * 100)


def _message(number: int, size: int, properties: bool = False, ttl: int | None = None) -> bytes:
    message = amqp.Message(data=[number.to_bytes(8, "big") * (size // 8)])
    if ttl is not None:
        message.header = amqp.performatives.Header(durable=True, ttl=ttl or None)
    if properties:
        message.header = amqp.performatives.Header(durable=True)
        message.properties = amqp.performatives.Properties(
            message_id=f"id-{number}", subject="bench", content_type="application/octet-stream", creation_time=1_700_000_000_000
        )
        message.application_properties = {"number": amqp.types.Int(number), "kind": "bench", "final": False}
    return message.encode()


def receive(url: str, count: int, credit: int = 1000) -> dict[str, Any]:
    """Messages accepted as they come."""
    with connect(url) as connection:
        began, left = time.perf_counter(), count
        receiver = connection.receiver(QUEUE, credit=credit)  # requests messages immediately
        while left > 0:
            deliveries = receiver.receive(timeout_s=30)
            assert deliveries, f"{left} messages did not come"
            receiver.accept(deliveries)
            left -= len(deliveries)
        seconds = time.perf_counter() - began
    return {"seconds": seconds}


def receive_on_many(url: str, count: int, links: int, credit: int = 100) -> dict[str, Any]:
    """Receive on several connections, each with a link."""
    connections = [connect(url) for _ in range(links)]
    waiting = select.poll()
    for connection in connections:
        waiting.register(connection.fileno(), select.POLLIN)
    began, left = time.perf_counter(), count
    receivers: dict[int, Receiver] = {c.fileno(): c.receiver(QUEUE, credit=credit) for c in connections}
    for receiver in receivers.values():
        left -= _take(receiver)
    while left > 0:
        ready = waiting.poll(30_000)
        assert ready, f"{left} messages did not come"
        for descriptor, _ in ready:
            left -= _take(receivers[descriptor])
    seconds = time.perf_counter() - began
    for connection in connections:
        connection.close()
    return {"seconds": seconds}


def _take(receiver: Receiver) -> int:
    deliveries = receiver.receive(timeout_s=0)
    if deliveries:
        receiver.accept(deliveries)
    return len(deliveries)


def latency(url: str, count: int, size: int) -> dict[str, Any]:
    """Seconds from a send to the receipt of that message, one after the other.

    The clock runs from the socket's send to the bytes of the body, as in the comparison: encoding and
    decoding are done before and after. The message is accepted, and its own confirmation awaited, before the next one.
    """
    host, _, port = url.removeprefix("amqp://").rpartition(":")
    wire = socket.create_connection((host, int(port)))
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    machine = _opened(wire, amqp.SaslClient(prefer=("ANONYMOUS",)), "latency")
    session = machine.begin()
    sender, receiver = session.sender("in"), session.receiver("out")
    sender.attach(source=amqp.Source(), target=amqp.Target(address=QUEUE))
    receiver.attach(source=amqp.Source(address=QUEUE), target=amqp.Target())
    receiver.grant(count)
    while sender.link_credit == 0:
        _exchange(wire, machine)
    figures = []
    for number in range(1, count + 1):
        body = number.to_bytes(8, "big") * (size // 8)
        sender.send_many([body[:8]], [amqp.Message(data=[body]).encode()])
        octets, came = machine.data_to_send(), b""
        began = time.perf_counter()
        wire.sendall(octets)
        while body not in came:
            came += wire.recv(65536)
        figures.append(time.perf_counter() - began)
        _accept(machine.receive_data(came))
        while sender.unsettled:
            _accept(_exchange(wire, machine))
        wire.sendall(machine.data_to_send())
    wire.close()
    return {"seconds": figures}


def _opened(wire: socket.socket, sasl: amqp.SaslClient, name: str) -> amqp.Connection:
    """The protocol on a socket, as far as both opens."""
    settings = amqp.ConnectionSettings(container_id=name, sasl_frame_size=4096, first_frame_size=4096)
    machine = amqp.Connection(amqp.Role.CLIENT, settings, sasl)
    opened = False
    while machine.remote_open is None:
        _exchange(wire, machine)
        if not opened and sasl.done:
            machine.open()
            opened = True
            wire.sendall(machine.data_to_send())
    return machine


def _exchange(wire: socket.socket, machine: amqp.Connection) -> list[Any]:
    wire.sendall(machine.data_to_send())
    data = wire.recv(65536)
    assert data, "the broker closed the connection"
    return machine.receive_data(data)


def _accept(events: list[Any]) -> None:
    for event in events:
        if isinstance(event, amqp.events.Delivered):
            event.link.session.dispose(event.deliveries, amqp.Accepted())


class _Waiting:
    """Links with credit on some connections. Each accepts its messages."""

    CREDIT = 100

    def __init__(self, url: str, links: int, links_a_connection: int = 100) -> None:
        host, _, port = url.removeprefix("amqp://").rpartition(":")
        self._machines: dict[int, tuple[socket.socket, amqp.Connection]] = {}
        self._poll = select.poll()
        for first in range(0, links, links_a_connection):
            wire = socket.create_connection((host, int(port)))
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            machine = _opened(wire, amqp.SaslClient(prefer=("ANONYMOUS",)), f"waiting-{first}")
            session = machine.begin()
            for number in range(first, min(first + links_a_connection, links)):
                link = session.receiver(f"link-{number}")
                link.attach(source=amqp.Source(address=QUEUE), target=amqp.Target())
                link.grant(self.CREDIT)
            while any(link.remote_attach is None for link in session.links.values()):
                _exchange(wire, machine)
            self._machines[wire.fileno()] = (wire, machine)
            self._poll.register(wire, select.POLLIN)

    def receive(self) -> int:
        """Wait for messages; how many came."""
        count = 0
        for descriptor, _ in self._poll.poll(30_000):
            wire, machine = self._machines[descriptor]
            for event in _exchange(wire, machine):
                if isinstance(event, amqp.events.Delivered):
                    count += len(event.deliveries)
                    event.link.session.dispose(event.deliveries, amqp.Accepted())
                    event.link.grant(self.CREDIT)
            wire.sendall(machine.data_to_send())
        return count

    def close(self) -> None:
        for wire, _ in self._machines.values():
            wire.close()


_waiting: _Waiting | None = None


def wait_for_messages(url: str, links: int) -> dict[str, Any]:
    """Replace the links by new ones that wait for messages."""
    global _waiting
    if _waiting is not None:
        _waiting.close()
    _waiting = _Waiting(url, links)
    return {}


def arrive(url: str, count: int, size: int) -> dict[str, Any]:
    """Messages one at a time, each sent when the one before was confirmed, received and accepted by a link that waits."""
    assert _waiting is not None
    with connect(url) as connection:
        sender = connection.sender(QUEUE)
        for number in range(count):
            sender.send([_message(number, size, False)])
            sender.flush()
            left = 1
            while left:
                left -= _waiting.receive()
    return {}


_stuck: list[Connection] = []


def stick(url: str, credit: int = 10_000) -> dict[str, Any]:
    """A receiver with credit that never reads again."""
    connection = connect(url)
    connection.receiver(QUEUE, credit=credit)
    _stuck.append(connection)
    return {}


_open: list[tuple[ssl.SSLSocket, amqp.Connection]] = []


def hold(url: str, count: int, user: str, password: str, ca: str) -> dict[str, Any]:
    """Connections with TLS and SASL, open and idle."""
    host, _, port = url.removeprefix("amqps://").rpartition(":")
    context = ssl.create_default_context(cafile=ca)
    for number in range(count):
        plain = socket.create_connection((host, int(port)))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire = context.wrap_socket(plain, server_hostname=host)
        machine = _opened(wire, amqp.SaslClient(user, password, prefer=("PLAIN",), random=os.urandom), f"idle-{number}")
        _open.append((wire, machine))
    return {"open": len(_open)}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(globals()[request.pop("do")](**request)), flush=True)


if __name__ == "__main__":
    main()
