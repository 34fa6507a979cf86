"""HTTP over TLS: the broker's certificate, renewed while it runs; unencrypted passwords on this machine alone."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from penstock.broker_core import errors
from penstock.broker_core.http_plane.answers import Planes
from penstock.broker_core.http_plane.plane import HttpPlane
from penstock.broker_core.security import Access, Right, ServerTls
from penstock.broker_core.settings.keys import Settings

from ..flight.peers import Site
from ..waiting import until
from .strangers import MORE_BYTES, connections, peak_bytes


def certify(authority: trustme.CA, folder: Path) -> tuple[Path, Path]:
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    chain, key = folder / "broker.pem", folder / "broker.key"
    certificate.cert_chain_pems[0].write_to_path(str(chain))
    certificate.private_key_pem.write_to_path(str(key))
    return chain, key


class Secured(NamedTuple):
    """A plane with TLS, its certificate's authority, and a client's context that trusts it."""

    plane: HttpPlane
    tls: ServerTls
    settings: Settings
    authority: trustme.CA
    trusting: ssl.SSLContext


@pytest.fixture
def secured(site: Site, tmp_path: Path) -> Iterator[Secured]:
    authority, trusting = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trusting)
    chain, key = certify(authority, tmp_path)
    settings = Settings(data=site.service.settings.data, http_port=0, http_tls=True, tls_cert_file=chain, tls_key_file=key)
    tls = ServerTls(settings)
    plane = HttpPlane(settings, site.access, tls)
    plane.open(site.service, site.plane.actions, Planes(None, {}))
    yield Secured(plane, tls, settings, authority, trusting)
    plane.close()


def test_https_takes_the_newest_certificate(secured: Secured, site: Site, tmp_path: Path) -> None:
    plane, trusting = secured.plane, secured.trusting
    assert plane.url.startswith("https://")
    first = serial(plane.port, trusting)
    assert first == serial(plane.port, trusting)
    certify(secured.authority, tmp_path)
    until(lambda: serial(plane.port, trusting) != first, "the new certificate is shown")
    site.user("alice", *Right)
    connection = http.client.HTTPSConnection("localhost", plane.port, context=trusting, timeout=30)
    connection.request("POST", "/api/v1/session", b'{"user":"alice","password":"secret"}', {"content-type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-penstock")
    assert "Secure" in cookie
    with socket.create_connection(("127.0.0.1", plane.port), timeout=30) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"200" not in plain.recv(1000)


def test_a_new_process_takes_the_certificate_that_the_one_before_had(secured: Secured, tmp_path: Path) -> None:
    """The certificate of the first process, and of a process after one with a newer certificate, with changed files."""
    plane, trusting = secured.plane, secured.trusting
    chain, key = secured.settings.tls_cert_file, secured.settings.tls_key_file
    assert chain is not None
    assert key is not None
    key.write_text("not PEM")
    first = serial(plane.port, trusting)
    certify(secured.authority, tmp_path)

    def renewed() -> str | None:
        current = serial(plane.port, trusting)
        return current if current != first and secured.tls._files.cert == chain.read_bytes() else None

    second = until(renewed, "both processes have the new certificate")
    chain.unlink()
    assert plane.pid is not None
    os.kill(plane.pid, signal.SIGKILL)
    assert serial(plane.port, trusting) == second


def serial(port: int, trusting: ssl.SSLContext) -> str:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        certificate = secured.getpeercert()
        assert certificate is not None
        return str(certificate["serialNumber"])


def test_a_client_in_the_handshake_counts_as_a_connection(secured: Secured, site: Site) -> None:
    """With one too many, the one that has waited longest is closed."""
    plane = HttpPlane(replace(secured.settings, http_max_connections=4), site.access, secured.tls)
    plane.open(site.service, site.plane.actions, Planes(None, {}))
    try:
        with ExitStack() as opened:
            first, second, third = (
                opened.enter_context(socket.create_connection(("127.0.0.1", plane.port), timeout=30)) for _ in range(3)
            )
            assert first.recv(1) == b""
            for silent in (second, third):
                silent.setblocking(False)
                with pytest.raises(BlockingIOError):  # open, as its time is not over
                    silent.recv(1)
            assert serial(plane.port, secured.trusting)
    finally:
        plane.close()


@pytest.mark.parametrize("is_begun", [False, True], ids=["silent", "begun"])
def test_handshakes_that_never_end_take_little_memory_and_a_probe_gets_in(secured: Secured, is_begun: bool) -> None:
    plane, trusting = secured.plane, secured.trusting
    assert serial(plane.port, trusting)
    before = peak_bytes(plane)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        trusting.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    with ExitStack() as opened:
        for connection in connections(plane, 500, opened):
            if is_begun:
                connection.sendall(hello)
        probe = http.client.HTTPSConnection("localhost", plane.port, context=trusting, timeout=30)
        probe.request("GET", "/health/live")
        assert probe.getresponse().status == 200
        probe.close()
    assert peak_bytes(plane) - before < MORE_BYTES


def test_tls_needs_a_certificate_and_a_network_needs_users(tmp_path: Path) -> None:
    """W3: HTTP opens a broker no wider than the other planes do."""
    with pytest.raises(errors.InvalidRequest, match="http_tls needs a certificate"):
        Settings(data=tmp_path, http_tls=True)
    with pytest.raises(errors.InvalidRequest, match=r"0\.0\.0\.0 can be reached from the network, and the broker has no users"):
        Access.of(Settings(data=tmp_path, http_host="0.0.0.0"))
    Access.of(Settings(data=tmp_path, http_host="0.0.0.0", http_port=None))


def test_a_port_that_is_taken_is_an_error_of_the_start(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            errors.InvalidRequest, match=rf"cannot listen for HTTP on 127\.0\.0\.1:{port}: Address already in use"
        ):
            HttpPlane(Settings(data=site.service.settings.data, http_port=port), site.access)


def test_a_password_in_clear_is_refused_unseen_where_others_may_hear(site: Site) -> None:
    """The broker decides by the client's address, which the process sends."""
    from penstock.broker_core.children.frames import ChildFrame
    from penstock.broker_core.http_plane.answers import Answers

    from .helpers import basic

    site.user("alice", *Right)
    for tls, peer, status in ((False, "10.1.2.3:4", 401), (True, "10.1.2.3:4", 200), (False, "[::1]:4", 200)):
        answers = Answers(Settings(data=site.service.settings.data), site.access)
        answers._callers._encrypted = tls
        header, (body, *_) = answers.of(ChildFrame({"op": "login", "authorization": basic("alice"), "peer": peer}, [b""]))
        assert header["status"] == status, peer
        if status == 401:
            assert b"set http_tls" in body
