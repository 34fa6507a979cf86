"""Logins: each SASL mechanism, TLS with its certificates, and secrets that never cross the network in the open (W2)."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import SaslServer, events
from penstock.broker_core.amqp.frames import protocol_header
from penstock.broker_core.amqp.scram import make_credentials
from penstock.broker_core.client.amqp import connect

from .certificates import Authority
from .peer import SECRET, Peer

KEPT = make_credentials("pencil", b"0123456789abcdef")


def users(*mechanisms: str, external: str | None = None) -> Callable[[], SaslServer]:
    lookup = {"ann": KEPT}.get
    return lambda: SaslServer(list(mechanisms), lookup=lookup, external=external, random=os.urandom, secret=SECRET)


def who(peer: Peer) -> list[tuple[str | None, str]]:
    return [(event.user, event.mechanism) for event in peer.seen if isinstance(event, events.Authenticated)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def server(authority: Authority, alternative: str = "IP:127.0.0.1,DNS:localhost", clients: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server-" + str(len(alternative)), alternative))
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.ca_file)
    return context


def test_nobody_in_particular_is_anonymous_and_learns_the_properties() -> None:
    with Peer(properties={"product": "Peer", "flight-port": 1}) as peer, connect(peer.url) as connection:
        assert who(peer) == [("anonymous", "ANONYMOUS")]
        assert connection.remote_properties == {"product": "Peer", "flight-port": 1}


def test_the_open_may_be_larger_than_512_octets() -> None:
    with Peer(properties={"flight-token": "x" * 2000}) as peer, connect(peer.url) as connection:
        assert connection.remote_properties["flight-token"] == "x" * 2000


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_a_user_logs_in(mechanism: str) -> None:
    with Peer(sasl=users("ANONYMOUS", mechanism)) as peer:
        connect(peer.url, "ann", "pencil").close()
        assert who(peer) == [("ann", mechanism)]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
@pytest.mark.parametrize(("user", "password"), [("ann", "pen"), ("bob", "pencil"), ("ann", "")])
def test_a_wrong_password_and_an_unknown_user_are_told_alike(mechanism: str, user: str, password: str) -> None:
    with Peer(sasl=users(mechanism)) as peer:
        with pytest.raises(errors.Unauthenticated, match="is wrong or missing") as refusal:
            connect(peer.url, user, password)
        assert not password or password not in str(refusal.value)


def test_a_user_is_never_let_in_as_anonymous_instead() -> None:
    with Peer() as peer, pytest.raises(errors.Unauthenticated, match="none of ANONYMOUS can be used"):
        connect(peer.url, "ann", "pencil")


def test_a_password_is_not_said_in_the_open_to_another_machine() -> None:
    from penstock.broker_core.client.amqp.address import Address
    from penstock.broker_core.client.amqp.transport import ClientSocket

    address = next((entry[4][0] for entry in socket.getaddrinfo(socket.gethostname(), 0, socket.AF_INET)), "127.0.0.1")
    if address.startswith("127."):
        pytest.skip("this machine has no address but loopback")
    with socket.create_server((address, 0)) as listener, socket.create_connection(listener.getsockname()) as sock:
        assert not ClientSocket(sock, Address(address, 1, False)).secure
    with Peer() as peer, socket.create_connection(("127.0.0.1", peer.port)) as sock:
        assert ClientSocket(sock, Address("localhost", 1, False)).secure


def test_tls_is_verified_against_the_ca_that_is_given(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    with Peer(tls=server(authority), sasl=users("PLAIN")) as peer:
        connect(peer.url, "ann", "pencil", ca_file=authority.ca_file).close()
        assert who(peer) == [("ann", "PLAIN")]
        for ca_file in (None, stranger.ca_file):
            with pytest.raises(errors.PeerError, match=r"is not trusted.*give the CA"):
                connect(peer.url, "ann", "pencil", ca_file=ca_file)


def test_a_certificate_of_another_host_is_refused(authority: Authority) -> None:
    refused = pytest.raises(errors.PeerError, match=r"is not trusted.*host name")
    with Peer(tls=server(authority, "DNS:elsewhere.example")) as peer, refused:
        connect(peer.url, ca_file=authority.ca_file)


def test_a_client_certificate_logs_in_with_external(authority: Authority, tmp_path: Path) -> None:
    own = authority.issue("ann", "DNS:ann")
    with Peer(tls=server(authority, clients=True), sasl=users("PLAIN", "EXTERNAL", external="ann")) as peer:
        connect(peer.url, ca_file=authority.ca_file, cert_file=own.cert, key_file=own.key).close()
        assert who(peer) == [("ann", "EXTERNAL")]
        with pytest.raises(errors.PeerError, match=f"{peer.url} wants a client certificate: give one"):
            connect(peer.url, ca_file=authority.ca_file)
        stranger = Authority(tmp_path, "stranger").issue("ann", "DNS:ann")
        with pytest.raises(errors.PeerError, match=f"{peer.url} refuses the client certificate .*UNKNOWN_CA"):
            connect(peer.url, ca_file=authority.ca_file, cert_file=stranger.cert, key_file=stranger.key)


def test_messages_pass_over_tls(authority: Authority) -> None:
    sent = [amqp.Message(data=[bytes(number)]).encode() for number in range(0, 60_000, 500)]
    with Peer(tls=server(authority)) as peer, connect(peer.url, ca_file=authority.ca_file) as connection:
        sender = connection.sender("in")
        sender.send(sent)
        sender.flush()
        assert peer.received == sent
        peer.queues["out"] += sent
        receiver = connection.receiver("out")
        got: list[bytes] = []
        while len(got) < len(sent):
            got += [delivery.payload for delivery in receiver.receive(timeout_s=30)]
        assert got == sent


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("amqp://", "it must be amqp://HOST"),
        ("grpc://h:1", "it must be amqp://HOST"),
        ("amqp://h:1/queue", "it must be amqp://HOST"),
        ("amqp://h:99999", "it must be amqp://HOST"),
        ("amqp://ann:pencil@h", "give user and password separately"),
    ],
)
def test_a_wrong_url_is_refused_and_a_password_in_it_not_repeated(url: str, says: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=says) as refusal:
        connect(url)
    assert "pencil" not in str(refusal.value)


def test_what_does_not_go_together_is_refused(authority: Authority) -> None:
    with pytest.raises(errors.InvalidRequest, match="give both, or neither"):
        connect("amqp://127.0.0.1", "ann")
    with pytest.raises(errors.InvalidRequest, match="use amqps://"):
        connect("amqp://127.0.0.1", ca_file=authority.ca_file)
    with pytest.raises(errors.InvalidRequest, match="CA file nowhere cannot be read"):
        connect("amqps://127.0.0.1", ca_file="nowhere")
    with pytest.raises(errors.InvalidRequest, match="key file without"):
        connect("amqps://127.0.0.1", key_file="nowhere")
    own = authority.issue("own")
    with pytest.raises(errors.InvalidRequest, match=r"key .*server.* cannot be used: both must be PEM, belong together"):
        connect("amqps://127.0.0.1", cert_file=own.cert, key_file=authority.issue("server").key)
    with pytest.raises(errors.InvalidRequest, match="holds no certificate in PEM"):
        connect("amqps://127.0.0.1", ca_file=own.key)


def test_nobody_there_and_somebody_else_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening
        with pytest.raises(errors.PeerError, match="penstock serve --data DIR"):
            connect(f"amqp://127.0.0.1:{taken.getsockname()[1]}")
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(errors.PeerError, match="no AMQP greeting came"):
        connect(f"amqp://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.2)
    with Peer() as peer, pytest.raises(errors.WrongPort, match="the AMQP port without TLS"):
        connect(f"amqps://127.0.0.1:{peer.port}", timeout_s=5)


@pytest.mark.parametrize(
    ("octets", "says"),
    [
        (b"", "ended the connection without an answer: the broker was stopped, perhaps"),
        (protocol_header(3), "broke during the login: the broker was stopped, perhaps; try again"),
    ],
    ids=["nothing", "a header"],
)
def test_a_server_that_goes_during_the_login(octets: bytes, says: str) -> None:
    """As a broker that is killed just then. Only if it sent nothing may it be another kind of server."""

    def serve(listening: socket.socket) -> None:
        for _ in range(2):  # the second connection looks for the protocol of the port
            with contextlib.suppress(OSError):
                accepted, _ = listening.accept()
                with accepted:
                    accepted.recv(8)
                    accepted.sendall(octets)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        with pytest.raises(errors.PeerError, match=says) as refused:
            connect(f"amqp://127.0.0.1:{listening.getsockname()[1]}", timeout_s=5)
    assert ("another kind of server" in str(refused.value)) == (not octets)
