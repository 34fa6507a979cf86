"""Bytes of memory that an idle TLS connection takes in a server, as JSON: after its handshake, after a MiB each way.

The clients are another process, so that only the server's side is counted.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import ssl
import sys
from pathlib import Path

import trustme

from penstock.broker_core.amqp_plane.layers.tls import TlsLayer
from penstock.broker_core.service import allocator

CONNECTIONS = 200
FIRST = 20  # not counted: objects that are made once
MIB = 1 << 20


def memory() -> int:
    """The memory in use. Free memory is returned to the system, as a broker does every few seconds."""
    allocator.give_back()
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def read(side: socket.socket, layer: TlsLayer, count: int) -> None:
    while count > 0:
        data = side.recv(65536)
        assert data
        count -= len(layer.receive(data))
        side.sendall(layer.data_to_send())


def clients(authority: trustme.CA, sides: list[socket.socket]) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    connections = []
    for side in sides:
        connections.append(context.wrap_socket(side, server_hostname="localhost"))
        connections[-1].sendall(b"ready")
    for connection in connections:
        connection.sendall(b"x" * MIB)
        count = MIB
        while count:
            count -= len(connection.recv(65536))
    connections[0].recv(1)


def main() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    context.num_tickets = 0
    pairs = [socket.socketpair() for _ in range(CONNECTIONS)]
    if os.fork() == 0:
        for _, server in pairs:
            server.close()
        clients(authority, [client for client, _ in pairs])
        os._exit(0)
    for client, _ in pairs:
        client.close()
    layers = []
    before = 0
    for number, (_, server) in enumerate(pairs):
        if number == FIRST:
            gc.collect()
            before = memory()
        layers.append(TlsLayer(context))
        read(server, layers[-1], 5)
    gc.collect()
    fresh = memory() - before
    for (_, server), layer in zip(pairs, layers, strict=True):
        read(server, layer, MIB)
        layer.send(bytes(MIB))
        server.sendall(layer.data_to_send())
    gc.collect()
    used = memory() - before
    json.dump([fresh / (CONNECTIONS - FIRST), used / (CONNECTIONS - FIRST)], sys.stdout)
    for _, server in pairs:
        server.close()
    os.wait()


if __name__ == "__main__":
    main()
