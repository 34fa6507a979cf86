"""W2: the PROXY protocol, version 2, from named addresses: its parser, and real sockets with a proxy before the broker."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.amqp_plane.layers import LayerError
from penstock.broker_core.amqp_plane.layers.proxy_protocol import MAX_HEADER, SIGNATURE, ProxyLayer, is_proxy
from penstock.broker_core.client.amqp import connect
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.flight import Client
from penstock.broker_core.security import users_file

from ..security.helpers import user, write
from ..waiting import until
from .talk import AUTHORITY

V4 = socket.inet_aton("203.0.113.7") + socket.inet_aton("10.0.0.1") + struct.pack("!HH", 40_001, 5672)
V6 = socket.inet_pton(socket.AF_INET6, "2001:db8::7") + bytes(15) + b"\x01" + struct.pack("!HH", 40_002, 5672)
TLS_FIELD = b"\x20\x00\x08" + b"\x01" + bytes(4) + b"\x22\x00\x00"  # a proxy has seen TLS
PADDING = b"\x04\x00\x03abc"


def header(block: bytes, family: int = 0x11, command: int = 0x21, size: int | None = None) -> bytes:
    return SIGNATURE + bytes([command, family]) + struct.pack("!H", len(block) if size is None else size) + block


def parsed(octets: bytes) -> tuple[str | None, bytes]:
    layer = ProxyLayer()
    rest = layer.receive(octets)
    assert layer.ready
    assert layer.receive(b"more") == b"more"
    return layer.source, rest


# ---- the parser


@pytest.mark.parametrize(
    ("octets", "source"),
    [
        (header(V4), "203.0.113.7:40001"),
        (header(V6, 0x21), "[2001:db8::7]:40002"),
        (header(V4 + TLS_FIELD + PADDING), "203.0.113.7:40001"),
        (header(V6 + b"\x05\x00\x00", 0x21), "[2001:db8::7]:40002"),
        (header(V4, command=0x20), None),
        (header(b"", 0, 0x20), None),
        (header(b"anything", 0x31, 0x20), None),
        (header(b"", 0), None),
        (header(PADDING, 0), None),
        (header(V4 + b"\x04" + struct.pack("!H", 4000) + bytes(4000)), "203.0.113.7:40001"),
    ],
    ids=["IPv4", "IPv6", "fields", "an empty field", "LOCAL", "LOCAL, empty", "LOCAL, unix", "unknown", "unknown, field", "long"],
)
def test_a_header_contains_the_client_and_the_rest_is_the_client_s(octets: bytes, source: str | None) -> None:
    assert parsed(octets) == (source, b"")
    assert parsed(octets + b"AMQP\x03\x01\x00\x00") == (source, b"AMQP\x03\x01\x00\x00")
    layer = ProxyLayer()
    parts = [layer.receive(octets[at : at + 1]) for at in range(len(octets))]
    assert (b"".join(parts), layer.ready, layer.source) == (b"", True, source)


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"AMQP\x03\x01\x00\x00", "begins with a header of version 2"),
        (b"\r\n\r\n\x00\r\nQUIX", "begins with a header of version 2"),
        (b"PROXY TCP4 203.0.113.7 10.0.0.1 40001 5672\r\n", "version 1 is not supported"),
        (header(V4, command=0x11), "0x11 are not known"),
        (header(V4, command=0x22), "0x22 are not known"),
        (header(V4, 0x12), "0x12 is not TCP"),
        (header(bytes(216), 0x31), "0x31 is not TCP"),
        (header(V4[:-1]), "11 octets instead of 12"),
        (header(V4, 0x21), "12 octets instead of 36"),
        (header(V4 + b"\x04\x00"), "a field is longer than the header"),
        (header(V4 + b"\x04\x00\x02a"), "a field is longer than the header"),
        (header(V4, size=MAX_HEADER), f"at most {MAX_HEADER} are allowed"),
        (header(V4, size=65535), f"at most {MAX_HEADER} are allowed"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[:14].hex(),
)
def test_another_header_is_refused_as_soon_as_possible(octets: bytes, reason: str) -> None:
    with pytest.raises(LayerError, match=reason):
        ProxyLayer().receive(octets)


@given(st.binary(max_size=80), st.sampled_from([b"", SIGNATURE, header(V4)[:14], header(V4, size=40)[:16], header(V6, 0x21)]))
def test_a_header_in_pieces_is_read_like_a_whole_one(tail: bytes, begin: bytes) -> None:
    """Also a malformed one. An incomplete header waits, and passes nothing on."""

    def outcome(pieces: list[bytes]) -> tuple[Any, ...]:
        layer, rest = ProxyLayer(), b""
        try:
            for piece in pieces:
                rest += layer.receive(piece)
        except LayerError:  # its text depends on the octets so far: a first P may be that of version 1
            return ("refused",)
        return layer.ready, layer.source, rest

    octets = begin + tail
    assert outcome([octets]) == outcome([octets[at : at + 1] for at in range(len(octets))]) or not octets


def test_networks_name_proxies() -> None:
    named = ("10.0.0.0/8", "::1/128", "fe80::/16")
    assert [is_proxy(host, named) for host in ("10.9.9.9", "11.0.0.1", "::1", "::2", "fe80::1%eth0")] == [
        *(True, False, True, False, True)
    ]


# ---- real sockets

LISTENERS: dict[str, dict[str, Any]] = {
    "named": {"proxies": ["127.0.0.1"]},
    "tls": {"proxies": ["127.0.0.0/8"], "tls": True},
    "unnamed": {"proxies": ["192.0.2.1"]},
    "none": {},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("proxied")
    AUTHORITY.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(folder / "both.pem")
    AUTHORITY.cert_pem.write_to_path(folder / "ca.pem")
    (folder / "data").mkdir()
    write(folder / "data" / users_file.FILE_NAME, {"alice": user()}, {"alice": {"*": "admin,send"}})
    with Broker(
        folder / "data",
        fsync="never",
        amqp_login_timeout_s=1,
        tls_cert_file=folder / "both.pem",
        tls_key_file=folder / "both.pem",
        listeners=[{"port": 0, **listener} for listener in LISTENERS.values()],
    ) as running:
        yield running


def port_of(broker: Broker, kind: str) -> int:
    def ports() -> list[str]:  # logged when the broker is ready, a little later
        return re.findall(r"amqps?://127\.0\.0\.1:(\d+)", broker.log())

    until(lambda: len(ports()) >= len(LISTENERS), "all ports are logged")
    return int(ports()[list(LISTENERS).index(kind)])


@contextmanager
def proxy(port: int, begin: bytes) -> Iterator[int]:
    """Forward connections to a port. Each begins with these octets."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def pump(source: socket.socket, target: socket.socket) -> None:
            with suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
            for side in (source, target):
                with suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    server = socket.create_connection(("127.0.0.1", port))
                    server.sendall(begin)
                    for pair in ((client, server), (server, client)):
                        threading.Thread(target=pump, args=pair, daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("kind", "octets", "peer"),
    [
        ("named", header(V4), "203.0.113.7:40001"),
        ("named", header(V6 + TLS_FIELD, 0x21), "[2001:db8::7]:40002"),
        ("named", header(b"", 0, 0x20), "127.0.0.1:"),
        ("tls", header(V4 + PADDING), "203.0.113.7:40001"),
        ("unnamed", b"", "127.0.0.1:"),
    ],
    ids=["IPv4", "IPv6", "LOCAL", "TLS", "unnamed"],
)
def test_a_client_behind_a_proxy_has_its_own_address(broker: Broker, kind: str, octets: bytes, peer: str) -> None:
    """In the list of connections and in the audit log."""
    with proxy(port_of(broker, kind), octets) as port, Client(broker.url, Credentials("alice", "secret")) as client:
        scheme, ca = ("amqps", str(broker.data_dir.parent / "ca.pem")) if kind == "tls" else ("amqp", None)
        with connect(f"{scheme}://127.0.0.1:{port}", "alice", "secret", ca_file=ca, timeout_s=60) as connection:
            with pytest.raises(errors.NotAllowed):
                connection.receiver("q", credit=1)
            (listed,) = (row for row in client.call("connection.list")["connections"] if row["protocol"] == "amqp")
            assert listed["peer"].startswith(peer)
            entry = client.call("audit.list")["entries"][0]
            assert (entry["action"], entry["peer"].startswith(peer)) == ("link.receive", True)


@pytest.mark.parametrize("kind", ["unnamed", "none"])
def test_a_header_of_an_unnamed_address_ends_the_connection_and_the_log_names_the_setting(broker: Broker, kind: str) -> None:
    with socket.create_connection(("127.0.0.1", port_of(broker, kind)), 60) as side:
        side.sendall(header(V4) + b"AMQP\x03\x01\x00\x00")
        answer = b""
        while data := side.recv(4096):
            answer += data
        own = side.getsockname()[1]
    assert len(answer) <= 8  # a protocol header, and no login
    until(lambda: f"127.0.0.1:{own}: it sends a PROXY header: " in broker.log(), "the log names the setting")
    assert "203.0.113.7:40001: " not in broker.log().partition(f"127.0.0.1:{own}: it sends")[2]


@pytest.mark.parametrize(
    ("octets", "line"),
    [
        (b"AMQP\x03\x01\x00\x00", "begins with a header of version 2"),
        (header(V4)[:20], "cut off: it did not log in"),
        (b"", "cut off: it did not log in"),
        (header(V4, size=65535), "the header has 65551 octets"),
    ],
    ids=["no header", "truncated", "silent", "too long"],
)
def test_a_named_address_needs_a_complete_header(broker: Broker, octets: bytes, line: str) -> None:
    """Within the time limit of a login."""
    with socket.create_connection(("127.0.0.1", port_of(broker, "named")), 60) as side:
        side.sendall(octets)
        with suppress(ConnectionResetError):
            assert side.recv(4096) == b""
        own = side.getsockname()[1]
    until(lambda: any(f"127.0.0.1:{own}: " in row and line in row for row in broker.log().splitlines()), f"{line!r} is logged")
