"""Cuts of a socket's input: the plane reads a client's bytes in other pieces than the client has written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random

import pytest

from penstock.broker_core.amqp_plane.connections.sockets import AcceptedSocket

Cut = Callable[[bytes], Iterable[bytes]]


def octets(data: bytes) -> Iterable[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def randomly(seed: int) -> Cut:
    random = Random(seed)

    def cut(data: bytes) -> Iterable[bytes]:
        pieces, at = [], 0
        while at < len(data):
            size = random.choice([1, 3, 7, 20, 100, 1 << 16])
            pieces.append(data[at : at + size])
            at += size
        return pieces

    return cut


def reads(monkeypatch: pytest.MonkeyPatch, cut: Cut, *, passes: bool) -> None:
    """Make all sockets of all planes deliver their bytes in pieces. With `passes`, a pass may run after each piece."""
    name = "data_received" if passes else "_read"
    whole, waiting = getattr(AcceptedSocket, name), dict[AcceptedSocket, deque[bytes]]()

    def go_on(wire: AcceptedSocket) -> None:
        pieces = waiting[wire]
        while pieces:
            if wire._checking is not None:  # its password is being checked: the socket is not read
                wire.plane._loop.call_later(0.001, go_on, wire)
                return
            whole(wire, pieces.popleft())

    def read(wire: AcceptedSocket, data: bytes) -> None:
        waiting.setdefault(wire, deque()).extend(cut(data))
        go_on(wire)

    monkeypatch.setattr(AcceptedSocket, name, read)
