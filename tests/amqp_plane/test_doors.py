"""W2, W3: the listeners of the AMQP plane: accepted and refused clients, the answers to both, and the entries in the log."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from penstock import Broker
from penstock.broker_core.amqp import SaslClient
from penstock.broker_core.amqp.frames import AMQP_ID, SASL_FRAME, SASL_ID, encode_frame, parse_frame, protocol_header
from penstock.broker_core.amqp.performatives import (
    Attach,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
)
from penstock.broker_core.security import users_file

from ..security.helpers import write
from ..waiting import until
from .frames import begin, sends, symbol
from .harness import Stage
from .logins import user
from .talk import AUTHORITY, CLIENTS, STRANGERS
from .test_fuzz_plane import PATIENCE_S

SECRET = "a secret that no log may have"
SCRAM = "SCRAM-SHA-256"
REFUSED = "amqp:unauthorized-access"
AMQP, SASL = protocol_header(AMQP_ID), protocol_header(SASL_ID)
EVERYTHING = ["EXTERNAL", SCRAM, "PLAIN", "ANONYMOUS"]

LISTENERS: dict[str, dict[str, Any]] = {
    "plain": {"mechanisms": [SCRAM, "PLAIN", "ANONYMOUS"], "without_sasl": True},
    "plain, named": {"mechanisms": [SCRAM, "PLAIN"]},
    "tls": {"tls": True, "mechanisms": EVERYTHING, "without_sasl": True},
    "tls, named": {"tls": True, "mechanisms": EVERYTHING, "without_sasl": False},
}


# ---- a broker with listeners of each kind


class Doors:
    """A real broker, its users, and raw conversations with its listeners."""

    def __init__(self, folder: Path) -> None:
        AUTHORITY.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
        CLIENTS.cert_pem.write_to_path(str(folder / "clients.pem"))
        users = {"alice": user(SECRET, "alice.example"), "nobody's": user(None, "other.example")}
        (folder / "data").mkdir()
        write(folder / "data" / users_file.FILE_NAME, users, {"alice": {"q": "send"}, "anonymous": {"q": "browse"}})
        self.broker = Broker(
            folder / "data",
            fsync="never",
            tls_cert_file=folder / "both.pem",
            tls_key_file=folder / "both.pem",
            tls_client_ca_file=folder / "clients.pem",
            listeners=[{"port": 0, **listener} for listener in LISTENERS.values()],
        )
        self.broker.start()

        def ports() -> list[str]:  # logged when the broker is ready, a little later
            numbers = re.findall(r"amqps?://127\.0\.0\.1:(\d+)", self.broker.log())
            return numbers if len(numbers) == len(LISTENERS) else []

        self.ports = dict(zip(LISTENERS, map(int, until(ports, "all ports are logged")), strict=True))

    def connect(self, door: str, certificate: trustme.LeafCert | None = None) -> socket.socket:
        side: socket.socket = socket.create_connection(("127.0.0.1", self.ports[door]), PATIENCE_S)
        if "tls" in door:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            AUTHORITY.configure_trust(context)
            if certificate is not None:
                certificate.configure_cert(context)
            side = context.wrap_socket(side, server_hostname="localhost")
        return side


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    made = Doors(tmp_path_factory.mktemp("doors"))
    try:
        yield made
    finally:
        made.broker.stop()
        assert SECRET not in made.broker.log()
        assert "Traceback" not in made.broker.log()


def read(side: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = side.recv(size - len(data))
        if not piece:
            break
        data += piece
    return data


def frame(side: socket.socket) -> Any:
    head = read(side, 4)
    octets = head + read(side, int.from_bytes(head, "big") - 4)
    return parse_frame(octets, 0, len(octets), octets[5]).performative


def ends(side: socket.socket) -> bytes:
    """Read the remaining frames, up to the end of the stream."""
    data = b""
    with contextlib.suppress(ssl.SSLEOFError, ConnectionResetError), side:
        while piece := side.recv(65536):
            data += piece
    return data


def login(side: socket.socket, sasl: SaslClient) -> list[Any]:
    """Read the broker's frames of the SASL layer."""
    side.sendall(SASL)
    assert read(side, 8) == SASL
    received = []
    while not sasl.done:
        received.append(frame(side))
        for answer in sasl.receive(received[-1]):
            side.sendall(encode_frame(0, answer.encode(), frame_type=SASL_FRAME))
    return received


def client(mechanism: str, name: str | None = "alice", password: str = SECRET) -> SaslClient:
    return SaslClient(name, password, external=True, prefer=(mechanism,), random=os.urandom)


def opened(side: socket.socket) -> Any:
    side.sendall(AMQP + encode_frame(0, Open(container_id="someone").encode()))
    assert read(side, 8) == AMQP
    return frame(side)


ALICE = CLIENTS.issue_cert(common_name="alice.example")


@pytest.mark.parametrize("mechanism", [SCRAM, "PLAIN", "ANONYMOUS"])
@pytest.mark.parametrize("door", LISTENERS)
def test_a_mechanism_lets_in_where_it_is_offered(doors: Doors, door: str, mechanism: str) -> None:
    with doors.connect(door) as side:
        side.sendall(SASL)
        assert read(side, 8) == SASL
        offered = frame(side)
        assert isinstance(offered, SaslMechanisms)
        expected = [name for name in LISTENERS[door]["mechanisms"] if name != "EXTERNAL"]  # no certificate for it
        assert list(offered.sasl_server_mechanisms) == expected
    if mechanism in expected:
        with doors.connect(door) as side:
            login(side, client(mechanism))
            answer = opened(side)
            assert isinstance(answer, Open)
            assert symbol("flight-token") in answer.properties
    else:
        with doors.connect(door) as side:
            side.sendall(SASL + encode_frame(0, SaslInit(mechanism=mechanism).encode(), frame_type=SASL_FRAME))
            assert ends(side).endswith(encode_frame(0, SaslOutcome(code=1).encode(), frame_type=SASL_FRAME))


def test_a_certificate_logs_its_user_in_and_nobody_else(doors: Doors) -> None:
    for _ in range(2):
        with doors.connect("tls, named", ALICE) as side:
            frames = login(side, client("EXTERNAL"))
            assert frames[0].sasl_server_mechanisms[0] == "EXTERNAL"
            assert isinstance(opened(side), Open)
    for certificate in (CLIENTS.issue_cert(common_name="stranger.example"), CLIENTS.issue_cert(common_name="alice")):
        with doors.connect("tls, named", certificate) as side:
            frames = login(side, client("EXTERNAL"))
            assert frames[-1] == SaslOutcome(code=1)
            assert ends(side) == b""


@pytest.mark.parametrize("door", LISTENERS)
def test_without_a_sasl_layer_only_where_that_is_allowed(doors: Doors, door: str) -> None:
    with doors.connect(door) as side:
        side.sendall(AMQP)
        if LISTENERS[door].get("without_sasl"):
            assert read(side, 8) == AMQP
        else:
            assert ends(side) == SASL, "answered with the supported header, and ended"


def test_the_nameless_are_one_user_whose_permissions_count(doors: Doors) -> None:
    with doors.connect("plain") as side:
        assert isinstance(opened(side), Open)
        side.sendall(encode_frame(0, begin().encode()) + encode_frame(0, sends("q").encode()))
        frame(side)
        assert isinstance(frame(side), Attach)
        refusal = frame(side)
        assert refusal.error.condition == REFUSED


# ---- who is refused


def refused_plain(doors: Doors, door: str, response: bytes) -> bytes:
    """Return all answers of the broker to this PLAIN response."""
    with doors.connect(door) as side:
        init = SaslInit(mechanism="PLAIN", initial_response=response)
        side.sendall(SASL + encode_frame(0, init.encode(), frame_type=SASL_FRAME))
        here = f"{side.getsockname()[0]}:{side.getsockname()[1]}"
        answer = ends(side)
    log = doors.broker.log()
    assert f"{here}: login refused" in log, "logged, with the peer"
    return answer


@pytest.mark.parametrize("door", ["plain", "tls, named"])
def test_all_who_are_refused_hear_the_same(doors: Doors, door: str) -> None:
    """PLAIN: a wrong password, an unknown name, a user without a password, another user's identity, an invalid response."""
    wrong = "wrong " + SECRET
    responses = [f"\0alice\0{wrong}", f"\0who\0{SECRET}", f"\0nobody's\0{SECRET}", f"bob\0alice\0{SECRET}", "x", "\0\0"]
    answers = {refused_plain(doors, door, response.encode()) for response in responses}
    assert len(answers) == 1
    assert answers.pop().endswith(encode_frame(0, SaslOutcome(code=1).encode(), frame_type=SASL_FRAME))
    assert wrong not in doors.broker.log()


def test_scram_says_as_little(doors: Doors) -> None:
    """The challenge for an unknown name looks like others, and has the same salt twice; then the outcome is the same."""
    shapes = set()
    salts = []
    for name, password in (("alice", "wrong"), ("who", SECRET), ("who", "wrong"), ("nobody's", SECRET)):
        with doors.connect("plain") as side:
            frames = login(side, client(SCRAM, name, password))
            challenge = dict(part.split("=", 1) for part in frames[1].challenge.decode().split(","))
            salts.append((name, challenge["s"]))
            shapes.add((len(challenge["r"]), len(challenge["s"]), challenge["i"], frames[2].code, frames[2].additional_data))
            assert ends(side) == b""
    assert len(shapes) == 1
    assert salts[1] == salts[2]
    assert len({salt for _, salt in salts}) == 3


@pytest.mark.parametrize("kind", ["expired", "of another CA"])
def test_a_certificate_that_does_not_hold_is_refused_in_the_handshake(doors: Doors, kind: str) -> None:
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    if kind == "expired":
        certificate = CLIENTS.issue_cert(common_name="alice.example", not_before=long_ago, not_after=long_ago + day)
    else:
        certificate = STRANGERS.issue_cert(common_name="alice.example")
    before = len(doors.broker.log())
    answer = b""
    with contextlib.suppress(ssl.SSLError, ConnectionResetError), doors.connect("tls, named", certificate) as side:
        side.sendall(SASL)
        answer = read(side, 8)
    assert answer == b"", "the broker has sent no byte"
    log = doors.broker.log()[before:]
    assert re.search(r"127\.0\.0\.1:\d+: TLS: the client's certificate is refused", log)
    assert ("expired" in log) == (kind == "expired")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux listens at 127.0.0.2 by default")
@pytest.mark.parametrize("taken", [False, True])
def test_a_free_port_is_the_same_at_each_address_of_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: bool) -> None:
    """The url leads to the broker at each of its addresses, even if another program uses the port at the second address."""
    addresses, blocking = ("127.0.0.1", "127.0.0.2"), []
    real = socket.getaddrinfo

    def resolve(host: str, port: int, *rest: Any, **more: Any) -> list[Any]:
        if host != "localhost":
            return list(real(host, port, *rest, **more))
        if port and taken and not blocking:
            blocking.append(socket.create_server((addresses[1], port)))
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    stage = Stage(tmp_path, host="localhost", amqp_port=0)
    try:
        assert stage.address[0] == "localhost"
        for address in addresses:
            with socket.create_connection((address, stage.address[1]), timeout=30) as client:
                client.sendall(AMQP)
                assert client.recv(8) == AMQP
        assert [blocker.getsockname()[1] != stage.address[1] for blocker in blocking] == [True] * taken
    finally:
        stage.close()
        for blocker in blocking:
            blocker.close()
