"""From an AMQP address to the Flight plane, with users, tokens and TLS, against a real broker (W2)."""

from __future__ import annotations

import inspect
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core import errors, executor_modules
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.discovery import Endpoint, Foreign, endpoint_of, is_loopback
from penstock.broker_core.client.flight import Client
from penstock.broker_core.client.flight import connection as flight_client
from penstock.broker_core.security import users_file
from penstock.broker_core.security.rights import Right
from penstock.broker_core.security.users import User, Users, credentials_of
from penstock.broker_core.server.child import Broker

from .certificates import Authority
from .peer import Peer

ANN = Credentials("ann", "pencil")
ROWS = pa.record_batch({"body": pa.array([b"one", b"two"], pa.binary())})


def add_user(file: Path, name: str, password: str, *certificates: str) -> None:
    user = User(credentials_of(password, bytes(16), 4096), certificates)

    def change(users: Users) -> Users:
        return users.add(name, user).permit(name, "*", list(Right))

    users_file.edit(file, change)


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Broker]:
    """A broker on loopback with the user ann."""
    add_user(tmp_path / "users.json", "ann", "pencil")
    with Broker(tmp_path / "broker", fsync="never", users_file=tmp_path / "users.json") as running:
        yield running


def exchange(client: Client, queue: str) -> None:
    """A call, a put and a get."""
    client.call("queue.declare", queue=queue)
    assert client.put({"op": "enqueue", "queue": queue}, ROWS.schema, [ROWS])["messages"] == 2
    batches = list(client.get(op="browse", queue=queue, states=["available"], columns=["body"]))
    assert [body for batch in batches for body in batch.column(0).to_pylist()] == [b"one", b"two"]


def test_a_broker_without_users_is_found_by_its_amqp_address(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker", fsync="never") as broker, Client(broker.amqp_url) as client:
        assert client.endpoint == Endpoint(broker.flight_url)
        exchange(client, "q")


def test_a_user_is_let_in_on_both_planes(guarded: Broker) -> None:
    with Client(guarded.amqp_url, ANN) as client:
        assert client.endpoint.token
        exchange(client, "discovered")
    with Client(guarded.flight_url, ANN) as client:
        exchange(client, "direct")
    guarded.declare("declared", credentials=ANN)


@pytest.mark.parametrize("wrong", [Credentials("ann", "pen"), Credentials("bob", "pencil"), Credentials()])
def test_nobody_else_is(guarded: Broker, wrong: Credentials) -> None:
    for url in (guarded.amqp_url, guarded.flight_url):
        with pytest.raises(errors.Unauthenticated) as refusal, Client(url, wrong) as client:
            client.call("queue.list")
        assert "pencil" not in str(refusal.value)


def test_a_token_that_the_broker_forgot_is_replaced_for_every_kind_of_call(guarded: Broker) -> None:
    def restarted() -> None:
        guarded.kill()  # its tokens die with it
        guarded.start()

    with Client(guarded.amqp_url, ANN) as client:
        exchange(client, "q")
        old = client.endpoint
        restarted()
        assert client.call("queue.stat", queue="q")["available"] == 2
        assert client.endpoint != old
        restarted()
        assert client.put({"op": "enqueue", "queue": "q"}, ROWS.schema, iter([ROWS] * 20), window=4)["messages"] == 40
        restarted()
        assert sum(b.num_rows for b in client.get(op="browse", queue="q", states=["available"], columns=["body"])) == 42
    # A task with an endpoint that its planner found long ago.
    with Client(guarded.amqp_url, ANN, known=old) as client:
        assert client.call("queue.stat", queue="q")["available"] == 42


def test_a_token_alone_is_enough_while_it_holds(guarded: Broker) -> None:
    with Client(guarded.amqp_url, ANN) as client:
        known = client.endpoint
    with Client(guarded.amqp_url, known=known) as client:
        exchange(client, "q")


def test_a_broker_that_came_back_on_another_flight_port_is_found_again(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker", fsync="never") as broker, Client(broker.amqp_url) as client:
        client.call("queue.declare", queue="q")
        amqp_port, before = broker.amqp_url.rpartition(":")[2], client.endpoint
        broker.stop()
        with pytest.raises(errors.PeerError):
            client.call("queue.list")
        with Broker(tmp_path / "broker", fsync="never", amqp_port=int(amqp_port)) as again:
            assert again.flight_url != before.url
            assert client.call("queue.stat", queue="q")["queue"] == "q"


def test_a_token_that_cannot_be_replaced_early_is_used_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_client, "TOKEN_FRESH_S", 0.0)  # each call replaces the token
    with Broker(tmp_path / "broker", fsync="never") as broker, Client(broker.amqp_url) as client:
        exchange(client, "q")
        broker.stop()
        port = int(broker.flight_url.rpartition(":")[2])
        with Broker(tmp_path / "broker", fsync="never", flight_port=port, amqp_port=None):
            assert client.call("queue.stat", queue="q")["available"] == 2


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def encrypted(tmp_path: Path, authority: Authority) -> Iterator[Broker]:
    """TLS on both planes, and certificates of clients."""
    own = authority.issue("localhost")
    add_user(tmp_path / "users.json", "ann", "pencil", "ann.example")
    with Broker(
        tmp_path / "broker",
        fsync="never",
        users_file=tmp_path / "users.json",
        tls_cert_file=own.cert,
        tls_key_file=own.key,
        tls_client_ca_file=authority.ca_file,
        flight_tls=True,
        listeners=[{"port": 0, "tls": True}],
    ) as running:
        yield running


def test_tls_on_both_planes_with_a_password_and_with_a_certificate(
    encrypted: Broker, authority: Authority, tmp_path: Path
) -> None:
    own = authority.issue("ann.example", "DNS:ann.example")
    assert encrypted.amqp_url.startswith("amqps://")
    assert encrypted.flight_url.startswith("grpc+tls://")
    by_password = Credentials.from_files("ann", "pencil", authority.ca_file)
    by_certificate = Credentials.from_files(None, None, authority.ca_file, own.cert, own.key)
    for number, (url, credentials) in enumerate(
        [(encrypted.amqp_url, by_password), (encrypted.amqp_url, by_certificate), (encrypted.flight_url, by_password)]
    ):
        with Client(url, credentials) as client:
            exchange(client, f"q{number}")
    stranger = Credentials.from_files("ann", "pencil", Authority(tmp_path, "stranger").ca_file)
    for url in (encrypted.amqp_url, encrypted.flight_url):
        with pytest.raises(errors.PeerError, match="certificate"), Client(url, stranger, timeout_s=5) as client:
            client.call("queue.list")


# --- Refusals -------------------------------------------------------------------------------------------------------------


def test_a_plain_amqp_broker_is_refused_with_what_to_do() -> None:
    refused = pytest.raises(errors.InvalidRequest, match=r"plain AMQP 1.0 broker \(Other\).*option spool")
    with Peer(properties={"product": "Other"}) as peer, refused:
        Client(peer.url)


@pytest.mark.parametrize(
    ("url", "host", "properties", "expected"),
    [
        ("amqp://h", "h", {"flight-scheme": "grpc", "flight-port": 1}, Endpoint("grpc://h:1")),
        ("amqp://h", "h", {"flight-scheme": "grpc+tls", "flight-port": 1, "flight-token": "t"}, Endpoint("grpc+tls://h:1", "t")),
        ("amqp://[::1]", "::1", {"flight-scheme": "grpc", "flight-port": 1}, Endpoint("grpc://[::1]:1")),
        ("amqps://h", "h", {"flight-scheme": "grpc+tls", "flight-port": 1}, Endpoint("grpc+tls://h:1")),
        ("amqps://127.0.0.1", "127.0.0.1", {"flight-scheme": "grpc", "flight-port": 1}, Endpoint("grpc://127.0.0.1:1")),
        ("amqps://h", "h", {"flight-scheme": "grpc", "flight-port": 1}, errors.InvalidRequest),
        ("amqp://h", "h", {"flight-scheme": "http", "flight-port": 1}, errors.PeerError),
        ("amqp://h", "h", {"flight-scheme": "grpc", "flight-port": 0}, errors.PeerError),
        ("amqp://h", "h", {"flight-scheme": "grpc", "flight-port": "1"}, errors.PeerError),
        ("amqp://h", "h", {"flight-port": 1}, errors.PeerError),
        ("amqp://h", "h", {"product": "Other", "version": "7"}, Foreign("Other", "7")),
        ("amqp://h", "h", {}, Foreign("", "")),
    ],
)
def test_an_endpoint_is_no_less_safe_than_the_url(url: str, host: str, properties: dict[str, Any], expected: Any) -> None:
    if isinstance(expected, (Endpoint, Foreign)):
        assert endpoint_of(url, host, properties) == expected
    else:
        with pytest.raises(expected):
            endpoint_of(url, host, properties)


def test_a_password_never_crosses_the_network_in_the_open() -> None:
    with pytest.raises(errors.InvalidRequest, match=r"in the open: use grpc\+tls://") as refusal:
        Client("grpc://broker.example:8815", ANN)
    assert "pencil" not in str(refusal.value)
    assert [is_loopback(host) for host in ("localhost", "127.0.0.2", "::1", "[::1]", "10.0.0.1", "localhost.example")] == [
        *[True] * 4,
        False,
        False,
    ]


def test_certificates_need_an_address_with_tls(authority: Authority) -> None:
    with pytest.raises(errors.InvalidRequest, match=r"use grpc\+tls:// or amqps://"):
        Client("grpc://127.0.0.1:1", Credentials.from_files(ca_file=authority.ca_file))


def test_secrets_do_not_show_in_reprs(authority: Authority) -> None:
    own = authority.issue("shown")
    shown = repr([Credentials.from_files("ann", "pencil", None, own.cert, own.key), Endpoint("grpc://h:1", "a-token")])
    assert "ann" in shown
    assert not [secret for secret in ("pencil", "PRIVATE", "a-token") if secret in shown]


# --- Without the package ---------------------------------------------------------------------------------------------------


def test_what_is_shipped_finds_a_broker_where_nothing_is_installed(tmp_path: Path) -> None:
    """The sources of the client, imported from memory by an interpreter that has no `penstock`."""
    program = """
import pickle, sys, zlib
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.util import find_spec, spec_from_loader

finder, sources, url = pickle.load(sys.stdin.buffer)

assert not find_spec("penstock")
exec(finder)
sys.meta_path.append(Finder(sources))

from penstock_shipped.client.amqp import connect
with connect(url) as connection:
    print(connection.remote_properties["product"])
"""
    finder = "from __future__ import annotations\n" + inspect.getsource(executor_modules.Finder)
    with Peer(properties={"product": "Peer"}) as peer:
        done = subprocess.run(
            [sys.executable, "-S", "-c", program],  # -S: no site-packages
            input=pickle.dumps((finder, executor_modules.sources(), peer.url)),
            capture_output=True,
            cwd=tmp_path,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            timeout=60,
            check=False,
        )
    assert done.stdout == b"Peer\n", done.stderr.decode()
