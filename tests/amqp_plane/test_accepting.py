"""Listening sockets of the AMQP plane."""

from __future__ import annotations

import contextlib
import errno
import socket
from pathlib import Path

import pytest

from penstock.broker_core.amqp_plane.loop.acceptor import bound

from .harness import stage


def test_a_host_is_bound_at_each_of_its_addresses_at_one_port() -> None:
    sockets, port = bound("localhost", 0)
    with contextlib.ExitStack() as opened:
        for listener in sockets:
            opened.enter_context(listener)
        addresses = {info[4][0] for info in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)}
        assert {listener.getsockname()[0] for listener in sockets} == addresses
        assert {listener.getsockname()[1] for listener in sockets} == {port}
        sockets[0].listen()
        with pytest.raises(OSError, match=f"{port}") as refused:
            bound("localhost", port)
        assert refused.value.errno == errno.EADDRINUSE


def test_an_accepted_connection_sends_small_frames_immediately(tmp_path: Path) -> None:
    """Without TCP_NODELAY, a frame may wait for the client's delayed acknowledgement: 40 ms."""
    with stage(tmp_path) as made:
        made.client("container")
        (wire,) = made.plane._accepted
        assert wire._transport is not None
        accepted = wire._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
