"""Listening sockets of the AMQP plane."""

from __future__ import annotations

import contextlib
import errno
import socket

import pytest

from penstock.broker_core.amqp_plane.loop.accepting import bound


def test_a_host_is_bound_at_each_of_its_addresses_at_one_port() -> None:
    sockets, port = bound("localhost", 0)
    with contextlib.ExitStack() as opened:
        for each in sockets:
            opened.enter_context(each)
        found = {info[4][0] for info in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)}
        assert {each.getsockname()[0] for each in sockets} == found
        assert {each.getsockname()[1] for each in sockets} == {port}
        sockets[0].listen()
        with pytest.raises(OSError, match=f"{port}") as refused:
            bound("localhost", port)
        assert refused.value.errno == errno.EADDRINUSE
